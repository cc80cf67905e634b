from __future__ import annotations

from itertools import islice

from faultlab.torture.submissions import NO_STEP, Submission, Window, read_records, submissions, tally

DAY = "2026-11-16T"
WINDOW = [Window("freeze-slurmd", 1794865200.0, 1794865260.0)]
"""From 21:40:00 to 21:41:00 UTC on that day."""


def line(job: str, state: str, code: str = "0:0", start: str = "21:40:10", end: str = "21:40:30") -> str:
    times = (f"{DAY}21:30:00", start and f"{DAY}{start}", f"{DAY}{end}" if end else "Unknown")
    return "|".join((job, "torture-1", state, code, *times, "demo-0"))


def judged(*lines: str, accepted: tuple[str, ...] = ()) -> tuple[int, int, int, list[tuple[str, str]]]:
    found = tally(read_records("\n".join(lines)), accepted, WINDOW)
    return found.completed, found.apart, found.unfinished, [(loss.job, loss.why) for loss in found.lost]


def test_completed_once_is_not_lost() -> None:
    """One record, COMPLETED with code 0, also for each task of an array."""
    assert judged(line("1", "COMPLETED"), line("2_0", "COMPLETED"), line("2_1", "COMPLETED")) == (3, 0, 0, [])


def test_a_requeue_is_a_loss() -> None:
    """A second record of the same job means that it was started again, even if it then completed."""
    assert judged(line("1", "NODE_FAIL"), line("1", "COMPLETED")) == (
        0,
        0,
        0,
        [("1", "ran 2 times: NODE_FAIL on demo-0, then COMPLETED on demo-0")],
    )


def test_killed_cancelled_and_failed_nodes_are_losses() -> None:
    """Whatever is neither COMPLETED nor explained is a loss."""
    found = judged(line("1", "NODE_FAIL"), line("2", "CANCELLED by 0"), line("3", "FAILED", "0:9"))
    assert [job for job, _ in found[3]] == ["1", "2", "3"]


def test_srun_that_fails_counts_apart_only_while_slurmd_is_stopped() -> None:
    """The exit code of the script tells a failed step; outside the window it is a loss."""
    inside = line("1", "FAILED", f"{NO_STEP}:0")
    outside = line("2", "FAILED", f"{NO_STEP}:0", "22:40:10", "22:40:30")
    assert judged(inside, outside) == (0, 1, 0, [("2", f"FAILED with {NO_STEP}:0 on demo-0")])


def test_a_job_without_a_record_is_lost() -> None:
    """What sbatch accepted must be in accounting; an array is there by its tasks."""
    found = judged(line("2_0", "COMPLETED"), accepted=("1", "2"))
    assert found == (1, 0, 0, [("1", "accounting has no record of it")])


def test_unfinished_jobs_are_counted() -> None:
    """A job that runs or waits is neither lost nor completed; jobs of others are left out."""
    other = line("9", "FAILED").replace("torture-1", "other")
    assert judged(line("1", "RUNNING", end=""), line("2", "PENDING", end=""), other) == (0, 0, 2, [])


def test_a_seed_repeats_the_jobs() -> None:
    """All sorts of jobs come, the same ones for the same seed; jobs on two nodes use srun."""
    jobs = [*islice(submissions(1), 200)]
    assert jobs == [*islice(submissions(1), 200)]
    assert {job.nodes for job in jobs} == {1, 2}
    assert {job.requeue for job in jobs} == {True, False}
    assert any(job.array for job in jobs)
    assert all(job.steps for job in jobs if job.nodes > 1)
    assert len({job.name for job in jobs}) == 200


def test_the_command_says_what_the_job_is() -> None:
    """Arrays, requeueing and steps are in the options of sbatch."""
    job = Submission("torture-3", 1.0, 1, 20, requeue=False, steps=True, array=3)
    assert job.command() == [
        "--job-name=torture-3",
        "--nodes=1",
        "--ntasks-per-node=1",
        "--time=15",
        "--no-requeue",
        "--array=0-2",
        "--wrap=srun sleep 20 || exit 77",
    ]
