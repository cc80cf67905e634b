"""What a reconcile of a NodeSet remembers, and what becomes of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import Condition
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import (
    Blocked,
    CreatePod,
    Defer,
    DeletePod,
    Proof,
    RemovalCause,
)
from slurm_operator.controllers.nodeset.decide.plan import Plan
from slurm_operator.controllers.nodeset.run import report
from slurm_operator.controllers.nodeset.run.reconcile_state import (
    NodeSetStates,
    ReconcileOutcome,
    ReconcilePace,
)
from slurm_operator.kube.errors import Conflict, FencedError, Forbidden, ServerError
from tests.support.virtual_time import virtual_time


# ---------------------------------------------------------------------------------------------------- outcome
def test_a_conflict_is_no_trouble_and_asks_for_another_look() -> None:
    """Another client was faster: that is not reported, and the reconcile is no failure."""
    outcome = ReconcileOutcome()
    outcome.failed("change", "pod 'a'", Conflict("changed", status=409))
    assert (outcome.troubles, outcome.errors) == ({}, [])
    assert outcome.requeues


def test_a_failure_is_a_trouble_that_names_the_object() -> None:
    """A refused write is told with what was wanted and why not, and the reconcile is tried again."""
    outcome = ReconcileOutcome()
    error = ServerError("broken", status=500)
    outcome.failed("create", "pod 'a'", error)
    assert outcome.errors == [error]
    (trouble,) = outcome.troubles
    assert (trouble.reason, trouble.event) == (Reason.APPLY_FAILED, Reason.SYNC_FAILED)
    assert all(word in trouble.message for word in ("create", "pod 'a'", "ServerError: broken"))


def test_a_namespace_that_ends_is_no_trouble() -> None:
    """What cannot be made because its namespace goes is tried again in silence."""
    outcome = ReconcileOutcome()
    details = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
    outcome.failed("create", "pod 'a'", Forbidden("no", status=403, reason="Forbidden", details=details))
    assert outcome.troubles == {}
    assert outcome.errors


def test_a_lost_lease_ends_everything() -> None:
    """Nothing may be written any more, so the rest of the plan is not even tried."""
    with pytest.raises(FencedError):
        ReconcileOutcome().failed("create", "pod 'a'", FencedError("the lease is lost"))


# ------------------------------------------------------------------------------------------ memory and status
def test_another_nodeset_of_the_same_name_starts_with_nothing() -> None:
    """The memory belongs to the UID."""
    states = NodeSetStates()
    assert not states.knows("key", "1")
    first = states.of("key", "1")
    first.pods.failed("gpu-0", 1, 0.0)
    assert states.of("key", "1") is first
    assert states.knows("key", "1")
    assert not states.knows("key", "2")
    assert states.of("key", "2").pods.failures == {}
    states.forget("key")
    assert not states.knows("key", "2")


def test_troubles_come_before_what_the_plan_complains_of() -> None:
    """The reason is that of the first trouble; the message has them all, and what else is wrong."""
    outcome = ReconcileOutcome()
    for number, reason in enumerate((Reason.PODS_LEFT, *[Reason.APPLY_FAILED] * 4)):
        outcome.trouble(reason, f"trouble {number}")
    fine = Condition(type="Degraded", status="False", reason="AsExpected", message="fine")
    found = report.degraded(fine, outcome)
    assert (found.status, found.reason) == ("True", "PodsLeft")
    assert found.message == "; ".join(["trouble 0", "trouble 1", "trouble 2", messages.more_problems(2)])
    wrong = Condition(type="Degraded", status="True", reason="PodsFailed", message="wrong")
    assert report.degraded(wrong, outcome).message == f"{found.message}; wrong"
    ready = Condition(type="Ready", status="True", reason="AllAvailable", message="all")
    assert report.degraded(ready, outcome) == ready
    assert report.degraded(fine, ReconcileOutcome()) == fine


# ------------------------------------------------------------------------------------------------------- pace
def never() -> float | None:
    """Return when Slurm answered: it has not."""
    return None


BEHIND = Plan(waits=(Defer(Reason.CACHE_BEHIND, messages.CACHE_BEHIND),))
MOVING = Plan(going={"uid-0": RemovalCause.SCALE_IN})


@virtual_time
async def test_reconciles_keep_more_distance_while_workers_only_become_ready() -> None:
    """The share of a processor is a ninth while workers come or go, and a sixteenth otherwise."""
    pace = ReconcilePace()
    pace.planned(0.1, MOVING, 2, 0.0)
    assert pace.distance(1000, 2) == pytest.approx(0.8)
    assert pace.distance(1000, 3) == pytest.approx(0.3)
    pace.planned(0.1, Plan(), 2, 0.0)
    assert pace.distance(1000, 2) == pytest.approx(1.5)
    assert pace.distance(1000, 3) == pytest.approx(0.3)
    pace.reported(0.05)
    assert (pace.distance(1000, 2), pace.distance(1000, 3)) == pytest.approx((2.25, 0.45))
    for decided in (MOVING, Plan()):
        pace.planned(60.0, decided, 2, 0.0)
        assert (pace.distance(10_000, 2), pace.distance(10_000, 3)) == (3.0, 1.0)
    pace.planned(0.0, Plan(), 2, 0.0)
    assert (pace.distance(10_000, 3), pace.distance(5, 3)) == (0.1, 0.001)
    assert (pace.distance(10_000, 2), pace.distance(5, 2)) == pytest.approx((3.0, 0.0015))


@virtual_time
async def test_the_next_portion_of_pods_follows_at_once() -> None:
    """Creating is what takes the time; while the cache is behind that, the distance is short."""
    pace = ReconcilePace()
    pace.planned(0.5, Plan(unfinished=True), 2, 0.0)
    assert pace.distance(10_000, 2) == pace.distance(10_000, 3) == 0.1
    for _ in range(2):
        pace.planned(0.2, BEHIND, 2, 0.0)
        assert pace.distance(10_000, 2) == pytest.approx(0.6)
    pace.planned(0.2, MOVING, 2, 0.0)
    pace.planned(0.2, BEHIND, 2, 0.0)
    assert pace.distance(10_000, 2) == pytest.approx(1.6)


@virtual_time
async def test_a_change_of_the_nodeset_does_not_wait_for_the_longer_distance() -> None:
    """The wait looks at the NodeSet every now and then."""
    pace, generation = ReconcilePace(), 2
    pace.planned(0.18, Plan(), generation, 0.0)
    pace.end()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await pace.wait(1000, lambda: generation, never)
    assert loop.time() - began == pytest.approx(2.7)
    pace.end()
    began = loop.time()
    await pace.wait(10_000, lambda: 3 if loop.time() - began > 1.5 else 2, never)
    assert 1.5 <= loop.time() - began < 2.0


@pytest.mark.parametrize(
    ("cause", "waited"), [(RemovalCause.SCALE_IN, 0.5), (RemovalCause.REGISTRATION, 3.0), (None, 3.0)]
)
def test_an_answer_of_slurm_is_not_left_waiting_while_a_removal_waits(
    cause: RemovalCause | None, waited: float
) -> None:
    """The pod whose job has ended goes at once; workers that only register are no hurry."""

    @virtual_time
    async def run() -> None:
        pace, loop = ReconcilePace(), asyncio.get_running_loop()
        blocked = Blocked("gpu-0", "gpu-0", cause, Defer(Reason.JOBS_RUNNING, "job 1 is on it"))
        decided = replace(MOVING, blocked=(blocked,))
        pace.planned(1.0, decided, 2, loop.time())
        pace.end()
        began, answer = loop.time(), loop.time()
        await pace.wait(10_000, lambda: 2, lambda: answer)
        assert loop.time() - began == pytest.approx(3.0), "it is no newer than the plan"
        pace.planned(1.0, decided, 2, loop.time())
        pace.end()
        began = loop.time()
        await pace.wait(10_000, lambda: 2, lambda: began + 0.5 if loop.time() - began > 0.45 else None)
        assert loop.time() - began == pytest.approx(waited, abs=0.2)

    run()


@virtual_time
async def test_reconciles_that_only_delete_keep_more_distance() -> None:
    """Slurm's next answer ends it; unless pods are to follow, which are created when the others are gone."""
    pace = ReconcilePace()
    delete = DeletePod("gpu-0", "uid-0", "gpu-0", RemovalCause.SCALE_IN, "drained")
    deletes, wait = replace(MOVING, actions=(delete,)), Defer(Reason.JOBS_RUNNING, "job 1 is on it")
    for decided, times in (
        (deletes, 20.0),
        (replace(deletes, going={"uid-0": RemovalCause.DELETION}), 20.0),
        (replace(deletes, going={"uid-0": RemovalCause.UPDATE}), 8.0),
        (replace(deletes, actions=(delete, CreatePod("gpu-9", 9))), 8.0),
        (replace(deletes, actions=(replace(delete, proof=Proof.NONE),)), 8.0),
        (replace(MOVING, blocked=(Blocked("gpu-0", "gpu-0", RemovalCause.SCALE_IN, wait),)), 8.0),
    ):
        pace.planned(0.1, decided, 2, 0.0)
        assert pace.distance(10_000, 2) == pytest.approx(0.1 * times)
        assert pace.distance(10_000, 3) == pytest.approx(0.3), "a change of the NodeSet waits no longer"
        pace.planned(1.0, decided, 2, 0.0)
        assert pace.distance(10_000, 2) == 3.0


@virtual_time
async def test_conditions_are_written_while_the_next_reconcile_waits_anyway() -> None:
    """The distance begins with them; while workers come or go it begins when the reconcile has ended."""
    pace, loop = ReconcilePace(), asyncio.get_running_loop()
    for decided, left in ((Plan(), 1.5), (MOVING, 1.6)):
        pace.planned(0.1, decided, 2, 0.0)
        pace.reported(0.1)
        began = loop.time()
        assert pace.left(10_000, 2) == pytest.approx(3.0 if decided is not MOVING else 1.6)
        await asyncio.sleep(1.5)
        pace.end()
        await pace.wait(10_000, lambda: 2, never)
        assert loop.time() - began == pytest.approx(1.5 + left)


@virtual_time
async def test_a_reconcile_that_failed_before_its_report_keeps_its_distance_from_the_end() -> None:
    """What was reported before does not count."""
    pace, loop = ReconcilePace(), asyncio.get_running_loop()
    pace.planned(0.1, Plan(), 2, 0.0)
    pace.reported(0.0)
    pace.end()
    await asyncio.sleep(60.0)
    pace.end()
    assert pace.ended == loop.time()
