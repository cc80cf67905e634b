"""The details of jobs, asked of Slurm when a client asks, and kept for five seconds.

They come through clients of their own, with a circuit breaker, slots, deadlines and memory of their own: a
slurmrestd that is slow or hostile here delays no poll of the operator and takes none of the memory that the
operator's own lists need. At most one request per Slurm cluster is under way, and two in all. Rows are chosen
in short steps, for one client at a time, since a list of all jobs is long and many clients may ask for it.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from slurm_operator.kube.process.loop_turns import Breather
from slurm_operator.slurm.errors import SlurmError, WrongCluster
from slurm_operator.slurm.model.steps import step
from slurm_operator.slurm.rest.client import RestClient, RestTiming
from slurm_operator.slurm.rest.reply_memory import ReplyMemory
from slurm_operator.status_api.moments import as_time, moment
from slurm_operator.status_rows import ClusterJobs, JobRow

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Mapping, Sequence

    from slurm_operator.slurm.model.jobs import UnfinishedJobs
    from slurm_operator.slurm.model.records import JobDetail, NoVal
    from slurm_operator.slurm.rest.connections import Connection, ConnectionKey, Connections, ConnectionTarget

T = TypeVar("T")

MOST_ROWS: Final = 1000
KEPT_SECONDS: Final = 5.0
DEADLINE_SECONDS: Final = 10.0
# A client that has not been used for so long is closed.
_IDLE_SECONDS: Final = 60.0
_AT_ONCE: Final = 2
# The replies of all clusters together; two thirds of it are about 13,000 jobs.
_MEMORY: Final = 96 * 2**20
_ORDER: Final = {"RUNNING": 0, "COMPLETING": 1, "SUSPENDED": 2, "PENDING": 3}
_LAST: Final = len(_ORDER)
_MOST_PODS: Final = 20
# Users of Slurm may write much longer ones, and a reply has a thousand jobs.
_LONGEST_TEXT: Final = 1024
_MOST_WORDS: Final = 8
# So many jobs take about a millisecond.
_STEP: Final = 500


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a client wants; what is None or empty does not matter."""

    id: int | None = None
    state: str = ""
    user: str = ""
    partition: str = ""
    node: str = ""
    """A Slurm node; whether a job is on it stands in the operator's own list of jobs."""

    def wants(self, job: JobDetail, on_node: Container[int]) -> bool:
        """Return whether a job is wanted; `on_node` has the jobs on the node that was asked for."""
        return (
            (self.id is None or self.id in (job.job_id, _whole(job.array_job_id)))
            and (not self.state or self.state in job.job_state)
            and (not self.user or self.user == job.user_name)
            and (not self.partition or self.partition in job.partition.split(","))
            and (not self.node or job.job_id in on_node)
        )


@dataclass(frozen=True, slots=True)
class JobListing:
    """Jobs in the order in which they are shown, with their counts by state."""

    jobs: tuple[JobDetail, ...] = ()
    by_state: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Fetched:
    """The jobs of a cluster in the order in which they are shown, or why there are none."""

    listing: JobListing
    error: str
    at: datetime
    until: float


@dataclass(slots=True)
class _Source:
    """The client of one Slurm cluster."""

    target: ConnectionTarget
    rest: RestClient
    used: float
    fetched: _Fetched | None = None
    fetching: asyncio.Task[_Fetched] | None = None


class JobDetailCache:
    """Fetches job details; to be used from one event loop, and closed at the end."""

    def __init__(
        self, connections: Connections, timing: RestTiming | None = None, kept: float = KEPT_SECONDS
    ) -> None:
        self._connections = connections
        self._kept = kept
        self._timing = timing or RestTiming(request=DEADLINE_SECONDS, write=DEADLINE_SECONDS)
        self._sources: dict[ConnectionKey, _Source] = {}
        self._room = ReplyMemory(_MEMORY)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._choosing = asyncio.Lock()

    async def rows(
        self, key: ConnectionKey, wanted: JobFilter, pods: Mapping[str, str], limit: int
    ) -> ClusterJobs:
        """Return the jobs of a Slurm cluster; `pods` has the pod of each worker, by its Slurm node."""
        await self._tidy()
        connection = self._connections.get(key)
        if connection is None:
            return _without(key, "There is no connection to Slurm.")
        if isinstance(connection.view.failure, WrongCluster):
            return _without(key, str(connection.view.failure))
        if wanted.node and connection.view.jobs_listed_at is None:
            return _without(key, "It is not known yet which jobs are on which node.")
        fetched = await self._fetch(key, connection)
        unfinished = connection.view.jobs
        found = await self._in_steps(choosing(key, fetched.listing, wanted, unfinished, pods, limit))
        return msgspec.structs.replace(found, error=fetched.error, at=moment(fetched.at))

    async def _in_steps(self, computation: Generator[None, None, T]) -> T:
        """Return what a computation returns; between its steps the event loop has its turns."""
        async with self._choosing:
            breathe, done, value = Breather(), False, None
            while not done:
                done, value = step(computation)
                await breathe()
        return value  # type: ignore[return-value]

    async def close(self) -> None:
        """Close every client."""
        for source in [*self._sources.values()]:
            await _hang_up(source)
        self._sources.clear()

    async def _fetch(self, key: ConnectionKey, connection: Connection) -> _Fetched:
        now = _now()
        source = self._sources.get(key)
        if source is None or source.target != connection.target:
            if source is not None:
                # A request that is under way ends with an error, for which its clients wait.
                await source.rest.close()
            source = self._sources[key] = self._source(key, connection)
        source.used = now
        if source.fetched is not None and source.fetched.until > now:
            return source.fetched
        if source.fetching is None:
            source.fetching = asyncio.create_task(self._ask(source), name=f"job details {key}")
        # Another client may wait for the same reply, so it goes on if this one leaves.
        return await asyncio.shield(source.fetching)

    def _source(self, key: ConnectionKey, connection: Connection) -> _Source:
        target = connection.target
        rest = RestClient(
            target.url,
            target.token,
            ca=target.ca,
            timing=self._timing,
            concurrency=1,
            namespace=key.namespace,
            room=self._room,
        )
        return _Source(target, rest, _now())

    async def _ask(self, source: _Source) -> _Fetched:
        listing = JobListing()
        error = ""
        try:
            async with asyncio.timeout(2 * self._timing.request), self._slots:
                jobs = await source.rest.job_details()
            listing = await self._in_steps(ordering(jobs))
        except SlurmError as failure:
            error = str(failure)
        except TimeoutError:
            error = "Too many requests for jobs are under way."
        fetched = source.fetched = _Fetched(listing, error, datetime.now(UTC), _now() + self._kept)
        source.fetching = None
        asyncio.get_running_loop().call_later(self._kept, _forget, source, fetched)
        return fetched

    async def _tidy(self) -> None:
        horizon = _now() - _IDLE_SECONDS
        for key, source in [*self._sources.items()]:
            if source.used < horizon and source.fetching is None:
                del self._sources[key]
                await _hang_up(source)


def _forget(source: _Source, fetched: _Fetched) -> None:
    # Thousands of jobs take megabytes.
    if source.fetched is fetched:
        source.fetched = None


async def _hang_up(source: _Source) -> None:
    if source.fetching is not None:
        source.fetching.cancel()
    await source.rest.close()


def _without(key: ConnectionKey, error: str) -> ClusterJobs:
    return ClusterJobs(namespace=key.namespace, cluster=key.name, at=None, error=error)


def ordering(jobs: Sequence[JobDetail]) -> Generator[None, None, JobListing]:
    """Put jobs in the order in which they are shown, and count them, in steps."""
    counts: Counter[str] = Counter()
    ranked = []
    for number, job in enumerate(jobs):
        counts[job.job_state[0] if job.job_state else "UNKNOWN"] += 1
        ranked.append((*_rank(job), number))
        if not number % _STEP:
            yield
    ranked.sort()
    yield
    return JobListing(tuple(jobs[number] for *_, number in ranked), dict(sorted(counts.items())))


def choosing(
    key: ConnectionKey,
    listing: JobListing,
    wanted: JobFilter,
    unfinished: UnfinishedJobs,
    pods: Mapping[str, str],
    limit: int,
) -> Generator[None, None, ClusterJobs]:
    """Choose the jobs that are wanted, at most so many, with counts of all, in steps."""
    on_node = unfinished.by_node.get(wanted.node)
    numbers = frozenset() if on_node is None else frozenset(on_node.jobs)
    matched = []
    for number, job in enumerate(listing.jobs):
        if wanted.wants(job, numbers):
            matched.append(job)
        if not number % _STEP:
            yield
    shown = matched[: max(0, limit)]
    workers: dict[int, list[str]] = {job.job_id: [] for job in shown}
    for number, (node, pod) in enumerate(pods.items()):
        found = unfinished.by_node.get(node)
        for job_id in () if found is None else found.jobs:
            if job_id in workers and len(workers[job_id]) < _MOST_PODS:
                workers[job_id].append(pod)
        if not number % _STEP:
            yield
    rows = []
    for number, job in enumerate(shown):
        rows.append(job_row(job, workers[job.job_id]))
        if not number % _STEP:
            yield
    return ClusterJobs(
        namespace=key.namespace,
        cluster=key.name,
        total=len(listing.jobs),
        matched=len(matched),
        shown=len(shown),
        by_state=dict(listing.by_state),
        jobs=tuple(rows),
    )


def job_row(job: JobDetail, workers: Sequence[str]) -> JobRow:
    """Return the row of a job."""
    limit = job.time_limit.value
    task = job.array_task_string or (
        "" if job.array_task_id.value is None else str(_whole(job.array_task_id))
    )
    return JobRow(
        id=job.job_id,
        array_job_id=_whole(job.array_job_id),
        array_task=_cut(task) if _whole(job.array_job_id) else "",
        name=_cut(job.name),
        user=_cut(job.user_name),
        account=_cut(job.account),
        partition=_cut(job.partition),
        state=tuple(_cut(word) for word in job.job_state[:_MOST_WORDS]),
        state_reason=_cut(job.state_reason),
        nodes=_cut(job.nodes),
        node_count=_whole(job.node_count),
        cpus=_whole(job.cpus),
        features=_cut(job.features),
        reservation=_cut(job.resv_name),
        dependency=_cut(job.dependency),
        priority=_whole(job.priority),
        submit_time=_time(job.submit_time),
        start_time=_time(job.start_time),
        end_time=_time(job.end_time),
        time_limit_minutes=None if limit is None or not math.isfinite(limit) else int(limit),
        workers=tuple(workers),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def _rank(job: JobDetail) -> tuple[int, int]:
    return min((_ORDER.get(word, _LAST) for word in job.job_state), default=_LAST), job.job_id


def _whole(number: NoVal) -> int:
    value = number.value
    return int(value) if value is not None and math.isfinite(value) else 0


def _time(number: NoVal) -> datetime | None:
    value = number.value
    return as_time(value) if value is not None and math.isfinite(value) else None


def _now() -> float:
    return asyncio.get_running_loop().time()
