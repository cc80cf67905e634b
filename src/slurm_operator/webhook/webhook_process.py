"""The webhook as a process: no leader, no cache, ready as soon as TLS is served.

It does not wait for the API server at the start: most rules need no other object, and a webhook that waited
for an API server that waits for the webhook would be a deadlock. Without certificate files it waits for them,
and `/readyz` reports that; with them it serves within a fraction of a second.

Exit codes are those of the manager: 0 after a signal, 1 if it cannot start.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import structlog

import slurm_operator
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.process import log, memory
from slurm_operator.kube.process.metrics import observe_request
from slurm_operator.kube.process.probes import HealthServer, MetricsServer
from slurm_operator.kube.process.signals import stop_on_signals
from slurm_operator.kube.process.token_review import Authorizer
from slurm_operator.webhook.binding import Binder
from slurm_operator.webhook.certificates import Certificates
from slurm_operator.webhook.lookups import Lookups
from slurm_operator.webhook.removals import Recorder
from slurm_operator.webhook.server import WebhookServer
from slurm_operator.webhook.validate import Validator

if TYPE_CHECKING:
    from slurm_operator.kube.client.config import ClientConfig
    from slurm_operator.webhook.options import WebhookOptions

_log = structlog.get_logger(__name__)


def run_webhook(options: WebhookOptions) -> int:
    """Serve the webhooks until a signal; return the exit code."""
    log.configure(options.log)
    memory.relax()
    try:
        asyncio.run(_serve(options, load_config(options.kubeconfig)))
    except (KubeError, OSError) as error:
        sys.stderr.write(f"slurm-operator webhook: {log.scrub(str(error))}\n")
        sys.stderr.flush()
        return 1
    return 0


async def _serve(options: WebhookOptions, config: ClientConfig) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    async with Client(config, observe=observe_request) as client:
        certificates = Certificates(options.cert_dir, client_ca=options.client_ca)
        validator = Validator(Lookups(client, options.namespaces))
        recorder = Recorder(client, options.namespaces)
        server = WebhookServer(options.server, certificates, validator, Binder(client), recorder)
        health = HealthServer(options.health)
        health.add_check("tls", server.serving)
        health.add_check("running", lambda: "the process is stopping" if stop.is_set() else None)
        metrics = MetricsServer(options.metrics, Authorizer(client) if options.metrics_secure else None)
        watching = asyncio.create_task(certificates.run(), name="certificates")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await health.start()
            await metrics.start()
            _log.info("starting", version=slurm_operator.__version__, server=config.server)
            await _first(certificates.usable, watching, stopping)
            if not stop.is_set():
                await server.start()
                memory.settle()
                await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
                await _drain(server, options.shutdown_delay)
            if watching.done():
                watching.result()  # it never ends by itself, so this says what went wrong
        finally:
            watching.cancel()
            stopping.cancel()
            for one in (server, metrics, health):
                await one.close()


async def _first(usable: asyncio.Event, *others: asyncio.Task[object]) -> None:
    """Wait until there is a certificate, or a reason not to wait for one any longer."""
    ready = asyncio.create_task(usable.wait())
    await asyncio.wait({ready, *others}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()


async def _drain(server: WebhookServer, delay: float) -> None:
    """Serve on while the word spreads that this replica goes, then answer what is in flight, and no more."""
    server.draining = True
    await asyncio.sleep(delay)
    await server.close()
