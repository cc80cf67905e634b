"""Connections over real HTTP: made, shared, replaced, removed, and what is left of them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.contextvars import bind_contextvars, clear_contextvars, get_contextvars

from slurm_operator.slurm.errors import Unavailable
from slurm_operator.slurm.metrics import RequestStats, SlurmCollector
from slurm_operator.slurm.model.view import EMPTY
from slurm_operator.slurm.rest.connections import ConnectionKey, Connections, ConnectionTarget
from slurm_operator.slurm.web_token import FixedToken
from tests.support.processes import eventually
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd, job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.slurm.model.view import ViewUpdate
    from slurm_operator.slurm.rest.connections import Receiver

OURS = "slurm-operator: "
MAIN = ConnectionKey("Controller", "slurm", "main")
OTHER = ConnectionKey("Controller", "slurm", "other")
FAR = ConnectionKey("Cluster", "slurm", "far")


def target(server: HostileSlurmrestd, token: str = "a-token") -> ConnectionTarget:  # noqa: S107 - it opens nothing
    source = FixedToken(token)
    return ConnectionTarget(server.url, source.fingerprint, source)


@asynccontextmanager
async def opened(stats: RequestStats | None = None) -> AsyncIterator[Connections]:
    connections = Connections(reason_prefix=OURS, observe=stats.observe if stats else None)
    try:
        yield connections
    finally:
        await connections.close()


class Heard:
    """What a subscriber heard."""

    def __init__(self, connections: Connections) -> None:
        self.updates: list[tuple[ConnectionKey, ViewUpdate]] = []
        connections.subscribe(lambda key, update: self.updates.append((key, update)))

    def nodes(self, key: ConnectionKey) -> set[str]:
        """Return the nodes that changed, as one key was told."""
        return {change.name for told, update in self.updates if told == key for change in update.changes}


@pytest.fixture
def server(hostile: HostileSlurmrestd) -> HostileSlurmrestd:
    """Hand out the server with two nodes."""
    hostile.add_nodes("n[0-1]")
    return hostile


async def test_a_connection_is_made_once(server: HostileSlurmrestd) -> None:
    """The same target returns the same connection, from however many callers; its view fills by itself."""
    async with opened() as connections:
        heard = Heard(connections)

        async def ask() -> object:
            return connections.set(MAIN, target(server))

        found = {*await asyncio.gather(*(ask() for _ in range(10)))}
        assert found == {connections.get(MAIN)}
        await eventually(lambda: heard.nodes(MAIN) == {"n0", "n1"}, "the view is published")
        assert [key for key, _ in connections.items()] == [MAIN]
        assert server.connections <= 2
        assert connections.get(OTHER) is None


async def test_what_is_replaced_is_silent_and_closed(server: HostileSlurmrestd) -> None:
    """Another target makes another connection; the old one publishes nothing more and answers Unavailable."""
    async with opened() as connections, HostileSlurmrestd() as elsewhere:
        elsewhere.add_nodes("m[0-2]")
        heard = Heard(connections)
        first = connections.set(MAIN, target(server))
        await eventually(lambda: heard.nodes(MAIN) == {"n0", "n1"}, "the first publishes")
        heard.updates.clear()
        second = connections.set(MAIN, target(elsewhere))
        first.watch.wake()
        assert connections.get(MAIN) is second is not first
        await eventually(lambda: heard.nodes(MAIN), "the second publishes")
        assert heard.nodes(MAIN) == {"m0", "m1", "m2"}
        with pytest.raises(Unavailable):
            await first.rest.nodes()
        third = connections.set(MAIN, target(elsewhere, "another-token"))
        assert third is not second


async def test_nobody_waits_for_the_view_of_a_connection_that_was_replaced(
    server: HostileSlurmrestd,
) -> None:
    """Who waits for a list through it, or begins to, hears at once that it is closed."""
    async with opened() as connections, HostileSlurmrestd() as other:
        first = connections.set(MAIN, target(server))
        await eventually(lambda: first.view.nodes, "a view")
        server.fault = Fault.HANG
        asked = len(server.log)
        now = asyncio.get_running_loop().time()
        waiting = asyncio.create_task(first.watch.refreshed(now, now + 3600.0))
        await eventually(lambda: len(server.log) > asked, "the list is asked for")
        connections.set(MAIN, target(other))
        with pytest.raises(Unavailable, match="closed"):
            await waiting
        with pytest.raises(Unavailable, match="closed"):
            await first.watch.refreshed(-1.0, now + 3600.0)


async def test_an_answer_that_comes_late_is_not_published(server: HostileSlurmrestd) -> None:
    """A connection that is removed in the middle of a request ends it and publishes nothing."""
    async with opened() as connections:
        heard = Heard(connections)
        server.fault = Fault.HANG
        connections.set(MAIN, target(server))
        await eventually(lambda: server.log, "a request is under way")
        assert connections.remove(MAIN)
        await connections.close()
        server.fault = None
        assert heard.updates == []
        assert connections.get(MAIN) is None
        assert not connections.remove(MAIN)


async def test_no_task_is_left(server: HostileSlurmrestd) -> None:
    """After close there is no task and no open connection, whatever was going on."""
    before = asyncio.all_tasks()
    async with opened() as connections:
        for number in range(5):
            connections.set(MAIN, target(server, f"token-{number}"))
            connections.set(OTHER, target(server, f"token-{number}"))
            await asyncio.sleep(0)
        found = connections.get(MAIN)
        assert found is not None
        writing = asyncio.create_task(found.writer.drain("n0", "test"))
        await eventually(lambda: server.log, "requests are under way")
    await writing
    await eventually(lambda: not server._links, "no connection is left open")
    left = {task for task in asyncio.all_tasks() - before if "serve" not in repr(task.get_coro())}
    assert left == set()


async def test_a_link_shares_one_connection(server: HostileSlurmrestd) -> None:
    """A linked key uses the other's connection, hears what it hears, and is polled no second time."""
    async with opened() as connections:
        heard = Heard(connections)
        far = connections.set(FAR, target(server))
        await eventually(lambda: heard.nodes(FAR) == {"n0", "n1"}, "the Cluster's own connection")
        assert connections.link(MAIN, FAR) is far
        assert (connections.get(MAIN), connections.linked(MAIN)) == (far, FAR)
        assert heard.nodes(MAIN) == {"n0", "n1"}, "the view that is there is news to who comes later"
        first = next(update for key, update in heard.updates if key == MAIN)
        assert first.previous is EMPTY
        heard.updates.clear()
        assert connections.link(MAIN, FAR) is far
        assert heard.updates == [], "the second time it is no news"
        server.nodes.change("n1", state=["MIXED"])
        far.watch.wake()
        await eventually(lambda: "n1" in heard.nodes(MAIN) & heard.nodes(FAR), "both hear of it")
        assert [key for key, _ in connections.items()] == [FAR]


async def test_a_link_follows_what_it_leads_to(server: HostileSlurmrestd) -> None:
    """A link holds before there is a connection, when it is replaced, and when it is gone."""
    async with opened() as connections:
        heard = Heard(connections)
        assert connections.link(MAIN, FAR) is None
        first = connections.set(FAR, target(server))
        assert connections.get(MAIN) is first
        second = connections.set(FAR, target(server, "another-token"))
        assert connections.get(MAIN) is second
        await eventually(lambda: heard.nodes(MAIN) == {"n0", "n1"}, "it hears of the new one")
        connections.remove(FAR)
        assert connections.get(MAIN) is None
        own = connections.set(MAIN, target(server))
        assert (connections.get(MAIN), connections.linked(MAIN)) == (own, None)
        connections.link(MAIN, FAR)
        assert connections.get(MAIN) is None, "its own connection is given up for the link"
        assert connections.remove(MAIN)
        assert connections.linked(MAIN) is None


async def test_a_link_to_a_link_is_refused() -> None:
    """A link leads to a connection, never to another link or to itself."""
    async with opened() as connections:
        connections.link(MAIN, FAR)
        for wrong in (MAIN, OTHER):
            with pytest.raises(ValueError, match="cannot be linked"):
                connections.link(OTHER, wrong)


async def test_a_receiver_that_fails_harms_nobody(server: HostileSlurmrestd) -> None:
    """A defect in one receiver keeps the news from no other."""
    async with opened() as connections:

        def broken(key: ConnectionKey, update: ViewUpdate) -> None:
            raise RuntimeError(f"{key} {update}")

        receiver: Receiver = broken
        connections.subscribe(receiver)
        heard = Heard(connections)
        connections.set(MAIN, target(server))
        await eventually(lambda: heard.nodes(MAIN) == {"n0", "n1"}, "the other one hears")


async def test_the_start_of_a_failure_is_remembered(server: HostileSlurmrestd) -> None:
    """`failing_since` is the first failure of a row, and gone with the first success."""
    async with opened() as connections:
        found = connections.set(MAIN, target(server))
        await eventually(lambda: found.view.listed_at is not None, "it works")
        assert found.failing_since is None
        server.fault = Fault.BAD_GATEWAY
        found.watch.wake()
        await eventually(lambda: found.failing_since is not None, "it fails")
        since = found.failing_since
        server.fault = Fault.TOKEN_REFUSED
        seen = len(server.log)
        found.watch.wake()
        await eventually(lambda: len(server.log) > seen and found.view.failure, "it fails in another way")
        assert found.failing_since == since
        server.fault = None
        found.watch.wake()
        await eventually(lambda: found.failing_since is None, "it works again")


async def test_the_watch_does_not_inherit_the_callers_marks(server: HostileSlurmrestd) -> None:
    """Log lines of a watch carry its cluster, not the reconcile that happened to make it."""
    async with opened() as connections:
        marks: list[dict[str, object]] = []
        connections.subscribe(lambda *_: marks.append(get_contextvars()))
        bind_contextvars(reconcile_id="of-the-caller")
        try:
            connections.set(MAIN, target(server))
            await eventually(lambda: marks, "an update")
        finally:
            clear_contextvars()
        assert marks[0] == {"cluster": "slurm/main"}


# ---------------------------------------------------------------------------------------------------- metrics
def samples(collector: SlurmCollector, name: str, **labels: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a name that have some labels, by the values of the others."""
    found = {}
    for family in collector.collect():
        for sample in family.samples:
            if sample.name == f"slurm_operator_slurm_{name}" and labels.items() <= sample.labels.items():
                rest = tuple(value for key, value in sample.labels.items() if key not in labels)
                found[rest] = sample.value
    return found


async def test_metrics_of_a_connection(server: HostileSlurmrestd) -> None:
    """A scrape shows nodes, flags, jobs, ages and requests of a cluster under its label."""
    server.nodes.change("n1", state=["MIXED", "DRAIN"], reason=f"{OURS}scale-in")
    server.jobs[7] = job(7, "n1")
    stats = RequestStats()
    async with opened(stats) as connections:
        collector = SlurmCollector(connections, stats, reason_prefix=OURS)
        found = connections.set(MAIN, target(server))
        assert samples(collector, "up") == {("slurm/main",): 0.0}
        await eventually(lambda: found.view.jobs_listed_at is not None, "nodes and jobs are known")
        mine = {"cluster": "slurm/main"}
        assert samples(collector, "up") == {("slurm/main",): 1.0}
        assert {key for key, value in samples(collector, "nodes", **mine).items() if value} == {
            ("idle",),
            ("mixed",),
        }
        assert samples(collector, "node_flags", **mine)["drain",] == 1.0
        assert sum(samples(collector, "jobs", state="running").values()) == 1.0
        assert samples(collector, "view_age_seconds")["slurm/main",] >= 0.0
        assert samples(collector, "requests_total", **mine)["nodes", "ok"] >= 1.0
        counted = samples(collector, "request_duration_seconds_count", **mine)["nodes",]
        assert counted == sum(samples(collector, "requests_total", **mine, operation="nodes").values())
        server.fault = Fault.BAD_GATEWAY
        found.watch.wake()
        await eventually(lambda: found.view.failure, "it fails")
        assert samples(collector, "requests_total", **mine)["nodes", "SlurmctldDown"] >= 1.0
        assert samples(collector, "up") == {("slurm/main",): 0.0}
        assert samples(collector, "nodes", **mine)["idle",] == 1.0, "the last known stays"


async def test_nothing_is_left_of_a_removed_connection(server: HostileSlurmrestd) -> None:
    """No series has the label of a connection that is gone, not even from a request that ends later."""
    stats = RequestStats()
    async with opened(stats) as connections:
        collector = SlurmCollector(connections, stats, reason_prefix=OURS)
        found = connections.set(MAIN, target(server))
        await eventually(lambda: found.view.listed_at is not None, "it works")
        server.fault = Fault.HANG
        found.watch.wake()
        seen = len(server.log)
        await eventually(lambda: len(server.log) > seen, "a request is under way")
        connections.remove(MAIN)
        await connections.close()
        assert [family.samples for family in collector.collect() if family.samples] == []
        assert stats.of(MAIN) == {}


async def test_the_series_of_many_clusters_come_in_pieces(server: HostileSlurmrestd) -> None:
    """A scrape never computes much at once: what is long for each cluster comes for one at a time."""
    stats = RequestStats()
    async with opened(stats) as connections:
        collector = SlurmCollector(connections, stats, reason_prefix=OURS)
        keys = [ConnectionKey("Controller", "slurm", f"c{number}") for number in range(5)]
        found = [connections.set(key, target(server)) for key in keys]
        await eventually(lambda: all(one.view.listed_at is not None for one in found), "all are known")
        names: list[str] = []
        for family in collector.collect():
            names.append(family.name)
            if names[-1].endswith(("_up", "_requests", "_duration_seconds")):
                assert len({sample.labels["cluster"] for sample in family.samples}) <= 1
        runs = [name for number, name in enumerate(names) if names[number - 1 : number] != [name]]
        assert len(runs) == len({*runs}), "the pieces of a family are together"
        assert {name: names.count(name) for name in runs if names.count(name) > 1} == {
            f"slurm_operator_slurm_{name}": 6 for name in ("up", "requests", "request_duration_seconds")
        }


async def test_one_label_is_one_cluster(server: HostileSlurmrestd) -> None:
    """A Cluster and a Controller of one name never give two samples of the same series."""
    stats = RequestStats()
    async with opened(stats) as connections:
        collector = SlurmCollector(connections, stats, reason_prefix=OURS)
        connections.set(MAIN, target(server))
        connections.set(ConnectionKey("Cluster", "slurm", "main"), target(server))
        ups = [sample for family in collector.collect() for sample in family.samples if "up" in sample.name]
        assert len(ups) == 1
