"""Two processes and one lease: whatever happens to the first, its writes end before the second one's begin.

Order is judged by resourceVersions, which etcd counts for all objects together: a write that landed after the
takeover has a higher one than the Lease had then. No clock is involved.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import ConfigMap, Lease
from tests.support.charts.chart_accounts import allow_lease, operator_kubeconfig
from tests.support.processes import LOOPBACK_FLAGS, MANAGER, PROGRAMS, Process, eventually, install_crds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kubebox import Box
    from slurm_operator.kube.models.meta import Object

TARGET = "contended"


class Entry(NamedTuple):
    """Something that was written, and its place in the order of all writes."""

    version: int
    by: str


@dataclass
class Journal:
    """Everything that was written to the ConfigMap and to the Lease, in order."""

    writes: list[Entry] = field(default_factory=list)
    leases: list[Entry] = field(default_factory=list)

    @property
    def holder(self) -> str:
        return self.leases[-1].by if self.leases else ""

    def writes_by(self, name: str) -> list[Entry]:
        return [entry for entry in self.writes if entry.by == name]

    def takeover_by(self, name: str) -> int:
        return next(entry.version for entry in self.leases if entry.by == name)


@asynccontextmanager
async def journal(client: Client, namespace: str) -> AsyncIterator[Journal]:
    """Create the ConfigMap, then record every change of it and of the Lease."""
    await client.create(ConfigMap, {"metadata": {"name": TARGET, "namespace": namespace}})
    kept = Journal()

    async def follow(kind: type[Object], into: list[Entry]) -> None:
        start = (await client.list(kind, namespace)).resource_version
        watch = client.watch(kind, namespace, resource_version=start)
        async with aclosing(watch) as events:
            async for event in events:
                found = event.object
                if isinstance(found, ConfigMap) and found.metadata.name == TARGET:
                    into.append(Entry(int(event.resource_version), (found.data or {}).get("writer", "")))
                elif isinstance(found, Lease) and found.metadata.name == TARGET:
                    into.append(Entry(int(event.resource_version), found.spec.holder_identity or ""))

    tasks = [
        asyncio.create_task(follow(ConfigMap, kept.writes)),
        asyncio.create_task(follow(Lease, kept.leases)),
    ]
    try:
        yield kept
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def writer(box: Box, folder: Path, name: str, namespace: str, pause: float = 0.0) -> Process:
    program = str(PROGRAMS / "writer.py")
    return Process(box, folder / f"{name}.log", [program, name, namespace, TARGET, str(pause)])


async def test_a_killed_leader_is_followed_and_writes_no_more(
    kube_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """After kill -9 of the leader the other leads, and every write of the first came before the takeover."""
    async with (
        Client(load_config(str(kube_box.kubeconfig))) as client,
        journal(client, kube_namespace) as seen,
    ):
        with writer(kube_box, tmp_path, "first", kube_namespace) as first:
            await eventually(lambda: len(seen.writes_by("first")) > 50, "the first writes")
            with writer(kube_box, tmp_path, "second", kube_namespace) as second:
                await eventually(
                    lambda: second.logged("another process leads", holder="first"), "the second waits"
                )
                assert seen.writes_by("second") == []
                first.signal(signal.SIGKILL)
                await eventually(lambda: len(seen.writes_by("second")) > 50, "the second writes")
                assert max(seen.writes_by("first")).version < seen.takeover_by("second")
                lease = await client.get(Lease, TARGET, kube_namespace)
                assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("second", 1)


async def test_a_stopped_leader_wakes_up_fenced(kube_box: Box, kube_namespace: str, tmp_path: Path) -> None:
    """A leader stopped past its lease writes nothing when it wakes, and ends with an error."""
    async with (
        Client(load_config(str(kube_box.kubeconfig))) as client,
        journal(client, kube_namespace) as seen,
    ):
        # Stopped between two writes: what has already left the process cannot be called back by anybody.
        with (
            writer(kube_box, tmp_path, "first", kube_namespace, pause=0.02) as first,
            writer(kube_box, tmp_path, "second", kube_namespace, pause=0.02) as second,
        ):
            await eventually(lambda: seen.holder, "one leads")
            leader, other = (first, second) if seen.holder == "first" else (second, first)
            old, new = seen.holder, "second" if seen.holder == "first" else "first"
            await eventually(lambda: other.logged("another process leads", holder=old), "the other waits")
            count = len(seen.writes_by(old))
            await eventually(lambda: len(seen.writes_by(old)) > count, "the leader writes")
            leader.signal(signal.SIGSTOP)
            await eventually(lambda: len(seen.writes_by(new)) > 20, "the other writes")
            leader.signal(signal.SIGCONT)
            assert await leader.ended() == 1
            count = len(seen.writes_by(new))
            await eventually(lambda: len(seen.writes_by(new)) > count + 20, "the other goes on writing")
            assert max(seen.writes_by(old)).version < seen.takeover_by(new)
            assert min(seen.writes_by(new)).version > seen.takeover_by(new)


async def test_a_leader_that_stops_frees_the_lease(
    kube_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """On SIGTERM the leader frees the lease after its last write, and the next one leads."""
    async with (
        Client(load_config(str(kube_box.kubeconfig))) as client,
        journal(client, kube_namespace) as seen,
    ):
        with writer(kube_box, tmp_path, "first", kube_namespace) as first:
            await eventually(lambda: len(seen.writes_by("first")) > 20, "the first writes")
            with writer(kube_box, tmp_path, "second", kube_namespace) as second:
                await eventually(lambda: second.logged("another process leads"), "the second waits")
                first.signal(signal.SIGTERM)
                assert await first.ended() == 0
                await eventually(lambda: len(seen.writes_by("second")) > 20, "the second writes")
        freed = next(entry.version for entry in seen.leases if entry.by == "")
        assert max(seen.writes_by("first")).version < freed < seen.takeover_by("second")


async def test_renewal_survives_a_busy_event_loop(kube_box: Box, kube_namespace: str, tmp_path: Path) -> None:
    """A main loop that computes for longer than the lease keeps it, because renewing has its own thread."""
    async with (
        Client(load_config(str(kube_box.kubeconfig))) as client,
        journal(client, kube_namespace) as seen,
    ):
        with Process(
            kube_box, tmp_path / "busy.log", [str(PROGRAMS / "busy.py"), kube_namespace, "busy"]
        ) as busy:
            assert await busy.ended() == 0, busy.text()
        lease = await client.get(Lease, "busy", kube_namespace)
        assert (lease.spec.lease_transitions, lease.spec.holder_identity or "") == (0, "")
        assert seen.leases == []
        assert (await client.get(ConfigMap, "busy", kube_namespace)).metadata.uid


async def test_two_managers_one_leads(kube_box: Box, kube_namespace: str, tmp_path: Path) -> None:
    """Of two operators one leads and both are ready; when the leader is killed the other leads."""
    install_crds(kube_box)
    allow_lease(kube_box, kube_namespace)
    own = str(operator_kubeconfig(kube_box))
    flags = (*MANAGER, *LOOPBACK_FLAGS, "--leader-elect", f"--leader-elect-namespace={kube_namespace}")
    async with Client(load_config(str(kube_box.kubeconfig))) as client:

        async def lease() -> Lease:
            return await client.get(Lease, "slurm-operator", kube_namespace)

        with (
            Process(None, tmp_path / "a.log", flags, KUBECONFIG=own) as a,
            Process(None, tmp_path / "b.log", flags, KUBECONFIG=own) as b,
        ):
            for process in (a, b):
                await eventually(process.ready, "both are ready")
            await eventually(lambda: a.logged("leading") or b.logged("leading"), "one leads")
            leader, other = (a, b) if a.logged("leading") else (b, a)
            await eventually(lambda: other.logged("another process leads"), "the other sees it")
            assert other.logged("leading") is None
            assert (
                'leader_election_master_status{name="slurm-operator"} 1.0'
                in (await leader.get("metrics", "/metrics"))[1]
            )
            assert (
                'leader_election_master_status{name="slurm-operator"} 0.0'
                in (await other.get("metrics", "/metrics"))[1]
            )
            first = await lease()
            leader.signal(signal.SIGKILL)
            await eventually(lambda: other.logged("leading"), "the other leads")
            second = await lease()
            assert second.spec.holder_identity != first.spec.holder_identity
            assert second.spec.lease_transitions == (first.spec.lease_transitions or 0) + 1
            other.signal(signal.SIGTERM)
            assert await other.ended() == 0
            assert not (await lease()).spec.holder_identity
