"""The next step of whatever is blocked."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from slurm_operator.api.reasons import BLOCKING, Reason
from slurm_operator.controllers.nodeset.decide.actions import Blocked, Defer, RemovalCause
from slurm_operator.slurm.model.jobs import UNLIMITED_SECONDS
from slurm_operator.status_api.explaining import blocked, waiting

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize("reason", sorted(BLOCKING))
def test_every_reason_has_a_next_step(reason: Reason) -> None:
    """No reason leaves a user without a sentence, and no placeholder is left in one."""
    row = blocked(Blocked("p-1", "n-1", RemovalCause.SCALE_IN, Defer(reason, "so it is")), None, None)
    assert (row.reason, row.message, row.action) == (reason.value, "so it is", "delete")
    assert row.next.endswith((".", "true."))
    assert "{" not in row.next
    assert waiting(Defer(reason, "so it is")).next


def test_running_jobs_say_until_when() -> None:
    """The latest end of the jobs is named, and a job without a limit as well."""
    worker = Blocked("p-1", "n-1", RemovalCause.UPDATE, Defer(Reason.JOBS_RUNNING, "job 1 is on it"))
    assert "at the latest at 2033-05-18T03:33:20Z" in blocked(worker, 2_000_000_000.0, None).next
    for endless in (math.inf, UNLIMITED_SECONDS + 5e9):
        assert "at least one has no time limit" in blocked(worker, endless, None).next
    assert "scancel -w n-1" in blocked(worker, None, None).next


def test_a_cordoned_worker_is_drained_not_deleted() -> None:
    """Nothing promises that a pod is deleted that is only drained."""
    worker = Blocked("p-1", "n-1", RemovalCause.NODE_CORDON, Defer(Reason.JOBS_RUNNING, "job 1 is on it"))
    assert blocked(worker, None, None).next.startswith("It is drained when")


def test_a_drain_by_a_person_is_an_undrain_that_is_blocked() -> None:
    """What has no cause is an undrain."""
    row = blocked(Blocked("p-1", "n-1", None, Defer(Reason.FOREIGN_DRAIN, "drained by root")), None, NOON)
    assert (row.action, row.cause, row.since) == ("undrain", "", NOON)
    assert "scontrol update nodename=n-1 state=resume" in row.next
