"""A Slurm cluster in memory for a watch on virtual time: what it says, how it fails, how long it takes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from slurm_operator.slurm.model.records import (
    Diag,
    JobList,
    JobState,
    JobStateList,
    NodeList,
    Ping,
    ReservationList,
)
from slurm_operator.slurm.watch.watcher import SlurmWatch, WatchTiming
from tests.support.slurm.views import number

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from slurm_operator.slurm.decide.node_list_trust import TrustRules
    from slurm_operator.slurm.model.records import Job, Node, Reservation
    from slurm_operator.slurm.model.view import ViewUpdate

EPOCH = 1_700_000_000


def now() -> float:
    return asyncio.get_running_loop().time()


def is_drained(watch: SlurmWatch, name: str) -> bool:
    return watch.view.drained(name, now()).drained


def steps(times: list[float]) -> list[float]:
    """Return the times between moments."""
    return [round(later - earlier, 3) for earlier, later in pairwise(times)]


class Asked(NamedTuple):
    """One request."""

    what: str
    at: float
    since: int | None


class Cluster:
    """What a watch asks; change the dictionaries and call `touch`."""

    release = "26.05.5"
    namespace = ""

    def __init__(self, *nodes: Node) -> None:
        self.name = self.jobs_name = ""
        self.entries = {node.name: node for node in nodes}
        self.running: list[Job] = []
        self.states: dict[int, tuple[str, ...] | None] = {}
        """What the states say of a job instead of what the list of jobs says; None leaves it out."""
        self.states_name = ""
        self.booked: list[Reservation] = []
        self.controllers: tuple[Ping, ...] = (Ping(hostname="box", responding=True, primary=True),)
        self.clock_offset = 0
        self.uptime = 86_400.0
        self.changed = {"nodes": EPOCH, "jobs": EPOCH, "reservations": EPOCH}
        self.failures: dict[str, Exception] = {}
        self.seconds = dict.fromkeys(("nodes", "jobs", "job_states", "reservations", "ping", "diag"), 0.0)
        self.refuses_changes: Exception | None = None
        self.refuses_at_once: Exception | None = None
        self.asked: list[Asked] = []

    @property
    def clock(self) -> int:
        return EPOCH + 10 + self.clock_offset + int(now())

    def put(self, *nodes: Node) -> None:
        """Add or change nodes."""
        self.entries |= {node.name: node for node in nodes}
        self.touch("nodes")

    def drop(self, *names: str) -> None:
        for name in names:
            del self.entries[name]
        self.touch("nodes")

    def run(self, *jobs: Job) -> None:
        """Let these be the jobs."""
        self.running = [*jobs]
        self.touch("jobs")

    def touch(self, what: str) -> None:
        self.changed[what] = self.clock

    def times(self, what: str, since: float = 0.0) -> list[float]:
        return [asked.at for asked in self.asked if asked.what == what and asked.at >= since]

    def count(self, what: str) -> int:
        return len(self.times(what))

    async def _answer(self, what: str, since: int | None = None) -> bool:
        """Take the time it takes, fail if told to, and return whether there is something new to say."""
        if self.refuses_at_once is not None:
            raise self.refuses_at_once
        self.asked.append(Asked(what, now(), since))
        await asyncio.sleep(self.seconds[what])
        if what in self.failures:
            raise self.failures[what]
        news = since is None or since - 1 < self.changed[what]
        if news and since is not None and self.refuses_changes is not None:
            raise self.refuses_changes
        return news

    async def nodes(self, since: int | None = None) -> NodeList | None:
        moment, shown = self.clock, (*self.entries.values(),)
        found = await self._answer("nodes", since)
        return NodeList(nodes=shown, last_update=moment, cluster=self.name) if found else None

    async def jobs(self, since: int | None = None) -> JobList | None:
        moment, shown = self.clock, (*self.running,)
        found = await self._answer("jobs", since)
        return JobList(jobs=shown, last_update=moment, cluster=self.jobs_name) if found else None

    async def job_states(self, numbers: Collection[int]) -> JobStateList:
        states = {job.job_id: job.job_state for job in self.running} | self.states
        shown = [
            JobState(job_id=str(number), state=states[number] or ())
            for number in numbers
            if states.get(number) is not None
        ]
        await self._answer("job_states")
        return JobStateList(
            unfinished=frozenset(one.number for one in shown if one.number and not one.finished),
            ended=frozenset(one.number for one in shown if one.number and one.ended),
            cluster=self.states_name,
        )

    async def reservations(self, since: int | None = None) -> ReservationList | None:
        moment, shown = self.clock, (*self.booked,)
        found = await self._answer("reservations", since)
        return ReservationList(reservations=shown, last_update=moment) if found else None

    async def ping(self) -> tuple[Ping, ...]:
        shown = self.controllers
        await self._answer("ping")
        return shown

    async def diag(self) -> Diag:
        await self._answer("diag")
        clock = EPOCH + self.uptime + now()
        return Diag(req_time=number(clock), req_time_start=number(EPOCH))


class Watched:
    """A running watch and what it told."""

    def __init__(self, watch: SlurmWatch) -> None:
        self.watch = watch
        self.updates: list[ViewUpdate] = []
        watch.subscribe(self.updates.append)

    async def until(self, condition: Callable[[], bool], limit: float = 600.0) -> None:
        """Let virtual time pass until something is true."""
        deadline = now() + limit
        while not condition():
            assert now() < deadline, "it did not happen"
            await asyncio.sleep(0.05)

    async def settle(self) -> None:
        """Let time pass until the watch is at rest, then forget what happened on the way."""
        await self.until(lambda: self.watch.view.complete)
        await asyncio.sleep(30.0)
        self.updates.clear()

    def changed(self) -> list[list[str]]:
        """Return the names in each update."""
        return [[change.name for change in update.changes] for update in self.updates]


@asynccontextmanager
async def watching(
    cluster: Cluster, timing: WatchTiming | None = None, trust: TrustRules | None = None
) -> AsyncIterator[Watched]:
    """Run a watch of a cluster."""
    watched = Watched(SlurmWatch(cluster, timing=timing, trust=trust, name="lab/slurm"))
    task = asyncio.create_task(watched.watch.run())
    try:
        yield watched
    finally:
        assert not task.done(), "a watch never ends by itself"
        task.cancel()
        await asyncio.wait({task})
