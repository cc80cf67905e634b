"""The whole process, `slurm-operator manager`, on a real API server and a real Slurm."""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import Accounting, LoginSet, NodeSet, Token
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.kinds import Deployment, PersistentVolumeClaim, Pod, StatefulSet
from tests.integration.controllers.conftest import IMAGE, World
from tests.integration.test_manager_process import CHILDREN, PLURALS
from tests.support.charts.chart_accounts import USER, allow_lease, operator_kubeconfig
from tests.support.controllers.one_controller import KEY, has_event, has_message, override
from tests.support.processes import LOOPBACK_FLAGS, MANAGER, Process, eventually, install_crds
from tests.support.service_accounts import kubeconfig_with_token, sees_nodes, service_account
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox import Box
    from kubebox.slurm import SlurmBox
    from slurm_operator.api import Kind
    from slurm_operator.kube.models.meta import Object

_READS = frozenset({"get", "list", "watch"})
WORKLOADS: tuple[tuple[type[Object], str], ...] = (
    (StatefulSet, "main-controller"),
    (StatefulSet, "kept-controller"),
    (StatefulSet, "more-accounting"),
    (Deployment, "api-restapi"),
    (Deployment, "more"),
    (Pod, "more-0"),
    (PersistentVolumeClaim, "scratch-more-0"),
)


def manager(kubeconfig: Path, log: Path, world: World, *flags: str) -> Process:
    """Start a manager that is confined to the namespace."""
    arguments = [*MANAGER, *LOOPBACK_FLAGS, f"--namespaces={world.namespace}", *flags]
    return Process(None, log, ["-W", "always::ResourceWarning", *arguments], KUBECONFIG=str(kubeconfig))


@pytest.fixture
def own(slinky_box: Box) -> Path:
    """Hand out a kubeconfig for the operator, with the permissions of the chart."""
    return operator_kubeconfig(slinky_box)


async def one_of_each(world: World, server: HostileSlurmrestd | SlurmBox, key: bytes = KEY) -> None:
    """Create a Controller with a RestApi, another one with a Cluster, and the Token that the Cluster uses."""
    await world.secret("keys", jwt__key=key)
    await world.controller()
    await world.restapi("api")
    spec = {
        "jwtKeyRef": {"name": "keys", "key": "jwt.key"},
        "username": "slurm",
        "secretRef": {"name": "token", "key": "auth-token"},
    }
    await world.client.create(
        Token, {"metadata": {"name": "far", "namespace": world.namespace}, "spec": spec}
    )
    await world.cluster("far", server.url)
    await world.controller("other", cluster_ref="far")


async def more_daemons(world: World) -> None:
    """Create an Accounting, a LoginSet, a NodeSet with a claim, and a Controller with a claim."""
    key = {"name": "keys", "key": "jwt.key"}
    specs: dict[type[Kind], dict[str, Any]] = {
        Accounting: {
            "slurmKeyRef": key,
            "jwtKeyRef": key,
            "slurmdbd": IMAGE,
            "storageConfig": {"host": "db", "username": "slurm", "passwordKeyRef": key},
        },
        LoginSet: {
            "controllerRef": {"name": "main"},
            "sssdConfRef": key,
            "login": IMAGE,
            "initconf": IMAGE,
        },
        NodeSet: {
            "controllerRef": {"name": "main"},
            "slurmd": IMAGE,
            "logfile": IMAGE,
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "scratch"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
    }
    for kind, spec in specs.items():
        metadata = {"name": "more", "namespace": world.namespace}
        await world.client.create(kind, {"metadata": metadata, "spec": spec})
    await world.controller("kept", persistence={"enabled": True})


async def _exists(world: World, kind: type[Object], name: str) -> bool:
    try:
        await world.client.get(kind, name, world.namespace)
    except NotFound:
        return False
    return True


async def all_connected(world: World) -> None:
    """Wait until everything says that it is connected."""
    await world.says(world.api_ready, "Connected", 120)
    await world.says(lambda: world.ready("far"), "Connected", 120)
    await world.says(lambda: world.api_ready("other"), "Connected", 120)


async def test_a_manager_outside_of_the_cluster(
    world: World, own: Path, slurm_box: SlurmBox, tmp_path: Path
) -> None:
    """With --slurm-api-override a manager on this machine connects, shows metrics, and ends cleanly."""
    key = slurm_box.jwt_key
    await world.secret("keys", jwt__key=key)
    await world.controller()
    await world.restapi("api")
    with manager(own, tmp_path / "manager.log", world, override(slurm_box)) as process:
        await world.says(world.api_ready, "Connected", 60)
        status, text = await process.get("metrics", "/metrics")
        label = f'cluster="{world.namespace}/main"'
        assert status == 200
        assert f"slurm_operator_slurm_up{{{label}}} 1.0" in text
        counted = re.findall(rf"^slurm_operator_slurm_nodes{{{label},.*}} (.*)$", text, re.MULTILINE)
        assert sum(map(float, counted)) >= 3
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        written = process.text()
        assert "ResourceWarning" not in written
        assert not [entry for entry in process.entries() if entry["level"] == "error"], written
        for secret in (key.decode("latin-1"), slurm_box.token().rpartition(".")[0][:20]):
            assert secret not in written
    assert ("Controller", "main", "SlurmApiConnected") in await world.events(), "flushed at the latest"


async def test_a_role_is_enough(
    world: World, slinky_box: Box, hostile: HostileSlurmrestd, tmp_path: Path
) -> None:
    """With --namespaces, a Role and a look at the nodes are all that the process needs."""
    token = service_account(slinky_box, world.namespace, "local")

    def allow(name: str, verbs: str, *resources: str) -> None:
        rules = (f"--verb={verbs}", *(f"--resource={resource}" for resource in resources))
        slinky_box.kubectl("create", "role", name, "-n", world.namespace, *rules)
        who = f"--serviceaccount={world.namespace}:local"
        slinky_box.kubectl("create", "rolebinding", name, "-n", world.namespace, f"--role={name}", who)

    kinds = [f"{plural}.slinky.slurm.net" for plural in PLURALS]
    allow("kinds", "get,list,watch", *kinds)
    allow("statuses", "patch", *(f"{kind}/status" for kind in kinds))
    allow("children", "get,list,watch,create,patch,delete", *(one for one in CHILDREN if one != "pods"))
    allow("pods", "get,list,watch,create,patch,delete", "pods")
    allow("marks", "patch", "pods/status", "nodesets.slinky.slurm.net")
    allow("events", "create,patch", "events.events.k8s.io")
    allow("leases", "get,create,patch", "leases.coordination.k8s.io")
    config = kubeconfig_with_token(slinky_box, tmp_path / "kubeconfig", token)
    await one_of_each(world, hostile)
    await more_daemons(world)
    flags = ("--leader-elect", f"--leader-elect-namespace={world.namespace}", override(hostile))
    with (
        sees_nodes(slinky_box, world.namespace, "local"),
        manager(config, tmp_path / "manager.log", world, *flags) as process,
    ):
        await all_connected(world)
        await eventually(lambda: has_event(world, "SlurmApiConnected"), "an Event could be written")
        for kind, name in WORKLOADS:
            await eventually(partial(_exists, world, kind, name), f"{kind.__name__} {name} exists")
        assert await process.ready()
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        assert "forbidden" not in process.text()
        assert process.logged("lease released") is not None


# ---------------------------------------------------------------------------------------------------- at rest
def _requests(box: Box, namespace: str) -> list[dict[str, Any]]:
    """Return what the process asked for in one namespace, as the API server's audit log has it."""
    lines = box.audit_log.read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines if line.endswith("}")]
    return [
        entry
        for entry in entries
        if entry.get("objectRef", {}).get("namespace") == namespace and entry["user"]["username"] == USER
    ]


async def test_at_rest_the_process_is_silent(
    kube_box_factory: Callable[..., Box], slurm_box: SlurmBox, tmp_path: Path
) -> None:
    """While Slurm's nodes change and everything is well, the API server hears nothing from the process."""
    box = kube_box_factory(audit=True)
    install_crds(box)
    with box.namespace() as namespace:
        config = load_config(str(box.kubeconfig))
        own = operator_kubeconfig(box)
        async with Client(config) as client:
            world = World(client, config, namespace)
            await one_of_each(world, slurm_box, slurm_box.jwt_key)
            with manager(own, tmp_path / "manager.log", world, override(slurm_box)) as process:
                await all_connected(world)
                await eventually(lambda: has_event(world, "SlurmApiConnected", name="other"), "all is said")
                await eventually(lambda: _polled(process, 2), "everything has settled")
                before = len(_requests(box, namespace))
                assert before > 0, "the log shows the process"
                polls = await _polls(process)
                slurm_box.run("scontrol", "update", "nodename=n0", "state=drain", "reason=test")
                try:
                    await eventually(lambda: _drained(process), "the change is seen")
                finally:
                    slurm_box.run("scontrol", "update", "nodename=n0", "state=resume")
                await eventually(lambda: _polled(process, polls + 2), "polls go on")
                later = [(one["verb"], one["requestURI"]) for one in _requests(box, namespace)[before:]]
                assert [one for one in later if one[0] not in _READS] == []
                assert [one for one in later if one[0] != "watch"] == []


async def _polls(process: Process) -> int:
    """Return how often the lists of nodes were asked for, in the cluster for which that is least."""
    text = (await process.get("metrics", "/metrics"))[1]
    pattern = r'^slurm_operator_slurm_request_duration_seconds_count{(.*),operation="nodes"} (.*)$'
    found = re.findall(pattern, text, re.MULTILINE)
    return int(min((float(count) for _, count in found), default=0.0)) if len(found) > 1 else 0


async def _polled(process: Process, times: int) -> bool:
    return await _polls(process) >= times


async def _drained(process: Process) -> bool:
    text = (await process.get("metrics", "/metrics"))[1]
    return len(re.findall(r'^slurm_operator_slurm_node_flags{.*flag="drain"} 1.0$', text, re.MULTILINE)) > 1


# ------------------------------------------------------------------------------------------------------- ends
async def test_a_server_that_hangs_does_not_delay_the_end(
    world: World, own: Path, hostile: HostileSlurmrestd, tmp_path: Path
) -> None:
    """While every request to slurmrestd hangs, SIGTERM ends the process as if nothing were the matter."""
    hostile.fault = Fault.HANG
    await one_of_each(world, hostile)
    with manager(own, tmp_path / "manager.log", world, override(hostile)) as process:
        await eventually(lambda: len(hostile.log) > 1, "both connections wait for an answer")
        await world.says(world.api_ready, "Connecting")
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        assert "ResourceWarning" not in process.text()
        assert not [entry for entry in process.entries() if entry["level"] in ("warn", "error")]


async def test_only_the_leader_asks_slurm(
    world: World, own: Path, slinky_box: Box, hostile: HostileSlurmrestd, tmp_path: Path
) -> None:
    """A standby has no connection; when the leader ends it takes over, and no condition moves."""
    allow_lease(slinky_box, world.namespace)
    flags = ("--leader-elect", f"--leader-elect-namespace={world.namespace}")
    await one_of_each(world, hostile)
    with manager(own, tmp_path / "first.log", world, *flags, override(hostile)) as first:
        await all_connected(world)
        ready = await world.api_ready()
        async with HostileSlurmrestd() as other:
            other.add_nodes("n[0-1]")
            with manager(own, tmp_path / "second.log", world, *flags, override(other)) as second:
                await eventually(lambda: second.logged("waiting for the lease"), "it waits")
                text = (await second.get("metrics", "/metrics"))[1]
                assert "slurm_operator_slurm_up{" not in text
                assert other.log == []
                first.signal(signal.SIGTERM)
                assert await first.ended() == 0
                asked = len(hostile.log)
                await other.asked("GET nodes", times=2, within=60)
                await eventually(partial(has_message, world, other.url), "it says where it is connected now")
                after = await world.api_ready()
                assert ready is not None
                assert after is not None
                assert (after.status, after.last_transition_time) == ("True", ready.last_transition_time)
                assert len(hostile.log) == asked, "the one before is silent"
