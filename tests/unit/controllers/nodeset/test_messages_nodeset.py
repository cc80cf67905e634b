"""The sentences of the NodeSet controller: conditions, Events, drains in Slurm and next steps."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from slurm_operator.api.reasons import BLOCKING, Reason
from slurm_operator.controllers.nodeset.decide import messages, reservation
from slurm_operator.controllers.nodeset.decide.actions import (
    Blocked,
    Defer,
    DeleteReservation,
    RemovalCause,
    WriteReservation,
    drain_reason,
)
from slurm_operator.controllers.nodeset.decide.slurm_state import steady
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.controllers.shared import pod_problems
from slurm_operator.kube.models.meta import Condition
from slurm_operator.kube.models.pod import ContainerState, ContainerStatus, Pod, PodStatus, StateWaiting
from slurm_operator.slurm.model.answers import AnswerReason
from slurm_operator.slurm.model.records import Reservation, ReservationSpec
from slurm_operator.status_api import explaining
from tests.support import message_golden

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ERROR = "Forbidden: not allowed"


class Named(NamedTuple):
    """Sample values, some of them by name."""

    given: tuple[Any, ...]
    named: dict[str, bool]


# Parts of sentences, which no condition has alone.
PARTS = {
    *("count", "some", "moment", "failed", "lost_claim"),
    *("UNVERIFIED", "CONTROLLER_REF", "CHANGE_STATE", "SET_FIELDS"),
}
COUNTED = ((1, "gpu-0"), (3, "gpu-0"))
SAMPLES: dict[str, list[Any]] = {
    "similar": [("PVC data-gpu-0 is controlled by Pod other", cases) for cases in (1, 2, 3)],
    "pods_remain": [(0,), (1,), (3,)],
    "available": [(0, 1), (2, 3)],
    "updated": [(0, 1), (2, 3)],
    "removing": [(1, 2), (3, 2)],
    "all_available": [(0,), (1,), (3,)],
    "creating": [(1,), (3,)],
    "removing_for": [(cause, 1) for cause in RemovalCause] + [(RemovalCause.SCALE_IN, 3)],
    "waiting": [({Reason.JOBS_RUNNING: 1},), ({Reason.JOBS_RUNNING: 2, Reason.DRAIN_PENDING: 1},)],
    "drained_by_others": [(["Node gpu-0 was drained"],), (["Node gpu-0 was drained", "and another"],)],
    "blocked": [(1, messages.NOT_CONNECTED), (3, messages.NOT_CONNECTED)],
    "pods_failed": [*COUNTED],
    "pods_not_running": [(*one, "no node fits: 0/3 nodes are available") for one in COUNTED],
    "nodes_down": [*COUNTED],
    "nodes_refused": [(1, "gpu-0", "Low RealMemory"), (3, "gpu-0", "")],
    "more_problems": [(1,), (2,)],
    "creating_to_reach": [(1, 1), (3, 5)],
    "creating_on_nodes": [(1,), (3,)],
    "removing_to_reach": [(1, 0), (3, 2)],
    "replacing_old": [(1,), (3,)],
    "replacing_ended": [
        Named(("gpu-x", "node-1"), {"succeeded": True}),
        Named(("gpu-x", "node-1"), {"succeeded": False}),
    ],
    "replacing_unregistered": [("gpu-0", "gpu-0")],
    "no_more_unavailable": [("gpu-0",)],
    "backing_off": [("gpu-0", 1, AT), ("gpu-0", 3, AT)],
    "name_in_use": [("gpu-0", "gpu-x")],
    "same_name": [("ip-10", "ip-10.a", "ip-10.b")],
    "renaming": [("gpu-x", "old", "new")],
    "name_used_by": [("gpu-0", "other", "hostname")],
    "name_of_older": [("gpu-0", "other", "nodeSelector")],
    "name_conflict": [("gpu-0", "other", "hostname")],
    "undrained_when": [Named(("gpu-0",), {"healthy": True}), Named(("gpu-0",), {"healthy": False})],
    "foreign_drain": [
        Named(("gpu-0", "bad fan"), {"rejected": False}),
        Named(("gpu-0", ""), {"rejected": False}),
        Named(("gpu-0", "Low RealMemory"), {"rejected": True}),
    ],
    "failing": [("gpu-0",)],
    "powering_up": [("gpu-0",)],
    "awaited": [("gpu-0",)],
    "node_cordoned": [("node-1", "gpu-0")],
    "removal_requested": [("gpu-0", "eviction: alice"), ("gpu-0", "")],
    "drained": [("gpu-0",)],
    "powered_down": [("gpu-0",)],
    "never_registered": [("gpu-0", "gpu-x")],
    "lost_while_busy": [("gpu-0", AT), ("gpu-0", None)],
    "may_register": [("gpu-0",)],
    "list_incomplete": [("gpu-0",)],
    "jobs_on_unlisted": [("gpu-0",)],
    "jobs_unplaced": [("gpu-0",)],
    "other_cluster": [("gpu-0", "old", "new")],
    "records_first": [(1,), (3,)],
    "name_used_elsewhere": [("gpu-0",)],
    "resuming": [(1,), (3,)],
    "removing_powered_down": [(1,), (3,)],
    "not_up_in_time": [*COUNTED],
    "record_deleted": [("gpu-0", "gpu-x")],
    "claim_leaving": [("data-gpu-0",)],
    "claim_conflict": [("data-gpu-0", "StatefulSet other")],
    "still_protected": [("gpu-0",)],
    "controller_gone": [("slurm",), ("slurm", "SlurmOperatorMaint-gpu")],
    "unlabelled_pods": [*COUNTED],
    "unreadable_pods": [*COUNTED],
    "budget_missing": [("slurm-workers-pdb-slurm",)],
    "created": [(["gpu-0"],), (["gpu-0", "gpu-1"],)],
    "deleted": [("ScaleIn", ["gpu-0"]), ("ScaleIn", ["gpu-0", "gpu-1"])],
    "claim_restored": [(write_messages.lost_claim("data-gpu-0", "gpu-0"),)],
    "name_taken": [("gpu-0", "StatefulSet 'other'"), ("gpu-0", "")],
    "child_taken": [("Service 'slurm-workers'", "Controller 'other'")],
    "controller_unreadable": [("slurm", "spec.replicas: expected int")],
    "controller_missing": [("slurm",)],
    "nodes_failed": [(write_messages.CHANGE_STATE, *one, ERROR) for one in COUNTED],
    "nodes_not_sent": [(write_messages.SET_FIELDS, *one, "the comment is too long") for one in COUNTED],
    "records_not_created": [(1, ERROR), (3, ERROR)],
    "records_not_deleted": [(*one, ERROR) for one in COUNTED],
    "reservation_failed": [("write", "gpu", ERROR), ("delete", "gpu", ERROR)],
}
# What the modules that write name, and what they do to it.
WRITES = (
    ("create", "pod 'gpu-0'"),
    ("delete", "pod 'gpu-0'"),
    ("change", "the finalizers of NodeSet 'gpu'"),
    ("remove", "the protection of pod 'gpu-0'"),
    ("apply", "PodDisruptionBudget 'slurm-workers-pdb-slurm'"),
    ("set the owner of", "PVC 'data-gpu-0'"),
    ("create", write_messages.lost_claim("data-gpu-0", "gpu-0")),
    ("write", "the ControllerRevision of NodeSet 'gpu'"),
)


def sentences(module: ModuleType) -> Iterator[str]:
    """Yield every sentence of a module: its constants as they are, its functions with sample values."""
    for name, value in vars(module).items():
        if (
            name.startswith("_")
            or name in PARTS
            or (callable(value) and inspect.getmodule(value) is not module)
        ):
            continue
        if isinstance(value, str) and name.isupper():
            yield f"{name}: {value}"
        elif callable(value):
            calls = [one if isinstance(one, Named) else Named(one, {}) for one in SAMPLES[name]]
            yield from (f"{name}: {value(*given, **named)}" for given, named in calls)


def reservations() -> Iterator[str]:
    """Yield what the condition and problems of the maintenance window say."""
    yield f"ReservationCreated: {reservation.window_text(AT)}"
    write = WriteReservation(ReservationSpec(name="gpu"), exists=True)
    for wish in (write, DeleteReservation("gpu")):
        for listed in (None, Reservation(name="gpu", node_list="gpu-[0-1]", users="root", flags=("MAINT",))):
            yield f"ReservationFailed: {reservation.complaint(wish, listed)}"


def pods() -> Iterator[str]:
    """Yield why pods of any kind do not run."""
    waiting = ContainerState(waiting=StateWaiting(reason="ImagePullBackOff"))
    unschedulable = Condition(
        type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes are available"
    )
    for status in (
        PodStatus(container_statuses=(ContainerStatus(name="slurmd", state=waiting),)),
        PodStatus(container_statuses=(ContainerStatus(name="slurmd", restart_count=3),)),
        PodStatus(conditions=(unschedulable,)),
    ):
        yield f"pod: {pod_problems.complaint(Pod(status=status), AT)}"


def next_steps() -> Iterator[str]:
    """Yield what to do about each reason for which an action on a worker waits."""
    for reason in sorted(BLOCKING):
        blocked = Blocked("gpu-0", "gpu-0", RemovalCause.SCALE_IN, Defer(reason, ""))
        yield f"next {reason}: {explaining.blocked(blocked, None, None).next}"
    blocked = Blocked("gpu-0", "gpu-0", RemovalCause.NODE_CORDON, Defer(Reason.JOBS_RUNNING, ""))
    yield f"next {Reason.JOBS_RUNNING}: {explaining.blocked(blocked, AT.timestamp(), None).next}"


def rendered() -> Iterator[str]:
    """Yield all sentences."""
    yield from sentences(messages)
    yield from (f"{reason}: {text}" for reason in AnswerReason if (text := steady(reason)))
    yield from reservations()
    yield from pods()
    yield from sentences(write_messages)
    yield from (f"failed: {write_messages.failed(verb, what, ERROR)}" for verb, what in WRITES)
    yield from (f"drain {cause}: {drain_reason(cause, 'slurm', 'gpu')}" for cause in RemovalCause)
    yield from next_steps()


def test_sentences() -> None:
    """The golden file has every sentence of the NodeSet controller."""
    message_golden.compare("NodeSet", rendered())


@pytest.mark.parametrize(("number", "text"), [(0, "0 pods (a, …)"), (1, "1 pod (a)"), (2, "2 pods (a, …)")])
def test_counts_are_grammatical(number: int, text: str) -> None:
    """One thing is singular, and other numbers are plural."""
    assert messages.some(number, "pod", "a") == text
    assert text.startswith(messages.count(number, "pod"))


def test_answers_of_slurm_have_a_reason() -> None:
    """Every answer about a node translates into a reason for which an action can wait."""
    for reason in AnswerReason:
        assert reason in BLOCKING or steady(reason) or reason is AnswerReason.DRAINED
