"""Rows of workers: one word for their state, and what they carry."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import Blocked, Defer, RemovalCause
from slurm_operator.kube.models.meta import Condition
from slurm_operator.slurm.model.jobs import NodeJobs as JobsOn
from slurm_operator.slurm.model.view import AnswerReason
from slurm_operator.status_api.decision_log import LateNode
from slurm_operator.status_api.worker_rows import WorkerFacts, row_without_pod, worker_row
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import worker
from tests.support.slurm.views import node, number

if TYPE_CHECKING:
    from slurm_operator.status_rows import WorkerRow

CLOUD = ("CLOUD", "DYNAMIC_NORM")
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
BLOCKED = Blocked("gpu-0", "gpu-0", RemovalCause.SCALE_IN, Defer(Reason.JOBS_RUNNING, "job 1 is on it"))


def row(facts: WorkerFacts, **fields: Any) -> WorkerRow:
    return worker_row("slurm", "gpu", "main", worker(0, **fields), facts)


@pytest.mark.parametrize(
    ("state", "summary"),
    [
        (("IDLE", "DYNAMIC_NORM"), "idle"),
        (("MIXED", "DYNAMIC_NORM"), "busy"),
        (("ALLOCATED",), "busy"),
        (("IDLE", "COMPLETING"), "busy"),
        (("MIXED", "DRAIN"), "draining"),
        (("IDLE", "DRAIN"), "drained"),
        (("IDLE", "DRAIN", "UNDRAIN"), "idle"),
        (("DOWN", "NOT_RESPONDING"), "down"),
        (("IDLE", "DRAIN", "INVALID_REG"), "down"),
        (("UNKNOWN",), "unknown"),
        (("IDLE", *CLOUD), "idle"),
        (("IDLE", *CLOUD, "POWERED_DOWN"), "powered-down"),
        (("IDLE", *CLOUD, "POWERED_DOWN", "NOT_RESPONDING"), "powered-down"),
        (("IDLE", "DRAIN", *CLOUD, "POWERED_DOWN"), "drained"),
        (("DOWN", *CLOUD, "POWERED_DOWN"), "down"),
        (("MIXED", *CLOUD, "POWERED_DOWN"), "starting"),
        (("MIXED", *CLOUD, "NOT_RESPONDING", "POWERING_UP"), "starting"),
        (("IDLE", *CLOUD, "POWERING_DOWN"), "terminating"),
        ((), "unknown"),
    ],
)
def test_a_state_of_slurm_is_one_word(state: tuple[str, ...], summary: str) -> None:
    """Workers are counted by the worst of what their node says; an unknown word is unknown."""
    record = node("gpu-0").__class__(name="gpu-0", state=state, alloc_cpus=0)
    assert row(WorkerFacts(node=record)).summary == summary


def test_a_pod_that_starts_or_ends_is_not_what_slurm_says() -> None:
    """A record that is left from the pod before says nothing about a pod that starts."""
    left = node("gpu-0", "DOWN", "NOT_RESPONDING")
    starts = row(WorkerFacts(node=left), phase="Pending", started=False, ready_since=None)
    assert (starts.summary, starts.state, starts.ready) == ("starting", (), False)
    assert row(WorkerFacts(node=node("gpu-0")), deleting=True).summary == "terminating"


@pytest.mark.parametrize(
    ("state", "power", "summary"),
    [
        (("IDLE", "POWERED_DOWN"), "powered down", "powered-down"),
        (("DOWN", "POWERED_DOWN"), "powered down", "down"),
        (("MIXED", "NOT_RESPONDING", "POWERING_UP"), "powering up", "starting"),
        (("IDLE", "POWERING_DOWN"), "powering down", "terminating"),
        (("IDLE",), "up", "starting"),
        (("MIXED",), "up", "starting"),
        (("DOWN", "NOT_RESPONDING"), "up", "down"),
    ],
)
def test_a_node_without_a_pod_has_a_row(state: tuple[str, ...], power: str, summary: str) -> None:
    """It has the power state of Slurm's record, and is never idle: nothing runs there."""
    record = node("gpu-0", *state, *CLOUD)
    found = row_without_pod(
        make_nodeset(), "gpu-0", "gpu-0", WorkerFacts(node=record, jobs=JobsOn((7,), 5.0))
    )
    assert (found.without_pod, found.phase, found.ready, found.jobs) == (True, "", False, (7,))
    assert (found.power, found.summary, found.state) == (power, summary, record.state)


def test_a_node_without_a_pod_is_unknown_where_slurm_does_not_answer() -> None:
    """An old list does not say that a node is powered down."""
    found = row_without_pod(
        make_nodeset(), "gpu-0", "gpu-0", WorkerFacts(unknown=AnswerReason.SLURM_UNREACHABLE)
    )
    assert (found.power, found.summary, found.known) == ("", "unknown", "unknown")
    assert found.unknown_message


def test_the_power_up_of_a_pod_that_starts_is_shown() -> None:
    """The record of a node that powers up is not left from the pod before; that of one that is up may be."""
    fields: dict[str, Any] = {"phase": "Pending", "started": False, "ready_since": None}
    rising = row(WorkerFacts(node=node("gpu-0", "MIXED", "POWERING_UP", *CLOUD)), **fields)
    assert (rising.power, rising.summary) == ("powering up", "starting")
    assert "POWERING_UP" in rising.state
    left = row(WorkerFacts(node=node("gpu-0", "IDLE", *CLOUD)), **fields)
    assert (left.power, left.summary, left.state) == ("up", "starting", ())


def test_how_often_a_node_was_late_is_shown_while_it_is_down() -> None:
    """Failures before the last resume are not shown."""
    late = LateNode(2, NOON)
    down = WorkerFacts(node=node("gpu-0", "DOWN", "POWERED_DOWN", *CLOUD), late=late)
    found = row_without_pod(make_nodeset(), "gpu-0", "gpu-0", down)
    assert (found.resume_failures, found.resume_at) == (2, NOON)
    again = WorkerFacts(node=node("gpu-0", "MIXED", "POWERING_UP", *CLOUD), late=late)
    assert row(again).resume_failures == 0
    assert not down.same(WorkerFacts(node=down.node))


def test_what_is_not_known_is_never_idle() -> None:
    """Without an answer of Slurm a running worker is unknown, and one that Slurm does not have is down."""
    unknown = row(WorkerFacts(unknown=AnswerReason.SLURM_UNREACHABLE))
    assert (unknown.summary, unknown.known, unknown.unknown_reason) == (
        "unknown",
        "unknown",
        "SlurmUnreachable",
    )
    assert unknown.unknown_message
    absent = row(WorkerFacts())
    assert (absent.summary, absent.known) == ("down", "absent")


def test_jobs_and_their_end() -> None:
    """At most twenty jobs are listed, all are counted, and an end that is not known says so."""
    jobs = JobsOn(tuple(range(30)), 2_000_000_000.0)
    busy = row(WorkerFacts(node=node("gpu-0", "MIXED"), jobs=jobs))
    assert (len(busy.jobs), busy.job_count) == (20, 30)
    assert (busy.jobs_end, busy.jobs_end_known) == (datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC), True)
    endless = row(WorkerFacts(node=node("gpu-0", "MIXED"), jobs=JobsOn((1,), float("inf"))))
    assert (endless.jobs_end, endless.jobs_end_known) == (None, False)
    assert row(WorkerFacts(node=node("gpu-0"))).jobs_end_known


def test_who_drained_it() -> None:
    """A drain with the operator's prefix is the operator's; every other one is of another."""
    ours = node("gpu-0", "IDLE", "DRAIN", reason=f"{wellknown.REASON_PREFIX}NodeSet (a/b) scales in")
    assert row(WorkerFacts(node=ours)).drained_by == "operator"
    theirs = node(
        "gpu-0", "IDLE", "DRAIN", reason="disk", reason_set_by_user="root", reason_changed_at=number(60)
    )
    shown = row(WorkerFacts(node=theirs))
    assert (shown.drained_by, shown.state_reason, shown.state_reason_by) == ("other", "disk", "root")
    assert shown.state_reason_at == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    assert row(WorkerFacts(node=node("gpu-0"))).drained_by == ""


def test_a_block_lasts_since_the_pod_says_so() -> None:
    """The condition on the pod outlives the process, so the earlier of the two times counts."""
    said = Condition(
        type=wellknown.POD_CONDITION_SAFE,
        status="False",
        reason="JobsRunning",
        last_transition_time=datetime(2026, 11, 16, 9, tzinfo=UTC),
    )
    facts = WorkerFacts(
        node=node("gpu-0", "MIXED", "DRAIN"), blocked=(BLOCKED, NOON), cause=RemovalCause.SCALE_IN
    )
    with_condition = row(facts, conditions={said.type: said})
    assert with_condition.blocked is not None
    assert with_condition.blocked.since == datetime(2026, 11, 16, 9, tzinfo=UTC)
    without = row(facts)
    assert without.blocked is not None
    assert without.blocked.since == NOON
    assert without.removal == "ScaleIn"


def test_a_cordon_says_who_set_it() -> None:
    """A cordon of the operator names its cause; one of a person names nothing."""
    by_us = {wellknown.ANNOTATION_POD_CORDON: "true", wellknown.ANNOTATION_POD_CORDON_BY: "Update"}
    assert row(WorkerFacts(), annotations=by_us).cordoned_by == "Update"
    by_hand = row(WorkerFacts(), annotations={wellknown.ANNOTATION_POD_CORDON: "true"})
    assert (by_hand.cordoned, by_hand.cordoned_by) == (True, "")


def test_equal_facts_need_no_new_row() -> None:
    """Facts are the same if nothing of what a row shows has changed."""
    one = WorkerFacts(node=node("gpu-0"), jobs=JobsOn((1,), 5.0), blocked=(BLOCKED, NOON))
    assert one.same(WorkerFacts(node=node("gpu-0"), jobs=JobsOn((1,), 5.0), blocked=(BLOCKED, NOON)))
    assert not one.same(
        WorkerFacts(node=node("gpu-0", "DOWN"), jobs=JobsOn((1,), 5.0), blocked=(BLOCKED, NOON))
    )
    assert not one.same(WorkerFacts(node=node("gpu-0"), blocked=(BLOCKED, NOON)))
    assert not one.same(WorkerFacts(node=node("gpu-0"), jobs=JobsOn((1,), 5.0)))
