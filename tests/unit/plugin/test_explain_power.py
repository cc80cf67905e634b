"""What is said of nodes that Slurm's power saving has down, starts or stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.controllers.nodeset.decide.actions import RemovalCause
from slurm_operator.controllers.nodeset.decide.autoscale import RESUME_TIMEOUT, Power
from slurm_operator.plugin import explain_power
from slurm_operator.plugin.explain_job import explain_job
from slurm_operator.plugin.explanations import CAUSES, explain_nodeset, explain_pod
from slurm_operator.status_rows import BlockedRow
from tests.support.plugin.sample_rows import (
    NOW,
    ago,
    busy,
    cluster,
    condition,
    job,
    late,
    nodeset,
    pending,
    powered_down,
    powering_up,
    scaling,
    worker,
)

if TYPE_CHECKING:
    from slurm_operator.plugin.explanations import Explanation
    from slurm_operator.status_rows import WorkerRow

SET = nodeset(autoscaling=scaling(**{"powered down": 3, "powering up": 1}))


def explained(row: WorkerRow, **given: Any) -> Explanation:
    return explain_pod(row, SET, cluster(), NOW, **given)


def test_every_cause_of_the_plan_has_words() -> None:
    """A cause that is added needs a sentence here, or users read the name of an enum."""
    assert {*CAUSES} == {cause.value for cause in RemovalCause}


def test_the_words_are_those_of_the_manager() -> None:
    """The command may not import the manager's code, so it repeats its words."""
    words = (explain_power.DOWN, explain_power.POWERING_UP, explain_power.POWERING_DOWN, explain_power.UP)
    assert words == (Power.DOWN, Power.POWERING_UP, Power.POWERING_DOWN, Power.UP)
    assert explain_power.RESUME_TIMEOUT == RESUME_TIMEOUT


def test_a_node_that_is_powered_down_is_so_on_purpose() -> None:
    """NodeSet, idleSeconds, what starts it, and how to keep workers up."""
    found = explained(powered_down(3))
    assert found.subject == "Slurm node workers-3 of NodeSet slurm/workers, without a pod"
    (why,) = found.why
    assert "on purpose" in why
    assert "idleSeconds (300s)" in why
    assert any("when a job needs it" in one for one in found.next)
    assert any("minReplicas (now 0)" in one for one in found.next)
    assert any('"minReplicas":1' in one for one in found.commands)
    assert found.waits_for == ()


def test_as_many_as_there_are_cannot_be_raised() -> None:
    """No command raises minReplicas above maxReplicas."""
    full = nodeset(autoscaling=scaling(min_replicas=4, **{"powered down": 1}))
    assert not any("minReplicas" in one for one in explain_pod(powered_down(3), full, None, NOW).commands)


def test_a_drain_keeps_a_powered_down_node_away_from_jobs() -> None:
    """Slurm does not power up a node that a user drained, so that is not promised."""
    row = powered_down(
        3, state=("IDLE", "DRAIN", "POWERED_DOWN"), summary="drained", drained_by="other", state_reason="disk"
    )
    found = explained(row)
    assert "drained" in found.why[0]
    assert found.next == ("It returns to service when that drain is undone in Slurm.",)
    assert not any("describe" in one or "logs" in one for one in found.commands)


@pytest.mark.parametrize(
    ("row", "step", "command", "since"),
    [
        (
            powering_up(1, without_pod=True, phase="", created_at=None),
            "Step 1 of 3",
            "explain nodeset",
            False,
        ),
        (powering_up(1, phase="Pending"), "Step 2 of 3", "describe pod", True),
        (powering_up(1, phase="Pending", problem="Unschedulable: 0/3"), "Step 2 of 3", "describe pod", True),
        (powering_up(1, phase="Running", ready=True), "Step 3 of 3", "logs workers-1 -c slurmd", True),
    ],
)
def test_the_pending_step_of_a_power_up_is_named(
    row: WorkerRow, step: str, command: str, *, since: bool
) -> None:
    """Each step has its command; the time is that of the pod, where there is one."""
    found = explained(row)
    assert step in found.waits_for[0]
    assert row.problem in "".join(found.waits_for)
    assert any(command in one for one in found.commands)
    assert bool(found.since) == since
    assert "job 44" in found.why[0]
    assert any("resumeTimeoutSeconds (600s)" in one for one in found.next)


def test_a_power_up_without_a_job_claims_no_job() -> None:
    """The list of jobs may be older than the power-up."""
    (why,) = explained(powering_up(1, jobs=(), job_count=0)).why
    assert "a job needs it, or minReplicas" in why


def test_a_power_down_is_named() -> None:
    """With the time after which the node can be used again."""
    found = explained(powered_down(3, power="powering down", state=("IDLE", "POWERING_DOWN")))
    assert "powering it down" in found.why[0]
    assert any("suspendTimeoutSeconds (60s)" in one for one in found.next)


def test_a_removal_that_is_blocked_keeps_the_words_of_the_plan() -> None:
    """The pod of a powered-down node that cannot be deleted yet says why."""
    blocked = BlockedRow(
        action="delete", cause="PoweredDown", reason="ViewStale", message="old", next="Wait."
    )
    row = worker(0, power="powered down", removal="PoweredDown", blocked=blocked)
    found = explained(row)
    assert found.why == (f"It is to be removed (PoweredDown): {CAUSES['PoweredDown']}.",)
    assert (found.waits_for, found.next) == (("ViewStale: old",), ("Wait.",))


def test_a_node_that_was_late_says_so_and_what_is_done() -> None:
    """ResumeTimeout, how often, when it is resumed, and what to check."""
    found = explained(late(2, resume_failures=3, resume_at=ago(minutes=-2)))
    assert "did not register within resumeTimeoutSeconds (600s)" in found.why[0]
    assert "3 times in a row" in found.why[0]
    assert any("2026-11-16 12:02:00Z (in 2m)" in one for one in found.next)
    assert any("raise resumeTimeoutSeconds" in one for one in found.next)
    assert found.since.startswith("2026-11-16 11:59:00Z")
    assert any("explain nodeset workers" in one for one in found.commands)


def test_a_late_node_without_a_known_time_gets_no_time() -> None:
    """A manager that has just started has not counted the failures."""
    found = explained(late(2))
    assert any("pause that grows with each failure" in one for one in found.next)
    assert "in a row" not in found.why[0]


@pytest.mark.parametrize(
    "given", [{"drained_by": "other"}, {"state": ("DOWN", "POWERED_DOWN", "INVALID_REG")}]
)
def test_what_the_operator_does_not_resume_is_not_promised(given: dict[str, Any]) -> None:
    """A drain of a user, or a registration that Slurm refused, stays."""
    assert not any("usable again" in one for one in explained(late(2, **given)).next)


def test_a_slurmd_that_registers_too_late_is_late() -> None:
    """slurmctld gives no reason then; a reason that a user gave is no timeout."""
    row = worker(2, power="up", state=("DOWN",), summary="down")
    assert explain_power.came_late(row)
    assert not explain_power.came_late(worker(2, power="up", state=("DOWN",), state_reason="disk"))
    assert not explain_power.came_late(worker(2, state=("DOWN",)))


def test_an_unknown_power_state_is_not_guessed() -> None:
    """Without a fresh list of nodes, a missing pod is neither an error nor on purpose."""
    row = powered_down(
        3, power="", state=(), known="unknown", summary="unknown", unknown_message="Slurm does not answer"
    )
    found = explained(row)
    assert found.state[-1] == "Slurm node workers-3: state unknown (Slurm does not answer)"
    assert "may be powered down" in found.why[0]
    assert found.next == ()
    assert any("kubectl slurm status slurm -n slurm" in one for one in found.commands)


def test_a_nodeset_says_its_bounds_and_power_states() -> None:
    """Minimum, maximum, and how many are powered down, resuming and up."""
    counts = {"powered down": 2, "powering up": 1, "up": 1}
    found = explain_nodeset(nodeset(autoscaling=scaling(**counts)), (late(2),), cluster(), NOW)
    assert any("0 to 4 workers" in one and "idleSeconds (300s)" in one for one in found.state)
    assert any("2 powered down, 1 powering up, 1 up" in one for one in found.state)
    assert any(one.startswith("workers-2: DOWN") for one in found.waits_for)
    assert "kubectl slurm explain node workers-2 -n slurm" in found.commands


def test_a_nodeset_without_counts_says_what_was_written_last() -> None:
    """In the limited view, the condition is what is known."""
    said = condition("Autoscaling", "True", "Active", "3 powered down, 1 up")
    found = explain_nodeset(nodeset(autoscaling=scaling(), conditions=(said,)), (), None, NOW, "no operator")
    assert "Autoscaling is True (Active): 3 powered down, 1 up" in found.why
    refused = condition("Autoscaling", "False", "AutoscalingUnsupported", "Slurm is too old")
    found = explain_nodeset(nodeset(autoscaling=scaling(), conditions=(refused,)), (), None, NOW)
    assert "Autoscaling is False (AutoscalingUnsupported): Slurm is too old" in found.why


def configuring(**given: Any) -> Any:
    return job(44, state=("RUNNING", "CONFIGURING", "POWER_UP_NODE"), nodes="workers-[1-2]", **given)


def test_a_configuring_job_waits_for_workers_that_start() -> None:
    """Each node with its pending step, and what happens when they are late."""
    rows = (powering_up(1, phase="Pending", problem="Unschedulable: 0/3"), busy(2, 44, power="up"))
    found = explain_job(configuring(), cluster(), (SET,), rows, NOW)
    assert "workers are being started" in found.why[0]
    assert any("workers-1" in one and "Step 2 of 3" in one for one in found.waits_for)
    assert any("Unschedulable: 0/3" in one for one in found.waits_for)
    assert not any("workers-2" in one for one in found.waits_for)
    assert any("resumeTimeoutSeconds (600s)" in one for one in found.next)
    assert "kubectl slurm explain node workers-1 -n slurm" in found.commands
    assert found.since


def test_a_configuring_job_whose_nodes_are_up_starts_soon() -> None:
    """slurmctld looks for nodes that came up every 30 seconds."""
    found = explain_job(
        configuring(), cluster(), (SET,), (busy(1, 44, power="up"), busy(2, 44, power="up")), NOW
    )
    assert any("30 seconds" in one for one in found.waits_for)


def test_a_configuring_job_without_power_saving_starts_no_workers() -> None:
    """A prolog makes a job CONFIGURING, too."""
    found = explain_job(job(44, state=("RUNNING", "CONFIGURING")), cluster(), (), (busy(2, 44),), NOW)
    assert "workers are being started" not in found.why[0]
    assert found.waits_for == ()


def test_a_pending_job_is_told_of_powered_down_nodes() -> None:
    """They are capacity that Slurm can start, so more replicas are not proposed."""
    rows = (
        busy(0, 1, power="up"),
        powered_down(3),
        powered_down(4, power="powering down", summary="terminating"),
    )
    found = explain_job(pending(7, "Priority"), cluster(), (SET,), rows, NOW)
    told = " ".join(found.waits_for)
    assert "1 node is powered down (workers-3): Slurm powers it up when a job can start on it." in told
    assert "1 node is being powered down (workers-4)" in told
    assert "at most 4 (maxReplicas)" in told
    assert not any("scale nodeset" in one for one in found.commands)


def test_more_workers_are_proposed_by_the_field_that_counts() -> None:
    """With autoscaling, replicas has no effect."""
    full = nodeset(autoscaling=scaling(up=2, max_replicas=2), ready=2, desired=2, states={"busy": 2})
    rows = (busy(0, 1, power="up"), busy(1, 2, power="up"))
    found = explain_job(pending(7, "Resources"), cluster(), (full,), rows, NOW)
    assert any('"maxReplicas":3' in one for one in found.commands)
    assert not any("replicas=" in one for one in found.commands)


def test_a_job_that_was_requeued_is_told_why() -> None:
    """Slurm gives BeginTime as the reason after a ResumeTimeout."""
    found = explain_job(pending(7, "BeginTime"), cluster(), (SET,), (late(2),), NOW)
    assert any("did not come up in time (workers-2)" in one for one in found.waits_for)
    assert explain_job(pending(7, "BeginTime"), cluster(), (SET,), (powered_down(2),), NOW).waits_for == ()
