"""The details of jobs, asked of Slurm when a client asks, and kept for five seconds.

They come through clients of their own, with a circuit breaker, slots, deadlines and memory of their own: a
slurmrestd that is slow or hostile here delays no poll of the operator and takes none of the memory that the
operator's own lists need. At most one request per Slurm cluster is under way, and two in all.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurm_operator.slurm.errors import SlurmError, WrongCluster
from slurm_operator.slurm.rest.client import RestClient, RestTiming
from slurm_operator.slurm.rest.reply_memory import ReplyMemory
from slurm_operator.status_api.moments import as_time, moment
from slurm_operator.status_rows import ClusterJobs, JobRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_operator.slurm.model.records import JobDetail, NoVal
    from slurm_operator.slurm.rest.connections import Connection, ConnectionKey, Connections, ConnectionTarget

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


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a client wants; what is None or empty does not matter."""

    id: int | None = None
    state: str = ""
    user: str = ""
    partition: str = ""
    on_node: frozenset[int] | None = None
    """The jobs on the node that was asked for."""

    def wants(self, job: JobDetail) -> bool:
        """Return whether a job is wanted."""
        return (
            (self.id is None or self.id in (job.job_id, _whole(job.array_job_id)))
            and (not self.state or self.state in job.job_state)
            and (not self.user or self.user == job.user_name)
            and (not self.partition or self.partition in job.partition.split(","))
            and (self.on_node is None or job.job_id in self.on_node)
        )


@dataclass(slots=True)
class _Fetched:
    """The jobs of a cluster, or why there are none."""

    jobs: tuple[JobDetail, ...]
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

    async def rows(
        self, key: ConnectionKey, wanted: JobFilter, workers: Mapping[int, Sequence[str]], limit: int
    ) -> ClusterJobs:
        """Return the jobs of a Slurm cluster; `workers` has the pods of each job, by its number."""
        await self._tidy()
        connection = self._connections.get(key)
        if connection is None:
            return _without(key, "There is no connection to Slurm.")
        if isinstance(connection.view.failure, WrongCluster):
            return _without(key, str(connection.view.failure))
        fetched = await self._fetch(key, connection)
        return cluster_jobs(key, fetched.jobs, fetched.error, moment(fetched.at), wanted, workers, limit)

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
        jobs: tuple[JobDetail, ...] = ()
        error = ""
        try:
            async with asyncio.timeout(2 * self._timing.request), self._slots:
                jobs = await source.rest.job_details()
        except SlurmError as failure:
            error = str(failure)
        except TimeoutError:
            error = "Too many requests for jobs are under way."
        fetched = source.fetched = _Fetched(jobs, error, datetime.now(UTC), _now() + self._kept)
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


def cluster_jobs(
    key: ConnectionKey,
    jobs: Iterable[JobDetail],
    error: str,
    at: datetime | None,
    wanted: JobFilter,
    workers: Mapping[int, Sequence[str]],
    limit: int,
) -> ClusterJobs:
    """Return the jobs that are wanted, at most so many, with counts of all."""
    counts: Counter[str] = Counter()
    matched = []
    for job in jobs:
        counts[job.job_state[0] if job.job_state else "UNKNOWN"] += 1
        if wanted.wants(job):
            matched.append(job)
    matched.sort(key=_rank)
    shown = matched[: max(0, limit)]
    return ClusterJobs(
        namespace=key.namespace,
        cluster=key.name,
        at=at,
        error=error,
        total=counts.total(),
        matched=len(matched),
        shown=len(shown),
        by_state=dict(sorted(counts.items())),
        jobs=tuple(job_row(job, workers.get(job.job_id, ())) for job in shown),
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
        array_task=task if _whole(job.array_job_id) else "",
        name=job.name,
        user=job.user_name,
        account=job.account,
        partition=job.partition,
        state=job.job_state,
        state_reason=job.state_reason,
        nodes=job.nodes,
        node_count=_whole(job.node_count),
        cpus=_whole(job.cpus),
        features=job.features,
        reservation=job.resv_name,
        dependency=job.dependency,
        priority=_whole(job.priority),
        submit_time=_time(job.submit_time),
        start_time=_time(job.start_time),
        end_time=_time(job.end_time),
        time_limit_minutes=None if limit is None or not math.isfinite(limit) else int(limit),
        workers=tuple(workers),
    )


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
