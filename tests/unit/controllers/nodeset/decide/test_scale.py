from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import CreatePod, DeletePod, DrainNodes, RemovalCause
from slurm_operator.controllers.nodeset.decide.observation import Revision
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.scale import deletion_cost, scale_in_order
from slurm_operator.controllers.nodeset.decide.update import max_unavailable
from slurm_operator.kube.models.meta import Condition
from slurm_operator.objects.slurmd_marks import comment
from tests.support.simulation.kubernetes import make_node, make_nodeset
from tests.support.simulation.observations import READY, observe, pod, slurm_state, worker
from tests.support.slurm.views import NOW, drained_node, node

GUARDED = (wellknown.FINALIZER_DRAIN,)
BY = wellknown.ANNOTATION_POD_CORDON_BY
CORDON = wellknown.ANNOTATION_POD_CORDON


def created(seen: Any) -> list[str]:
    return [action.name for action in plan(seen).actions if isinstance(action, CreatePod)]


def going(seen: Any) -> dict[str, RemovalCause]:
    return plan(seen).going


def test_the_lowest_free_numbers_are_filled_first() -> None:
    """A gap is filled before the set grows at its end."""
    nodeset = make_nodeset(replicas=4, ordinalPadding=3, finalizers=GUARDED)
    assert created(observe(pod(1), pod(5), nodeset=nodeset)) == ["gpu-000", "gpu-002"]


def test_a_number_is_taken_until_its_pod_is_gone() -> None:
    """A pod that terminates counts, and its replacement waits for its name."""
    nodeset = make_nodeset(replicas=2, finalizers=GUARDED)
    assert created(observe(pod(0), pod(1, deleting=True), nodeset=nodeset)) == []
    assert created(observe(pod(0), nodeset=nodeset)) == ["gpu-1"]


def test_pods_are_created_without_any_answer_from_slurm() -> None:
    """Scaling out needs no connection."""
    assert created(observe(nodeset=make_nodeset(replicas=2), view=None)) == ["gpu-0", "gpu-1"]


def test_nobody_is_counted_while_the_cache_is_behind() -> None:
    """Between a write and its event a count would be wrong in both directions."""
    nodeset = make_nodeset(replicas=1, finalizers=GUARDED)
    slurm = tuple(drained_node(f"gpu-{index}") for index in range(3))
    decided = plan(observe(pod(0), pod(1), pod(2), slurm=slurm, nodeset=nodeset, settled=False))
    assert not [one for one in decided.actions if isinstance(one, (CreatePod, DeletePod, DrainNodes))]


def test_pods_that_terminate_count_as_scaled_in() -> None:
    """One that is on its way out is not replaced in the count by another victim."""
    nodeset = make_nodeset(replicas=1, finalizers=GUARDED)
    assert going(observe(pod(0), pod(1, deleting=True), nodeset=nodeset)) == {}


BUSY_NODES = (node("gpu-0", "MIXED", alloc=1), node("gpu-1", "MIXED", alloc=1))
IDLE_NODES = (node("gpu-0"), node("gpu-1"))


@pytest.mark.parametrize(
    ("first", "second", "slurm"),
    [
        ({"node": "", "phase": "Pending", "ready_since": None}, {}, IDLE_NODES),
        ({"phase": "Pending", "ready_since": None}, {}, IDLE_NODES),
        ({"ready_since": None}, {}, IDLE_NODES),
        ({}, {}, (node("gpu-0"), node("gpu-1", "MIXED", alloc=1))),
        ({"annotations": {wellknown.ANNOTATION_POD_DELETION_COST: "-1"}}, {}, IDLE_NODES),
        ({"annotations": {CORDON: "true", BY: "ScaleIn"}}, {}, BUSY_NODES),
        ({"annotations": {CORDON: "true", BY: "ScaleIn"}}, {}, ()),
        ({}, {"annotations": {wellknown.ANNOTATION_POD_DEADLINE: "2026-01-02T00:00:00Z"}}, BUSY_NODES),
        ({"annotations": {CORDON: "true"}}, {}, BUSY_NODES),
    ],
)
def test_who_goes_first(first: dict[str, Any], second: dict[str, Any], slurm: Any) -> None:
    """Unscheduled, pending, not ready, idle, cheap, already chosen, soon free, cordoned: in this order."""
    workers = [worker(1, **second), worker(0, **first)]
    assert scale_in_order(workers, slurm_state(*slurm), RemovalCause.SCALE_IN)[0].name == "gpu-0"


def test_among_equals_the_highest_number_goes_first() -> None:
    """As in a StatefulSet."""
    workers = [worker(0), worker(2), worker(1)]
    ordered = scale_in_order(
        workers, slurm_state(node("gpu-0"), node("gpu-1"), node("gpu-2")), RemovalCause.SCALE_IN
    )
    assert [one.name for one in ordered] == ["gpu-2", "gpu-1", "gpu-0"]


COST = wellknown.ANNOTATION_POD_DELETION_COST


@pytest.mark.parametrize(
    ("costs", "busy", "order"),
    [
        # An idle worker goes before a busy one, whatever a person says that each costs.
        ({0: "100"}, {1}, ["gpu-0", "gpu-1"]),
        ({0: "100", 1: "-100"}, {1}, ["gpu-0", "gpu-1"]),
        # Among busy ones, and among idle ones, the cost decides before the number.
        ({0: "-1"}, {0, 1}, ["gpu-0", "gpu-1"]),
        ({1: "5"}, {0, 1}, ["gpu-0", "gpu-1"]),
        ({0: "-1"}, set(), ["gpu-0", "gpu-1"]),
        ({0: "-1", 2: "-2"}, {0, 1, 2}, ["gpu-2", "gpu-0", "gpu-1"]),
        ({0: "-1", 2: "-2"}, {1, 2}, ["gpu-0", "gpu-2", "gpu-1"]),
    ],
)
def test_a_deletion_cost_orders_among_idle_and_among_busy_workers(
    costs: dict[int, str], busy: set[int], order: list[str]
) -> None:
    """What is idle is gone at once, so it goes first; the cost decides among what is left."""
    numbers = range(len(order))
    workers = [worker(one, annotations={COST: costs[one]} if one in costs else {}) for one in numbers]
    slurm = [node(f"gpu-{one}", *(("MIXED",) if one in busy else ())) for one in numbers]
    ordered = scale_in_order(workers, slurm_state(*slurm), RemovalCause.SCALE_IN)
    assert [one.name for one in ordered] == order
    for most in range(len(order) + 2):
        first = scale_in_order(workers, slurm_state(*slurm), RemovalCause.SCALE_IN, most)
        assert [one.name for one in first] == order[:most]


def test_a_busy_worker_with_a_low_cost_is_drained_and_an_idle_one_stays_if_no_more_go() -> None:
    """Of a busy and an idle worker the idle one is scaled in, and the busy one keeps taking jobs."""
    nodeset = make_nodeset(replicas=1, finalizers=GUARDED)
    slurm = (node("gpu-0"), node("gpu-1", "MIXED", alloc=1))
    cheap = pod(1, annotations={COST: "-100"})
    decided = plan(observe(pod(0), cheap, slurm=slurm, nodeset=nodeset))
    assert decided.going == {"uid-0": RemovalCause.SCALE_IN}


@pytest.mark.parametrize(
    ("text", "cost"),
    [("5", 5), ("-5", -5), ("+5", 0), ("05", 0), ("0", 0), ("x", 0), ("", 0), ("2147483648", 0), ("٣", 0)],
)
def test_a_deletion_cost_is_a_plain_number_of_32_bits(text: str, cost: int) -> None:
    """What is no number costs nothing."""
    assert deletion_cost(worker(annotations={wellknown.ANNOTATION_POD_DELETION_COST: text})) == cost


def test_one_request_drains_all_that_scale_in() -> None:
    """The reason names the NodeSet, not the pod, so that equal writes are one."""
    nodeset = make_nodeset(replicas=0, finalizers=GUARDED)
    seen = observe(pod(0), pod(1), slurm=IDLE_NODES, nodeset=nodeset)
    drains = [one for one in plan(seen).actions if isinstance(one, DrainNodes)]
    assert drains == [DrainNodes("NodeSet (slurm/gpu) scales in", ("gpu-0", "gpu-1"))]


def test_a_pod_that_waits_for_a_node_that_is_gone_is_recreated() -> None:
    """Only the operator removes it; a Kubernetes node that takes no pods now is waited for."""
    nodeset = make_nodeset(replicas=1, pinToNode=True, finalizers=GUARDED)
    waits = pod(0, node="", target="node-7", phase="Pending", started=False, ready_since=None)
    cordoned = {"node-7": make_node("node-7", cordoned=True)}
    assert going(observe(waits, nodeset=nodeset)) == {"uid-0": RemovalCause.NODE_UNFIT}
    assert going(observe(waits, nodeset=nodeset, nodes=cordoned)) == {}


def test_a_pinned_number_returns_to_its_node_if_that_still_suits() -> None:
    """ordinalToNode decides where a replacement goes, as long as the node is there."""
    nodeset = make_nodeset(replicas=2, pinToNode=True, finalizers=GUARDED)
    status = msgspec.structs.replace(nodeset.status, ordinal_to_node={"0": "node-7", "1": "gone"})
    nodeset = msgspec.structs.replace(nodeset, status=status)
    decided = plan(observe(nodeset=nodeset, nodes={"node-7": make_node("node-7")}))
    assert [one.pin for one in decided.actions if isinstance(one, CreatePod)] == ["node-7", ""]


# --- updates


def updating(**fields: Any) -> Any:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": fields.pop("most", 1)}}
    return make_nodeset(replicas=4, finalizers=GUARDED, updateStrategy=strategy, **fields)


def test_old_pods_that_do_not_serve_go_first_and_count() -> None:
    """An unhealthy old pod is replaced without asking, and uses up what may be unavailable."""
    old: dict[str, Any] = {"revision": "r0"}
    pods = [pod(0, **old), pod(1, **old, ready_since=None), pod(2, **old), pod(3, **old)]
    assert going(observe(*pods, nodeset=updating())) == {"uid-1": RemovalCause.UPDATE}


def test_a_new_pod_that_is_not_available_yet_counts() -> None:
    """The next old pod goes when the new one has been ready for minReadySeconds."""
    young = pod(0, ready_since=NOW - 5)
    rest = [pod(index, revision="r0") for index in (1, 2, 3)]
    seen = observe(young, *rest, nodeset=updating(minReadySeconds=30))
    assert going(seen) == {}
    assert plan(seen).requeue == 25.0
    assert len(going(observe(pod(0), *rest, nodeset=updating(minReadySeconds=30)))) == 1


def test_a_missing_pod_counts() -> None:
    """What is not there is not available."""
    assert going(observe(*(pod(index, revision="r0") for index in (0, 1, 2)), nodeset=updating())) == {}


def test_what_is_already_draining_stays_chosen() -> None:
    """Each reconcile chooses the pods that the one before has chosen, whatever became idle since."""
    begun = pod(2, revision="r0", annotations={CORDON: "true", BY: "Update"})
    pods = [pod(0, revision="r0"), pod(1, revision="r0"), begun, pod(3, revision="r0")]
    slurm = (*IDLE_NODES, node("gpu-2", "MIXED", "DRAIN", alloc=1, reason="slurm-operator: x"), node("gpu-3"))
    assert going(observe(*pods, nodeset=updating(), slurm=slurm)) == {"uid-2": RemovalCause.UPDATE}


def test_pods_of_an_equal_revision_are_not_replaced() -> None:
    """A hash that means the same is as good as the newest."""
    same = Revision("r2", frozenset({"r1", "r2"}))
    assert going(observe(*(pod(index) for index in range(4)), nodeset=updating(), revision=same)) == {}


def test_on_delete_replaces_nothing() -> None:
    """Only who deletes a pod updates it."""
    nodeset = make_nodeset(replicas=1, finalizers=GUARDED, updateStrategy={"type": "OnDelete"})
    assert going(observe(pod(0, revision="r0", ready_since=None), nodeset=nodeset)) == {}


def test_a_scheduled_update_replaces_what_is_in_its_window() -> None:
    """MAINTENANCE under the NodeSet's own reservation, and nothing else."""
    strategy = {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": "2026-01-01T00:00:00Z", "duration": "1h"},
    }
    nodeset = make_nodeset(replicas=2, finalizers=GUARDED, updateStrategy=strategy)
    inside = node("gpu-0", "IDLE", "MAINTENANCE", reservation="SlurmOperatorMaint-gpu")
    other = node("gpu-1", "IDLE", "MAINTENANCE", reservation="root_1")
    seen = observe(pod(0, revision="r0"), pod(1, revision="r0"), slurm=(inside, other), nodeset=nodeset)
    assert going(seen) == {"uid-0": RemovalCause.UPDATE}


def test_a_worker_in_its_window_stays_chosen_while_its_node_is_unknown() -> None:
    """Between a drain and the list that shows it, no scheduled update is taken back."""
    strategy = {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": "2026-01-01T00:00:00Z", "duration": "1h"},
    }
    nodeset = make_nodeset(replicas=2, finalizers=GUARDED, updateStrategy=strategy)
    begun = pod(0, revision="r0", annotations={CORDON: "true", BY: RemovalCause.UPDATE.value})
    slurm = (node("gpu-0"), node("gpu-1"))
    seen = observe(begun, pod(1, revision="r0"), slurm=slurm, nodeset=nodeset)
    assert going(seen) == {}
    blind = dict.fromkeys(("gpu-0", "gpu-1"), math.inf)
    assert going(dataclasses.replace(seen, written=blind)) == {"uid-0": RemovalCause.UPDATE}


@pytest.mark.parametrize(
    ("value", "total", "most"),
    [(3, 10, 3), (0, 10, 1), ("25%", 10, 3), ("25%", 0, 1), ("1%", 10, 1), ("x", 10, 1), ("100%", 7, 7)],
)
def test_max_unavailable_is_rounded_up_and_at_least_one(value: int | str, total: int, most: int) -> None:
    """An update with nothing to spend would never end."""
    assert max_unavailable(observe(nodeset=updating(most=value)), total) == most


def test_pods_of_the_other_scaling_mode_go() -> None:
    """A change of mode replaces everybody, drained first."""
    daemon = pod(7, mode="DaemonSet", index="", name="gpu-xyz", hostname="node-7")
    decided = plan(observe(daemon, nodeset=make_nodeset(replicas=1, finalizers=GUARDED)))
    assert decided.going == {"uid-7": RemovalCause.SCALING_MODE}
    assert [one.name for one in decided.actions if isinstance(one, CreatePod)] == ["gpu-0"]


def test_a_set_that_is_as_it_should_be_has_an_empty_plan() -> None:
    """A thousand settled workers, and nothing to do."""
    count = 1000
    nodeset = make_nodeset(replicas=count, finalizers=GUARDED)
    pods = []
    slurm = []
    for index in range(count):
        one = pod(index, created=READY)
        one.conditions = {"SlurmNodeStateIdle": Condition(type="SlurmNodeStateIdle", status="True")}
        pods.append(one)
        slurm.append(node(f"gpu-{index}", comment=comment(nodeset, one.show())))
    decided = plan(observe(*pods, slurm=tuple(slurm), nodeset=nodeset))
    assert decided.actions == ()
    assert decided.blocked == ()
    assert decided.requeue is None
