"""Whether a plan is about workers that come or go, and what the next one waits for."""

from __future__ import annotations

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import (
    Blocked,
    CreatePod,
    Defer,
    DeletePod,
    PatchPod,
    PatchPodStatus,
    Proof,
    RemovalCause,
    WriteNodes,
)
from slurm_operator.controllers.nodeset.decide.plan import Plan


def test_workers_move_when_they_come_or_go_and_not_when_they_are_only_written_to() -> None:
    """The next reconcile may wait longer while nothing depends on the events between."""
    upkeep = (PatchPod("a", "1"), PatchPodStatus("a", "1"), WriteNodes({}))
    assert not Plan().moves
    assert not Plan(actions=upkeep).moves
    assert Plan(actions=(*upkeep, CreatePod("b"))).moves
    assert Plan(waits=(Defer(Reason.CACHE_BEHIND, "behind"),)).moves
    wait = Defer(Reason.CACHE_BEHIND, "behind")
    assert not Plan(blocked=(Blocked("a", "a", RemovalCause.REGISTRATION, wait),)).moves
    assert Plan(blocked=(Blocked("a", "a", RemovalCause.SCALE_IN, wait),)).moves
    assert Plan(blocked=(Blocked("a", "a", None, wait),)).moves


def test_a_removal_waits_for_slurm_while_it_is_blocked_or_rests_on_a_list() -> None:
    """A pod that is deleted without asking Slurm does not, nor one that only waits to register."""

    def deletion(proof: Proof) -> Plan:
        return Plan(actions=(DeletePod("a", "1", "a", RemovalCause.SCALE_IN, "drained", proof=proof),))

    wait = Defer(Reason.JOBS_RUNNING, "job 1 is on it")
    assert Plan(blocked=(Blocked("a", "a", RemovalCause.SCALE_IN, wait),)).removals_wait
    assert not Plan(blocked=(Blocked("a", "a", RemovalCause.REGISTRATION, wait),)).removals_wait
    assert deletion(Proof.LIST).removals_wait
    assert not deletion(Proof.NONE).removals_wait
