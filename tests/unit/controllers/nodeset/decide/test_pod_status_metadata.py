"""What is kept beside the pods: claims, records in Slurm, labels, comments."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages, observation
from slurm_operator.controllers.nodeset.decide.actions import (
    CreatePod,
    DeletePod,
    DeleteRecord,
    OwnClaim,
    PatchPod,
    RestoreClaims,
    WriteNodes,
)
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.kube.models.kinds import PersistentVolumeClaim
from slurm_operator.slurm.decide.node_changes import Features, Topology
from tests.support.simulation.kubernetes import UID, make_node, make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, drained_node, job, jobs, node, view

GUARDED = (wellknown.FINALIZER_DRAIN,)
TEMPLATES = [{"metadata": {"name": "scratch"}, "spec": {}}]
COMMENT = (
    f'{{"namespace":"slurm","podName":"gpu-1","node":"node-1","nodeSetName":"gpu","nodeSetUID":"{UID}"}}'
)


def of(decided: Plan, kind: type) -> list[Any]:
    return [one for one in decided.actions if isinstance(one, kind)]


def claim(*owners: dict[str, Any], deleting: bool = False) -> dict[str, PersistentVolumeClaim]:
    meta: dict[str, Any] = {"name": "scratch-gpu-0", "uid": "claim-uid", "ownerReferences": list(owners)}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"scratch-gpu-0": msgspec.convert({"metadata": meta}, PersistentVolumeClaim)}


def claiming(replicas: int, **fields: Any) -> Any:
    policy = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    return make_nodeset(
        replicas=replicas,
        finalizers=GUARDED,
        volumeClaimTemplates=TEMPLATES,
        persistentVolumeClaimRetentionPolicy=policy,
        **fields,
    )


WAITING: dict[str, Any] = {
    "phase": "Pending",
    "ready_since": None,
    "started": False,
    "mounts": ("scratch-gpu-0", "data"),
}


@pytest.mark.parametrize("node_name", ["", "node-0"], ids=["unscheduled", "scheduled"])
def test_a_claim_that_disappeared_under_a_waiting_pod_is_made_again(node_name: str) -> None:
    """Neither scheduler nor kubelet goes on without it; a claim of the user's own is not touched."""
    waiting = pod(0, node=node_name, **WAITING)
    decided = plan(observe(waiting, nodeset=claiming(1)))
    assert of(decided, RestoreClaims) == [RestoreClaims("gpu-0", "0", ("scratch-gpu-0",))]


@pytest.mark.parametrize(
    ("fields", "claims", "replicas"),
    [
        ({}, {"deleting": True}, 1),
        ({}, {}, 1),
        ({"phase": "Running", "started": True}, None, 1),
        ({"deleting": True}, None, 1),
        ({"mounts": ()}, None, 1),
        ({}, None, 0),
    ],
    ids=["on its way out", "there", "running", "terminating", "not mounted", "scaled in"],
)
def test_no_other_claim_is_made_again(
    fields: dict[str, Any], claims: dict[str, Any] | None, replicas: int
) -> None:
    """What is still there, was never asked for, or goes with a worker that is scaled in stays gone."""
    known = {} if claims is None else claim(**claims)
    decided = plan(observe(pod(0, **(WAITING | fields)), nodeset=claiming(replicas), claims=known))
    assert of(decided, RestoreClaims) == []


def test_claims_of_a_deleted_nodeset_are_not_made_again() -> None:
    """The retention policy has just deleted them, or is about to."""
    decided = plan(observe(pod(0, **WAITING), nodeset=claiming(1, deleting=True)))
    assert of(decided, RestoreClaims) == []


def test_templates_that_cannot_be_used_restore_nothing() -> None:
    """A template without a name is told by the one who makes pods; the plan goes on."""
    broken = make_nodeset(replicas=1, finalizers=GUARDED, volumeClaimTemplates=[{"spec": {}}])
    assert of(plan(observe(pod(0, **WAITING), nodeset=broken)), RestoreClaims) == []


OWNED = {"apiVersion": "v1", "kind": "Pod", "name": "gpu-0", "uid": "uid-0", "controller": True}


def test_the_owner_of_a_claim_is_set_before_its_pod_goes() -> None:
    """Deleted earlier, the pod would leave behind a claim that nobody collects."""
    slurm = (drained_node("gpu-0"),)
    before = plan(observe(pod(0), slurm=slurm, nodeset=claiming(0), claims=claim()))
    assert of(before, OwnClaim)
    assert not of(before, DeletePod)
    assert [one.wait.reason for one in before.blocked] == [Reason.CLAIMS_PENDING]
    after = plan(observe(pod(0), slurm=slurm, nodeset=claiming(0), claims=claim(OWNED)))
    assert not of(after, OwnClaim)
    assert of(after, DeletePod)


def test_a_cordoned_or_updated_pod_does_not_own_its_claim() -> None:
    """Only a scale-in gives up data: what was taken for one is given back when the pod stays."""
    cordoned = pod(0, annotations={wellknown.ANNOTATION_POD_CORDON: "true"})
    assert not of(plan(observe(cordoned, nodeset=claiming(1), claims=claim())), OwnClaim)
    old = pod(0, revision="r0")
    assert not of(plan(observe(old, nodeset=claiming(1), claims=claim())), OwnClaim)
    assert of(plan(observe(pod(0), nodeset=claiming(1), claims=claim(OWNED))), OwnClaim)


@pytest.mark.parametrize("leaving", [claim(deleting=True), claim(OWNED)])
def test_a_new_pod_waits_for_a_claim_that_is_on_its_way_out(leaving: Any) -> None:
    """It would lose its volume under its feet."""
    decided = plan(observe(nodeset=claiming(1), claims=leaving))
    assert not of(decided, CreatePod)
    assert [wait.reason for wait in decided.waits] == [Reason.CLAIMS_PENDING]


def test_a_claim_of_somebody_else_is_left_alone_and_told_once() -> None:
    """Two controllers of one claim would take it from each other; a person has to say whose it is."""
    theirs = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": True}
    nodeset = claiming(1)
    first = observe(pod(0), slurm=(node("gpu-0"),), nodeset=nodeset, claims=claim(theirs))
    decided = plan(first)
    assert not of(decided, OwnClaim)
    text = messages.claim_conflict("scratch-gpu-0", "StatefulSet db")
    assert [(note.reason, note.message) for note in decided.notes] == [("ConflictingController", text)]
    told = report(first, decided)
    status = msgspec.structs.replace(nodeset.status, conditions=told.conditions)
    again = msgspec.structs.replace(nodeset, status=status)
    assert not plan(observe(pod(0), slurm=(node("gpu-0"),), nodeset=again, claims=claim(theirs))).notes


# --- records


def pruned(slurm: Any, *pods: Any, policy: str = "ScaledIn", **fields: Any) -> list[str]:
    nodeset = make_nodeset(replicas=1, finalizers=GUARDED, pruneSlurmNodeRecords=policy, **fields)
    decided = plan(observe(*(pods or (pod(0),)), slurm=(node("gpu-0"), slurm), nodeset=nodeset))
    return [one.name for one in of(decided, DeleteRecord)]


GONE = node("gpu-1", "DOWN", "NOT_RESPONDING", comment=COMMENT)


def test_records_of_workers_that_were_scaled_in_are_deleted_when_asked() -> None:
    """And only when asked, and only when all wanted workers are there."""
    assert pruned(GONE) == ["gpu-1"]
    assert pruned(GONE, policy="Never") == []
    assert pruned(GONE, policy="NodeNotFound") == []
    assert pruned(GONE, pod(0), pod(1, deleting=True)) == []


@pytest.mark.parametrize(
    "record",
    [
        node("gpu-1", comment=COMMENT),
        node("gpu-1", "DOWN", "DRAIN", comment=COMMENT, reason="bad disk"),
        node("gpu-1", "DOWN", comment=COMMENT.replace(UID, "another")),
        node("gpu-1", "DOWN", comment=""),
        node("gpu-1", "DOWN", comment=COMMENT, alloc=1),
    ],
)
def test_a_record_that_may_matter_to_somebody_stays(record: Any) -> None:
    """Up, drained by a person, somebody else's, nobody's, or busy."""
    assert pruned(record) == []


def test_the_record_of_a_node_that_is_gone_is_deleted_in_daemon_mode() -> None:
    """NodeNotFound: the Kubernetes node is not there, or is called otherwise now."""
    nodeset = make_nodeset(scalingMode="DaemonSet", finalizers=GUARDED, pruneSlurmNodeRecords="NodeNotFound")
    gone = observe(slurm=(GONE,), nodeset=nodeset)
    there = observe(
        slurm=(msgspec.structs.replace(GONE, name="node-1"),),
        nodeset=nodeset,
        nodes={"node-1": make_node("node-1", cordoned=True)},
    )
    assert [one.name for one in of(plan(gone), DeleteRecord)] == ["gpu-1"]
    assert not of(plan(there), DeleteRecord)


# --- upkeep


def patch_of(decided: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    found = of(decided, PatchPod)
    return (dict(found[0].labels), dict(found[0].annotations)) if found else ({}, {})


PROTECT, DEADLINE = wellknown.LABEL_POD_PROTECT, wellknown.ANNOTATION_POD_DEADLINE


def test_a_busy_worker_says_until_when() -> None:
    """The latest end of its jobs is an annotation."""
    seen = view(node("gpu-0", "MIXED", alloc=1), jobs=jobs(job(7, "gpu-0")))
    labels, annotations = patch_of(plan(observe(pod(0), view=seen)))
    assert labels == {}
    assert annotations == {DEADLINE: "1970-01-01T03:46:40Z"}


def test_a_deadline_outlives_an_outage() -> None:
    """While Slurm cannot be asked, the end of the jobs that were last seen stays."""
    busy = pod(0, annotations={DEADLINE: observation.NO_DEADLINE})
    assert patch_of(plan(observe(busy, view=None))) == ({}, {})
    assert patch_of(plan(observe(busy, view=view(listed_at=NOW - 100)))) == ({}, {})
    assert patch_of(plan(observe(busy, slurm=(node("gpu-0"),)))) == ({}, {DEADLINE: None})


def test_a_nodeset_without_protection_protects_nobody() -> None:
    """workloadDisruptionProtection: false removes the label also from busy workers."""
    nodeset = make_nodeset(replicas=1, finalizers=GUARDED, workloadDisruptionProtection=False)
    busy = pod(0, labels={PROTECT: "true"})
    seen = observe(busy, slurm=(node("gpu-0", "MIXED", alloc=1),), nodeset=nodeset)
    assert patch_of(plan(seen))[0] == {PROTECT: None}


def test_topology_and_features_of_the_node_reach_slurm() -> None:
    """The annotations of the Kubernetes node, with our prefix on features."""
    where = {wellknown.ANNOTATION_TOPOLOGY: "block:b1", wellknown.ANNOTATION_NODE_FEATURES: "b, a,a"}
    kube_node = make_node("node-0", annotations=where)
    decided = plan(observe(pod(0), slurm=(node("gpu-0"),), nodes={"node-0": kube_node}))
    changes = [change for write in of(decided, WriteNodes) for change in write.changes.values()]
    assert Topology("block:b1") in changes
    assert Features(("a", "b"), "k8s/") in changes
    assert patch_of(decided)[1] == {wellknown.ANNOTATION_TOPOLOGY: "block:b1"}


def test_a_topology_is_cleared_in_slurm_before_the_pod_forgets_it() -> None:
    """Slurm's own topology is never cleared: only one that the pod says came from here."""
    before = node("gpu-0", topology="block:b1")
    nodes = {"node-0": make_node("node-0")}
    remembers = pod(0, annotations={wellknown.ANNOTATION_TOPOLOGY: "block:b1"})
    first = plan(observe(remembers, slurm=(before,), nodes=nodes))
    assert Topology("") in [change for write in of(first, WriteNodes) for change in write.changes.values()]
    assert patch_of(first)[1] == {}
    second = plan(observe(remembers, slurm=(node("gpu-0"),), nodes=nodes))
    assert patch_of(second)[1] == {wellknown.ANNOTATION_TOPOLOGY: None}
    untouched = plan(observe(pod(0), slurm=(before,), nodes=nodes))
    assert Topology("") not in [
        change for write in of(untouched, WriteNodes) for change in write.changes.values()
    ]
