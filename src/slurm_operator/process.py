"""The operator as a process: built from its options, started, stopped by a signal.

Before anything runs, the process requests the version of the API server: a wrong kubeconfig, an unreachable
server or rejected credentials end it with one line of output instead of a retry loop. From then on no such
failure ends it any more. Missing CRDs do not either: `/readyz` lists them, the log explains how to install
them, and the process becomes ready when they appear.

It exits with 0 after SIGTERM or SIGINT, having released its lease, and with 1 when it cannot start, has lost
the lease, or had to cut off something that ignored its cancellation: nothing waits for that, and the lease
expires instead of being released. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

import slurm_operator
from slurm_operator import api
from slurm_operator.api import wellknown
from slurm_operator.api.clusterdomain import cluster_domain
from slurm_operator.controllers import accounting, cluster, controller, loginset, restapi, slurmclient
from slurm_operator.controllers.nodeset import controller as nodeset
from slurm_operator.controllers.nodeset.run.watches import OWNER_INDEX, WORKERS
from slurm_operator.controllers.shared.wiring import Wiring
from slurm_operator.controllers.token import controller as token
from slurm_operator.kube.cache.referenced_objects import ReferencedObjects
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Pod, Secret
from slurm_operator.kube.process import log, memory
from slurm_operator.kube.process.loop_turns import timed_loop
from slurm_operator.kube.process.metrics import REGISTRY, observe_request
from slurm_operator.kube.process.pprof import ProfileServer
from slurm_operator.kube.process.probes import HealthServer, MetricsServer
from slurm_operator.kube.process.signals import stop_on_signals
from slurm_operator.kube.process.token_review import Authorizer
from slurm_operator.kube.runtime.apply import Applier
from slurm_operator.kube.runtime.events import EventRecorder
from slurm_operator.kube.runtime.lease import LeaderElector
from slurm_operator.kube.runtime.manager import Manager
from slurm_operator.kube.runtime.sources import Channel
from slurm_operator.slurm.metrics import RequestStats, SlurmCollector
from slurm_operator.slurm.rest.connections import Connections
from slurm_operator.status_api.board import Board, BoardSources
from slurm_operator.status_api.decision_log import DecisionLog
from slurm_operator.status_api.job_rows import JobDetailCache
from slurm_operator.status_api.status_server import StatusServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from slurm_operator.controllers.shared.wiring import Build
    from slurm_operator.flags import ManagerOptions
    from slurm_operator.kube.cache.informer import Informer
    from slurm_operator.kube.client.config import ClientConfig
    from slurm_operator.kube.process.serving import HttpServer

_log = structlog.get_logger(__name__)

# Every controller of the operator, in the order in which they start.
CONTROLLERS: tuple[Build, ...] = (
    cluster.build,
    slurmclient.build,
    token.build,
    accounting.build,
    controller.build,
    restapi.build,
    loginset.build,
    nodeset.build,
)

# Where the kubelet tells each pod, this operator's too, the domain of the cluster.
_RESOLVER = Path("/etc/resolv.conf")
# Long enough for a server that is just restarting, short enough for a person who waits.
_GREETING_SECONDS = 10.0
_CRD_CHECK_SECONDS = 1.0
_INSTALL_CRDS = "slurm-operator crds | kubectl apply --server-side -f -"
# Less than the manager gives to each step of a stop.
_FLUSH_SECONDS = 5.0


def run_manager(options: ManagerOptions, controllers: Sequence[Build] = CONTROLLERS) -> int:
    """Run the operator until a signal; return the exit code."""
    log.configure(options.log)
    memory.relax()
    memory.tame()
    try:
        config = load_config(options.kubeconfig)
        with asyncio.Runner(loop_factory=timed_loop) as runner:
            runner.run(_manage(options, config, controllers))
    except (KubeError, OSError) as error:
        _complain(error)
        return 1
    return 0


async def _manage(options: ManagerOptions, config: ClientConfig, controllers: Sequence[Build]) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    elector = None
    if options.leader_elect:
        elector = LeaderElector(config, namespace=options.leader_elect_namespace or config.namespace)
    fence = elector.fence if elector else None
    async with Client(config, fence=fence, observe=observe_request) as client:
        if not await _greet(client, config, stop):
            return
        health = HealthServer(options.health)
        if elector is not None:
            health.add_liveness("lease", elector.stale)
        metrics = MetricsServer(options.metrics, Authorizer(client) if options.metrics_secure else None)
        manager = Manager(
            client, namespaces=options.namespaces, elector=elector, health=health, metrics=metrics
        )
        informers = [manager.informer(kind) for kind in api.KINDS]
        health.add_check("crds", lambda: _explain(missing_crds(informers)))
        manager.add_runnable(lambda: _report_missing_crds(informers), name="CRD check")
        decisions = None if options.status is None else DecisionLog()
        wiring = wire(manager, client, options, REGISTRY, decisions)
        for build in controllers:
            manager.add(build(wiring))
        async with AsyncExitStack() as servers:
            if decisions is not None:
                await _serve(servers, status_server(wiring, options, decisions, elector))
            await _serve(servers, ProfileServer(options.profile))
            try:
                await manager.run(stop)
            except Exception as error:
                if manager.lost or manager.unstoppable:
                    _exit_at_once(error)
                raise
        if manager.unstoppable:
            _exit_at_once(KubeError(f"cut off, it did not stop: {', '.join(manager.unstoppable)}"))


async def _serve(servers: AsyncExitStack, server: HttpServer) -> None:
    await server.start()
    servers.push_async_callback(server.close)


def status_server(
    wiring: Wiring, options: ManagerOptions, decisions: DecisionLog, elector: LeaderElector | None
) -> StatusServer:
    """Make the server of the status API, which reads what the controllers of `wiring` know."""
    manager = wiring.manager
    pods = manager.informer(Pod, labels=WORKERS).store
    sources = BoardSources(
        nodesets=manager.informer(api.NodeSet).store,
        controllers=manager.informer(api.Controller).store,
        owned_pods=lambda nodeset: pods.by_index(OWNER_INDEX, nodeset.metadata.uid),
        connections=wiring.connections,
        log=decisions,
        namespaces=options.namespaces,
    )
    server = StatusServer(
        options.status,
        wiring.client,
        Board(sources),
        decisions,
        JobDetailCache(wiring.connections),
        identity="" if elector is None else elector.identity,
        leader=lambda: "" if elector is None else elector.holder,
    )
    manager.add_runnable(server.lead, name="status API", leader_only=True)
    return server


def wire(
    manager: Manager,
    client: Client,
    options: ManagerOptions,
    registry: CollectorRegistry,
    decisions: DecisionLog | None = None,
) -> Wiring:
    """Make the parts that controllers share; they run while this replica leads, and stop after them."""
    events = EventRecorder(client, observe=None if decisions is None else decisions.reported)
    secrets = ReferencedObjects(client, Secret, namespaces=options.namespaces)
    config_maps = ReferencedObjects(client, ConfigMap, namespaces=options.namespaces)
    stats = RequestStats()
    connections = Connections(reason_prefix=wellknown.REASON_PREFIX, observe=stats.observe)
    registry.register(SlurmCollector(connections, stats, reason_prefix=wellknown.REASON_PREFIX))
    manager.add_runnable(
        events.run, name="events", leader_only=True, on_stop=lambda: events.flush(_FLUSH_SECONDS)
    )
    manager.add_runnable(secrets.run, name="named Secrets", leader_only=True)
    manager.add_runnable(config_maps.run, name="named ConfigMaps", leader_only=True)
    manager.add_runnable(connections.run, name="Slurm connections", leader_only=True)
    return Wiring(
        manager=manager,
        client=client,
        applier=Applier(client),
        events=events,
        secrets=secrets,
        config_maps=config_maps,
        connections=connections,
        node_events=Channel(),
        workers=options.workers,
        registry=registry,
        propagated_node_conditions=options.propagated_node_conditions,
        cluster_domain=cluster_domain(_resolver()),
        plans=decisions,
        slurm_api_override=options.slurm_api_override,
    )


def _resolver() -> str:
    try:
        return _RESOLVER.read_text(encoding="utf-8")
    except OSError:
        return ""


def _exit_at_once(error: Exception) -> NoReturn:
    """End the process here: an orderly end would wait for a task that ignores its cancellation."""
    _complain(error)
    os._exit(1)


def _complain(error: Exception) -> None:
    sys.stderr.write(f"slurm-operator manager: {log.scrub(str(error))}\n")
    sys.stderr.flush()


async def _greet(client: Client, config: ClientConfig, stop: asyncio.Event) -> bool:
    """Wait until the API server answers, and log what this is; return whether that came before a stop."""
    greeting = asyncio.create_task(client.raw("GET", "/version", timeout=_GREETING_SECONDS))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({greeting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if stop.is_set():
        greeting.cancel()
        await asyncio.wait({greeting})
        return False
    try:
        greeting.result()
    except KubeError as error:
        raise KubeError(f"cannot work with the API server {config.server}: {error}") from error
    _log.info("starting", version=slurm_operator.__version__, server=config.server)
    return True


def missing_crds(informers: Iterable[Informer[Any]]) -> list[str]:
    """Return the names of the CustomResourceDefinitions that the API server does not serve."""
    return [
        f"{informer.kind.RESOURCE.plural}.{informer.kind.RESOURCE.group}"
        for informer in informers
        if isinstance(informer.last_error, NotFound)
    ]


def _explain(missing: list[str]) -> str | None:
    return f"not installed: {', '.join(missing)}; run: {_INSTALL_CRDS}" if missing else None


async def _report_missing_crds(informers: list[Informer[Any]]) -> None:
    """Log each missing CRD once, until all caches are filled."""
    said: set[str] = set()
    while not all(informer.synced for informer in informers):
        missing = missing_crds(informers)
        if not said.issuperset(missing):
            _log.error("CustomResourceDefinitions are not installed", missing=missing, run=_INSTALL_CRDS)
            said.update(missing)
        await asyncio.sleep(_CRD_CHECK_SECONDS)
