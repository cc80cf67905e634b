"""What Kubernetes or a person asks for is carried out: drained first, then deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import removal, wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import (
    DeletePod,
    DrainNodes,
    PatchPod,
    ReleasePod,
    RemovalCause,
)
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.kube.models.meta import Condition
from tests.support.simulation.kubernetes import make_node, make_nodeset, moment
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, drained_node, node

if TYPE_CHECKING:
    from slurm_operator.slurm.model.records import Node

REQUEST = wellknown.ANNOTATION_REMOVAL_REQUESTED
BUSY, DRAINED = (node("gpu-0", "MIXED", alloc=1),), (drained_node("gpu-0"),)


def of(decided: Plan, kind: type[Any]) -> list[Any]:
    return [one for one in decided.actions if isinstance(one, kind)]


def asked(seconds: float, by: str = "deletion by alice") -> dict[str, str]:
    """Return the request of so many seconds ago."""
    return {REQUEST: removal.text(moment(NOW - seconds), by)}


def evicted(seconds: float, *slurm: Node, **fields: Any) -> Plan:
    """Return the plan about a worker that somebody tried to evict so many seconds ago."""
    marks = {wellknown.ANNOTATION_POD_CORDON: "true", wellknown.ANNOTATION_POD_CORDON_BY: "RemovalRequested"}
    tried = pod(0, annotations=asked(seconds, "eviction by alice") | marks)
    return plan(observe(tried, slurm=slurm, **fields))


def disrupted(seconds: float, status: str = "True") -> dict[str, Condition]:
    return {
        "DisruptionTarget": Condition(
            type="DisruptionTarget",
            status=status,
            reason="PreemptionByScheduler",
            last_transition_time=moment(NOW - seconds),
        )
    }


def test_a_request_drains_a_busy_worker_and_deletes_an_idle_one() -> None:
    """A deletion that was refused happens when no job is in its way."""
    busy = plan(observe(pod(0, annotations=asked(5)), slurm=BUSY))
    assert busy.going == {"uid-0": RemovalCause.REQUESTED}
    assert [one.names for one in of(busy, DrainNodes)] == [("gpu-0",)]
    assert not of(busy, DeletePod)
    assert [one.reason for one in busy.notes] == ["RemovalRequested"]
    assert busy.requeue is not None
    assert busy.requeue <= 895
    idle = plan(observe(pod(0, annotations=asked(5)), slurm=DRAINED))
    assert [one.cause for one in of(idle, DeletePod)] == [RemovalCause.REQUESTED]


def test_an_eviction_is_left_to_its_client() -> None:
    """It tries again by name, and must meet this pod: deleted here, its next try would meet the new one."""
    first = plan(observe(pod(0, annotations=asked(1, "eviction by alice")), slurm=BUSY))
    assert first.going == {}
    assert [one.names for one in of(first, DrainNodes)] == [("gpu-0",)]
    assert [one.reason for one in first.notes] == ["RemovalRequested"]
    idle = evicted(40, *DRAINED)
    assert [one.name for one in of(idle, ReleasePod)] == ["gpu-0"]
    assert not of(idle, DeletePod)
    assert idle.requeue is not None
    assert idle.requeue <= 5


def test_an_eviction_that_is_not_tried_again_is_carried_out() -> None:
    """Unless the Kubernetes node is cordoned: then a drain is under way, and will come back."""
    assert [one.cause for one in of(evicted(46, *DRAINED), DeletePod)] == [RemovalCause.REQUESTED]
    leaving = {"node-0": make_node("node-0", cordoned=True)}
    for age in (1, 46, 899):
        drained = evicted(age, *DRAINED, nodes=leaving)
        assert not of(drained, DeletePod)
        assert of(drained, ReleasePod)


def test_a_worker_whose_eviction_was_given_up_returns_to_service() -> None:
    """When the request has expired, the label is back first, and then the drain is taken back."""
    ours = drained_node("gpu-0", reason="slurm-operator: NodeSet (slurm/gpu) was asked to remove the pod")
    decided = evicted(901, ours)
    assert not of(decided, DeletePod)
    assert not of(decided, ReleasePod)
    patch = of(decided, PatchPod)[0]
    assert patch.annotations[wellknown.ANNOTATION_POD_CORDON] is None
    assert patch.annotations[REQUEST] is None


def test_a_request_that_is_not_repeated_is_forgotten() -> None:
    """After fifteen minutes the worker stays, and the annotation goes unless it was written again."""
    decided = plan(observe(pod(0, annotations=asked(900)), slurm=BUSY))
    assert decided.going == {}
    patch = of(decided, PatchPod)[0]
    assert patch.annotations[REQUEST] is None
    assert patch.version == "1"


def test_a_disruption_is_recorded_because_kubernetes_takes_it_back() -> None:
    """The scheduler's wish outlives the condition, which ends after two minutes."""
    decided = plan(observe(pod(0, conditions=disrupted(3)), slurm=BUSY))
    assert decided.going == {"uid-0": RemovalCause.REQUESTED}
    said = of(decided, PatchPod)[0].annotations[REQUEST]
    assert said == removal.text(moment(NOW - 3), "Kubernetes: PreemptionByScheduler")
    later = pod(0, annotations={REQUEST: said}, conditions=disrupted(1, "False"))
    assert plan(observe(later, slurm=BUSY)).going == {"uid-0": RemovalCause.REQUESTED}
    again = pod(0, annotations={REQUEST: said}, conditions=disrupted(3))
    assert REQUEST not in dict(*(one.annotations for one in of(plan(observe(again, slurm=BUSY)), PatchPod)))


def test_an_old_disruption_ends_like_an_old_request() -> None:
    """A condition that nobody takes back does not keep a worker drained for ever."""
    old = pod(0, conditions=disrupted(1000))
    decided = plan(observe(old, slurm=BUSY))
    assert decided.going == {}
    assert all(REQUEST not in one.annotations for one in of(decided, PatchPod))


def test_a_taint_that_a_pod_does_not_tolerate_is_a_request() -> None:
    """NoExecute only, and not those of a kubelet that is silent."""

    def going(key: str, **fields: Any) -> dict[str, RemovalCause]:
        nodes = {"node-0": make_node("node-0", taint=key)}
        return plan(observe(pod(0, **fields), slurm=BUSY, nodes=nodes)).going

    assert going("bad-disk") == {"uid-0": RemovalCause.NODE_TAINT}
    assert going("bad-disk", tolerates="bad-disk") == {}
    assert going("node.kubernetes.io/unreachable") == {}
    assert going("node.kubernetes.io/not-ready") == {}


def test_a_taint_that_is_tolerated_for_some_time_drives_away_when_that_is_over() -> None:
    """Kubernetes announces it once; a job may take longer than a request lasts, and the taint stays."""
    asks = asked(1000, "Kubernetes: DeletionByTaintManager")
    tainted = {"node-0": make_node("node-0", taint="bad-disk")}
    limited = {"tolerates": "bad-disk", "tolerates_for": 60}

    def going(nodes: dict[str, Any], annotations: dict[str, str], **fields: Any) -> dict[str, RemovalCause]:
        decided = plan(observe(pod(0, annotations=annotations, **fields), slurm=BUSY, nodes=nodes))
        assert decided.requeue is None or decided.requeue > 5
        return decided.going

    assert going(tainted, asks, **limited) == {"uid-0": RemovalCause.REQUESTED}
    assert going(tainted, {}, **limited) == {}
    assert going(tainted, asks, tolerates="bad-disk") == {}
    assert going({"node-0": make_node("node-0")}, asks, **limited) == {}
    assert going(tainted, asked(1000, "Kubernetes: PreemptionByScheduler"), **limited) == {}


def test_a_worker_that_is_asked_to_go_is_the_one_that_a_scale_in_takes() -> None:
    """Among the idle ones: then nothing has to be replaced."""
    pods = (pod(0, annotations=asked(5)), pod(1))
    nodeset = make_nodeset(replicas=1, finalizers=("nodeset.slinky.slurm.net/drain",))
    decided = plan(observe(*pods, slurm=(node("gpu-0"), node("gpu-1")), nodeset=nodeset))
    assert decided.going == {"uid-0": RemovalCause.SCALE_IN}


@pytest.mark.parametrize("value", ["now", "", "9999-12-31T23:59:59Z x"])
def test_a_request_by_hand_needs_no_time(value: str) -> None:
    """Anything but an empty value holds until it is removed."""
    decided = plan(observe(pod(0, annotations={REQUEST: value}), slurm=BUSY))
    assert decided.going == ({"uid-0": RemovalCause.REQUESTED} if value else {})
    much_later = observe(
        pod(0, annotations={REQUEST: value}), slurm=BUSY, wall=moment(NOW) + timedelta(days=9)
    )
    assert plan(much_later).going == decided.going


@pytest.mark.parametrize("cordoned", [True, False], ids=["kubectl drain", "eviction"])
def test_an_eviction_of_a_failing_node_says_what_it_waits_for(cordoned: bool) -> None:  # noqa: FBT001 - a column
    """A node that is marked FAIL cannot be drained: the NodeSet says so, and what to do, until it can."""
    request = {wellknown.ANNOTATION_REMOVAL_REQUESTED: removal.text(moment(NOW), "eviction")}
    failing = node("gpu-0", "IDLE", "FAIL")
    nodes = {"node-0": make_node("node-0", cordoned=cordoned)}
    seen = observe(pod(0, annotations=request), slurm=(failing,), nodes=nodes)
    decided = plan(seen)
    assert not [one for one in decided.actions if isinstance(one, DrainNodes)]
    assert [(one.pod, one.wait.reason) for one in decided.blocked] == [("gpu-0", Reason.NODE_FAILING)]
    said = {one.type: one for one in report(seen, decided).conditions}
    degraded = said[wellknown.CONDITION_DEGRADED]
    assert degraded.reason == "NodeFailing"
    assert degraded.message == messages.blocked(1, messages.failing("gpu-0"))
    assert "1 NodeFailing" in said[wellknown.CONDITION_PROGRESSING].message


def test_an_eviction_while_slurm_is_silent_says_what_it_waits_for() -> None:
    """As a cordon does: whoever evicts has to know why nothing happens."""
    request = {wellknown.ANNOTATION_REMOVAL_REQUESTED: removal.text(moment(NOW), "eviction")}
    decided = plan(observe(pod(0, annotations=request), view=None))
    assert [(one.pod, one.wait.reason) for one in decided.blocked] == [("gpu-0", Reason.NO_CONNECTION)]
