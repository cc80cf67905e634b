"""The conditions `Ready`, `Progressing`, `Degraded` and `Stalled`."""

from __future__ import annotations

import pytest

from slurm_operator.api import RestApi
from slurm_operator.controllers.workload.rollout import Phase, Rollout
from slurm_operator.controllers.workload.verdict import Cause, Trouble, conditions, troubles
from slurm_operator.kube.meta import ObjectMeta
from slurm_operator.objects.desired import Problem, Reason

LIVE = RestApi(metadata=ObjectMeta(name="r", generation=7))
DONE = Rollout(Phase.COMPLETE, "slurmrestd runs: 1 of 1 pods are ready", 1, 1)
ROLLING = Rollout(Phase.ROLLING, "0 of 1 pods are ready", 0, 1)
ABSENT = Rollout(Phase.ABSENT, "slurmrestd does not run yet")
STALLED = Rollout(Phase.STALLED, "quota", 0, 1)
ZERO = Rollout(Phase.COMPLETE, "slurmrestd is scaled to zero", 0, 0)
MISSING = Trouble(Cause.MISSING, "Secret 'x' does not exist; create it", "spec.key")
UNREADABLE = Trouble(Cause.UNREADABLE, "Forbidden")
FIXED = Trouble(Cause.IMMUTABLE, "cannot shrink", "spec.persistence")
FAILED = Trouble(Cause.FAILED, "Service 'x' could not be changed")


def said(rollout: Rollout | None, *found: Trouble) -> dict[str, tuple[str, str]]:
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
    found: list[Trouble],
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
    both = "spec.key: Secret 'x' does not exist; create it; Service 'x' could not be changed"
    assert degraded.message == both
    assert ready.message == f"{both}. Meanwhile slurmrestd runs on as it is"
    assert {ready.observed_generation, degraded.observed_generation} == {7}
    assert "Meanwhile" not in conditions(LIVE, ABSENT, [MISSING], "slurmrestd")[0].message


def test_endless_trouble_is_cut() -> None:
    """A message stays within what people read and a condition may hold."""
    found = [Trouble(Cause.FAILED, f"{number} " + "x" * 1000) for number in range(50)]
    assert all(len(one.message) < 5000 for one in conditions(LIVE, DONE, found, "slurmrestd"))


def test_problems_of_building_keep_their_reasons() -> None:
    """Each reason that `objects` can give has a cause of its own."""
    found = troubles(Problem(reason, "spec.a", "b") for reason in Reason)
    assert [one.cause.value for one in found] == [reason.value for reason in Reason]
    assert found[0].text == "spec.a: b"
