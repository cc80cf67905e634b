"""Who is protected from Kubernetes, and who loses that; see also the histories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import (
    DeletePod,
    DrainNodes,
    PatchPod,
    ReleasePod,
    ResumeNodes,
    UndrainNodes,
)
from slurm_operator.controllers.nodeset.decide.deletion import confirm
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.slurm.decide.node_list_trust import Evidence
from slurm_operator.slurm.model.view import ClusterView
from tests.support.simulation.kubernetes import SimPod, make_node, make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, drained_node, node, number, view

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.slurm.model.records import Node

PROTECT = wellknown.LABEL_POD_PROTECT
CORDON, BY = wellknown.ANNOTATION_POD_CORDON, wellknown.ANNOTATION_POD_CORDON_BY
OURS = "slurm-operator: NodeSet (slurm/gpu) has this node on a Kubernetes node that was cordoned"
CORDONED = {"node-0": make_node("node-0", cordoned=True)}
FREE = {"node-0": make_node("node-0")}
MARKED = {CORDON: "true", BY: "NodeCordoned"}


def of(decided: Plan, kind: type[Any]) -> list[Any]:
    return [one for one in decided.actions if isinstance(one, kind)]


def label(decided: Plan) -> str | None:
    """Return what the plan does to the label: the value that it sets, or empty if it leaves it alone."""
    found = [one.labels[PROTECT] for one in of(decided, PatchPod) if PROTECT in one.labels]
    return found[0] if found else ""


def cordoned(one: SimPod | None = None, *slurm: Node, **fields: Any) -> Observation:
    """Return a worker on a cordoned node, as it is after the operator has noticed."""
    worker = pod(0, annotations=MARKED) if one is None else one
    return observe(worker, **({"slurm": slurm, "nodes": CORDONED} | fields))


@pytest.mark.parametrize(
    "seen",
    [
        {"slurm": (node("gpu-0"),)},
        {"slurm": (node("gpu-0", "MIXED", alloc=1),)},
        {"slurm": (drained_node("gpu-0"),)},
        {"slurm": ()},
        {"view": None},
        {"view": ClusterView()},
        {"view": view(node("gpu-0"), listed_at=NOW - 100)},
    ],
)
def test_every_worker_is_protected_whatever_slurm_says(seen: dict[str, Any]) -> None:
    """Busy, idle or unknown: one without the label gets it, and one with it keeps it."""
    assert label(plan(observe(pod(0, protected=False), **seen))) == "true"
    kept = plan(observe(pod(0), **seen))
    assert label(kept) == ""
    assert not of(kept, ReleasePod)


def test_a_cordoned_worker_is_released_when_its_node_is_drained_and_idle() -> None:
    """Only then may `kubectl drain` evict it; the pod must not have changed since."""
    seen = cordoned(None, drained_node("gpu-0"))
    decided = plan(seen)
    assert of(decided, ReleasePod) == [ReleasePod("gpu-0", "uid-0", "gpu-0", "1")]
    assert not of(decided, DeletePod)
    assert confirm(seen, tuple(of(decided, ReleasePod))) == tuple(of(decided, ReleasePod))


@pytest.mark.parametrize(
    "seen",
    [
        {"slurm": (node("gpu-0"),)},
        {"slurm": (node("gpu-0", "MIXED", "DRAIN", alloc=1),)},
        {"slurm": (node("gpu-0", "IDLE", "DRAIN", "COMPLETING"),)},
        {"view": None},
        {"view": view(drained_node("gpu-0"), listed_at=NOW - 100)},
        {"view": view(drained_node("gpu-0"), jobs_listed_at=None)},
        {"slurm": (drained_node("gpu-0"),), "written": {"gpu-0": NOW}},
    ],
)
def test_a_cordoned_worker_is_not_released_on_less(seen: dict[str, Any]) -> None:
    """No answer, an old answer, half an answer: none of them lets Kubernetes remove the pod."""
    before = cordoned(None, drained_node("gpu-0"))
    decided = tuple(of(plan(before), ReleasePod))
    assert not of(plan(cordoned(None, **seen)), ReleasePod)
    assert confirm(cordoned(None, **seen), decided) == ()
    bare = pod(0, protected=False, annotations=MARKED)
    assert label(plan(cordoned(bare, **seen))) == "true"


def test_a_worker_that_slurm_does_not_list_is_not_released_but_deleted() -> None:
    """Its slurmd may register at any moment, and then nothing would keep work from it."""
    gone: dict[str, Any] = {"view": view(others=Evidence(5, 0.0))}
    decided = plan(cordoned(None, **gone))
    assert not of(decided, ReleasePod)
    assert [one.name for one in of(decided, DeletePod)] == ["gpu-0"]
    assert not of(plan(observe(pod(0), nodes=FREE, **gone)), DeletePod)


def test_a_worker_that_is_starting_on_a_cordoned_node_is_left_alone() -> None:
    """One that tolerates cordons may be made there: deleted before it registers, it would be made again."""
    starting = pod(0, phase="Pending", started=False, ready_since=None, created=NOW - 1)
    decided = plan(cordoned(starting, view=view(others=Evidence(5, 0.0))))
    assert decided.going == {}
    assert not of(decided, DeletePod)


def test_a_released_worker_stays_released_while_it_is_drained() -> None:
    """At rest nothing is written."""
    bare = pod(0, protected=False, annotations=MARKED)
    assert label(plan(cordoned(bare, drained_node("gpu-0", reason=OURS)))) == ""


def test_the_label_is_back_before_the_node_takes_work() -> None:
    """Uncordon: first one patch that takes the cordon away and protects, then the undrain."""
    back = node("gpu-0", "IDLE", "DRAIN", reason=OURS)
    first = plan(observe(pod(0, protected=False, annotations=MARKED), slurm=(back,), nodes=FREE))
    assert [(one.labels, one.annotations) for one in of(first, PatchPod)] == [
        ({PROTECT: "true"}, {CORDON: None, BY: None})
    ]
    assert not of(first, UndrainNodes)
    assert of(plan(observe(pod(0), slurm=(back,), nodes=FREE)), UndrainNodes)


def test_a_node_takes_no_work_while_a_release_may_be_under_way() -> None:
    """Its answer may be lost: only when the cordon is off the pod, no release of before has an effect."""
    back = node("gpu-0", "IDLE", "DRAIN", reason=OURS)
    down = node(
        "gpu-0",
        "DOWN",
        "DRAIN",
        reason=OURS,
        slurmd_start_time=number(200),
        reason_changed_at=number(100),
    )
    for slurm in (back, down):
        first = plan(observe(pod(0, annotations=MARKED), slurm=(slurm,), nodes=FREE))
        patch = of(first, PatchPod)[0]
        assert patch.annotations == {CORDON: None, BY: None}
        assert patch.version == "1"
        assert not of(first, UndrainNodes)
        assert not of(first, ResumeNodes)
    assert of(plan(observe(pod(0), slurm=(down,), nodes=FREE)), ResumeNodes)


def test_a_node_is_resumed_only_under_a_protected_worker() -> None:
    """A pod of an older version gets its label first."""
    down = node(
        "gpu-0",
        "DOWN",
        reason="slurm-operator: Pod is terminating",
        slurmd_start_time=number(200),
        reason_changed_at=number(100),
    )
    assert of(plan(observe(pod(0), slurm=(down,), nodes=FREE)), ResumeNodes)
    first = plan(observe(pod(0, protected=False), slurm=(down,), nodes=FREE))
    assert not of(first, ResumeNodes)
    assert label(first) == "true"


def test_a_person_may_give_up_the_protection_of_one_worker() -> None:
    """The override takes the label away at once, whatever runs."""
    over = {wellknown.ANNOTATION_ALLOW_DELETION: "true"}
    busy = (node("gpu-0", "MIXED", alloc=1),)
    assert label(plan(observe(pod(0, annotations=over), slurm=busy))) is None
    assert label(plan(observe(pod(0, protected=False, annotations=over), slurm=busy))) == ""


@pytest.mark.parametrize(
    "key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"]
)
def test_a_node_that_an_autoscaler_removes_counts_as_cordoned(key: str) -> None:
    """Its workers are drained as if a person had cordoned it."""
    leaving = make_node("node-0", taint=key)
    decided = plan(observe(pod(0, tolerates=key), slurm=(node("gpu-0"),), nodes={"node-0": leaving}))
    assert [one.names for one in of(decided, DrainNodes)] == [("gpu-0",)]


def test_nodesets_without_protection_are_left_alone() -> None:
    """workloadDisruptionProtection: false removes the label, and nothing waits for it."""
    off = make_nodeset(
        replicas=1, finalizers=("nodeset.slinky.slurm.net/drain",), workloadDisruptionProtection=False
    )
    assert label(plan(observe(pod(0), slurm=(node("gpu-0"),), nodeset=off))) is None
    back = node("gpu-0", "IDLE", "DRAIN", reason=OURS)
    bare = pod(0, protected=False)
    assert of(plan(observe(bare, slurm=(back,), nodes=FREE, nodeset=off)), UndrainNodes)


def test_a_worker_of_an_older_version_gets_label_and_tolerations_in_one_patch() -> None:
    """Both can be changed while it runs; the tolerations only if nothing else has changed the pod."""
    old = pod(0, protected=False, silent=300)
    patches = of(plan(observe(old, slurm=(node("gpu-0"),))), PatchPod)
    assert len(patches) == 1
    assert patches[0].labels == {PROTECT: "true"}
    assert patches[0].version == "1"
    assert [one.get("tolerationSeconds") for one in patches[0].tolerations[:2]] == [None, None]


def test_a_cordoned_worker_that_slurm_does_not_list_says_why_it_stays() -> None:
    """`kubectl drain` waits for it, so the pod says what it waits for."""
    young = pod(0, annotations=MARKED, ready_since=NOW - 5, created=NOW - 10)
    decided = plan(cordoned(young, view=view(others=Evidence(5, 0.0))))
    assert [one.wait.reason for one in decided.blocked] == [Reason.NODE_ABSENT]
    assert not of(decided, DeletePod)


def test_a_worker_without_the_label_of_its_cluster_gets_it() -> None:
    """The budget selects by it: without it the pod could be evicted."""
    bare = pod(0, labels={wellknown.LABEL_CLUSTER: ""})
    patches = of(plan(observe(bare, slurm=(node("gpu-0"),))), PatchPod)
    assert patches[0].labels == {wellknown.LABEL_CLUSTER: "slurm"}
