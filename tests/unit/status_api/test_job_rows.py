"""Rows of jobs: order, filters, limits and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.slurm.model.jobs import NO_JOBS, NodeJobs, UnfinishedJobs
from slurm_operator.slurm.model.records import JobDetail, NoVal
from slurm_operator.slurm.model.steps import at_once
from slurm_operator.slurm.rest.connections import ConnectionKey
from slurm_operator.status_api.job_rows import JobFilter, choosing, job_row, ordering
from tests.support.slurm.views import number

if TYPE_CHECKING:
    from slurm_operator.status_rows import ClusterJobs

KEY = ConnectionKey("Controller", "slurm", "main")


def job(job_id: int, state: str = "RUNNING", **fields: Any) -> JobDetail:
    return JobDetail(job_id=job_id, job_state=(state,), **fields)


def listed(*jobs: JobDetail, limit: int = 1000, on: UnfinishedJobs = NO_JOBS, **wanted: Any) -> ClusterJobs:
    return at_once(choosing(KEY, at_once(ordering(jobs)), JobFilter(**wanted), on, {}, limit))


def test_running_jobs_come_first_and_counts_are_complete() -> None:
    """However few rows are shown, the counts are those of all jobs."""
    found = listed(job(3, "PENDING"), job(2, "COMPLETED"), job(9), job(1), limit=2)
    assert [row.id for row in found.jobs] == [1, 9]
    assert (found.total, found.matched, found.shown) == (4, 4, 2)
    assert found.by_state == {"COMPLETED": 1, "PENDING": 1, "RUNNING": 2}


def test_filters_apply_before_the_limit() -> None:
    """A job that is asked for is found among any number of others."""
    many = [job(number, partition="a,b", user_name="u") for number in range(1, 3001)]
    found = listed(*many, job(4000, "PENDING", user_name="alice", partition="b"), id=4000)
    assert [row.id for row in found.jobs] == [4000]
    assert (found.total, found.matched) == (3001, 1)
    assert listed(*many, user="nobody-here").matched == 0
    assert listed(*many, partition="b").matched == 3000
    assert listed(*many, partition="c").matched == 0
    on = UnfinishedJobs({"n1": NodeJobs((5, 6), 0.0)})
    assert [listed(*many, on=on, node=name).matched for name in ("n1", "n2")] == [2, 0]
    assert listed(job(1), job(2, "PENDING"), state="PENDING").matched == 1


def test_the_tasks_of_an_array_are_found_by_its_number() -> None:
    """`id` of an array finds all of its tasks."""
    tasks = [job(number, array_job_id=_set(10), array_task_id=_set(number - 10)) for number in (10, 11)]
    found = listed(*tasks, job(12), id=10)
    assert [(row.id, row.array_job_id, row.array_task) for row in found.jobs] == [
        (10, 10, "0"),
        (11, 10, "1"),
    ]


def test_numbers_that_slurm_does_not_set_are_none() -> None:
    """An unlimited job has no limit and no end, and a job without a start none either."""
    row = job_row(job(1, time_limit=NoVal(set=True, infinite=True), start_time=NoVal(set=True)), ("p-0",))
    assert (row.time_limit_minutes, row.end_time, row.start_time, row.cpus) == (None, None, None, 0)
    assert row.workers == ("p-0",)
    assert job_row(job(1, end_time=number(1e300), cpus=number(4)), ()).end_time is None


def test_long_texts_are_cut() -> None:
    """A user of Slurm may write 128 KiB into a dependency, and a thousand jobs must fit into a reply."""
    long = "x" * 200_000
    texts = ("name", "user_name", "account", "partition", "state_reason", "nodes", "features", "resv_name")
    given: dict[str, Any] = dict.fromkeys((*texts, "dependency", "array_task_string"), long)
    row = job_row(job(1, array_job_id=_set(1), **given), ())
    assert len(msgspec.json.encode(row)) < 20_000
    assert row.dependency == f"{'x' * 1023}…"
    assert job_row(job(1, name="x" * 1024), ()).name == "x" * 1024
    assert len(msgspec.json.encode(job_row(JobDetail(job_id=1, job_state=(long,) * 50), ()))) < 20_000


def _set(value: int) -> NoVal:
    return NoVal(set=True, number=value)
