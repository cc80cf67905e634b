"""The conditions `Ready`, `Progressing`, `Degraded` and `Stalled`."""

from __future__ import annotations

import pytest

from slurm_operator.api import RestApi
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.shared.problems import WorkloadProblem
from slurm_operator.controllers.workload.decide.rollout import Phase, Rollout
from slurm_operator.controllers.workload.decide.verdict import conditions, troubles
from slurm_operator.kube.models.meta import ObjectMeta
from slurm_operator.objects.desired import Problem

LIVE = RestApi(metadata=ObjectMeta(name="r", generation=7))
DONE = Rollout(Phase.COMPLETE, "slurmrestd is running", 1, 1)
ROLLING = Rollout(Phase.ROLLING, "0 of 1 pods", 0, 1)
ABSENT = Rollout(Phase.ABSENT, "not running")
STALLED = Rollout(Phase.STALLED, "quota", 0, 1)
ZERO = Rollout(Phase.COMPLETE, "zero", 0, 0)
MISSING = WorkloadProblem(Reason.MISSING_REFERENCE, "Secret 'x' does not exist; create it", "spec.key")
UNREADABLE = WorkloadProblem(Reason.REFERENCE_UNREADABLE, "Forbidden")
FIXED = WorkloadProblem(Reason.IMMUTABLE_FIELD, "cannot shrink", "spec.persistence")
FAILED = WorkloadProblem(Reason.APPLY_FAILED, "Cannot update Service 'x'")


def said(rollout: Rollout | None, *found: WorkloadProblem) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in conditions(LIVE, rollout, found, "slurmrestd")}


@pytest.mark.parametrize(
    ("rollout", "found", "ready", "progressing", "degraded"),
    [
        (DONE, [], ("True", "Available"), ("False", "Complete"), ("False", "AsExpected")),
        (ZERO, [], ("True", "ScaledToZero"), ("False", "Complete"), ("False", "AsExpected")),
        (None, [], ("True", "External"), ("False", "Complete"), ("False", "AsExpected")),
        (ROLLING, [], ("False", "RollingOut"), ("True", "RollingOut"), ("False", "AsExpected")),
        (ABSENT, [], ("False", "NotCreated"), ("True", "RollingOut"), ("False", "AsExpected")),
        (STALLED, [], ("False", "RolloutStalled"), ("False", "Held"), ("True", "RolloutStalled")),
        (DONE, [MISSING], ("False", "MissingReference"), ("False", "Held"), ("True", "MissingReference")),
        (None, [MISSING], ("False", "MissingReference"), ("False", "Held"), ("True", "MissingReference")),
        (DONE, [FAILED, MISSING], ("False", "MissingReference"), ("False", "Held"),
         ("True", "MissingReference")),
        (DONE, [UNREADABLE], ("Unknown", "ReferenceUnreadable"), ("False", "Held"),
         ("True", "ReferenceUnreadable")),
        (DONE, [FIXED], ("True", "Available"), ("False", "Complete"), ("True", "ImmutableField")),
        (ROLLING, [FIXED], ("False", "RollingOut"), ("True", "RollingOut"), ("True", "ImmutableField")),
    ],
)  # fmt: skip
def test_conditions(
    rollout: Rollout | None,
    found: list[WorkloadProblem],
    ready: tuple[str, str],
    progressing: tuple[str, str],
    degraded: tuple[str, str],
) -> None:
    """Ready needs everything, except for wishes that can never be granted; the most urgent cause is named."""
    stalled = degraded if degraded[1] == "RolloutStalled" else ("False", "AsExpected")
    assert said(rollout, *found) == {
        "Ready": ready,
        "Progressing": progressing,
        "Degraded": degraded,
        "Stalled": stalled,
    }


def test_every_trouble_is_in_the_message_once_and_what_still_runs() -> None:
    """One look shows all that is missing, each once, and that the daemon of before still runs."""
    ready, _, degraded, _ = conditions(LIVE, DONE, [MISSING, FAILED, MISSING], "slurmrestd")
    both = f"{MISSING.text}; {FAILED.text}"
    assert degraded.message == both
    assert ready.message.startswith(f"{both}. Meanwhile slurmrestd ")
    assert {ready.observed_generation, degraded.observed_generation} == {7}
    assert "Meanwhile" not in conditions(LIVE, ABSENT, [MISSING], "slurmrestd")[0].message


def test_endless_trouble_is_cut() -> None:
    """A message stays within what a condition may hold."""
    found = [WorkloadProblem(Reason.APPLY_FAILED, f"{number} " + "x" * 1000) for number in range(50)]
    assert all(len(one.message) < 5000 for one in conditions(LIVE, DONE, found, "slurmrestd"))


def test_problems_of_building_keep_their_reasons() -> None:
    """Each reason that `objects` can give has a cause of its own."""
    reasons = (Reason.MISSING_REFERENCE, Reason.INVALID_SPEC, Reason.IMMUTABLE_FIELD)
    found = troubles(Problem(reason, "spec.a", "b") for reason in reasons)
    assert [one.cause.value for one in found] == [reason.value for reason in reasons]
    assert found[0].text == "spec.a: b"
