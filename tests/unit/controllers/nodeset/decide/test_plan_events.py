"""Which events a plan tells of, each with its type and action; see docs/reference/events.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import removal, wellknown
from slurm_operator.controllers.nodeset.decide.observation import Revision
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.kube.models.kinds import PersistentVolumeClaim
from slurm_operator.slurm.decide.node_list_trust import Evidence
from tests.support.simulation.kubernetes import FIT, LABELS, UID, make_node, make_nodeset, moment
from tests.support.simulation.observations import observe, pod, shown
from tests.support.slurm.views import NOW, node, view

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation

GUARDED = (wellknown.FINALIZER_DRAIN,)
IDLE = (node("gpu-0"),)
DAEMON: dict[str, Any] = {"mode": "DaemonSet", "hostname": "node-0", "index": "", "target": "node-0"}


def told(seen: Observation) -> list[tuple[str, str, bool, str]]:
    """Return reason, action, whether it is a warning, and the pod of each event."""
    return [(one.reason, one.action, one.warning, one.pod) for one in plan(seen).notes]


def per_node(*pods: Any, slurm: Any = (), **annotations: str) -> Observation:
    """Return what is seen of a NodeSet with one Kubernetes node."""
    nodes = {"node-0": make_node("node-0", labels=LABELS, annotations=annotations)}
    nodeset = make_nodeset(scalingMode="DaemonSet", finalizers=GUARDED)
    return observe(*pods, slurm=slurm, nodeset=nodeset, nodes=nodes, fit=FIT)


def test_pods_that_are_made_are_told() -> None:
    """In both scaling modes."""
    assert told(observe(nodeset=make_nodeset(replicas=1))) == [("ScalingUp", "ScaleUp", False, "")]
    assert told(per_node()) == [("ScalingUp", "ScaleUp", False, "")]


def test_pods_that_are_too_many_are_told_once() -> None:
    """The mark of a pod that was chosen before says that it was told."""
    nodeset = make_nodeset(replicas=0, finalizers=GUARDED)
    assert told(observe(pod(0), slurm=IDLE, nodeset=nodeset)) == [("ScalingDown", "ScaleDown", False, "")]
    marks = {wellknown.ANNOTATION_POD_CORDON: "true", wellknown.ANNOTATION_POD_CORDON_BY: "ScaleIn"}
    assert told(observe(pod(0, annotations=marks), slurm=IDLE, nodeset=nodeset)) == []


def test_updates_are_told_by_their_strategy() -> None:
    """A window has another reason than a rolling update."""
    revision = Revision("r2", frozenset({"r2"}))
    assert told(observe(pod(0), slurm=IDLE, revision=revision)) == [
        ("RollingUpdate", "RollingUpdate", False, "")
    ]
    strategy = {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": "2026-01-01T00:00:00Z", "duration": "10m"},
    }
    nodeset = make_nodeset(replicas=1, updateStrategy=strategy, finalizers=GUARDED)
    old = pod(0, phase="Running", ready_since=None)
    scheduled = told(observe(old, slurm=IDLE, revision=revision, nodeset=nodeset))
    assert ("Scheduled Update", "ScheduledUpdate", False, "") in scheduled


def test_a_cordon_of_a_kubernetes_node_is_told() -> None:
    """With the pod that takes no new jobs."""
    nodes = {"node-0": make_node("node-0", cordoned=True)}
    assert told(observe(pod(0), slurm=IDLE, nodes=nodes)) == [("NodeCordon", "Cordon", False, "gpu-0")]


def test_a_request_to_remove_a_worker_is_told() -> None:
    """An eviction that was refused is carried out later, and people hear of it."""
    request = removal.text(moment(NOW), "eviction")
    asked = pod(0, annotations={wellknown.ANNOTATION_REMOVAL_REQUESTED: request})
    assert ("RemovalRequested", "Drain", False, "gpu-0") in told(observe(asked, slurm=IDLE))


def test_a_worker_that_is_called_otherwise_is_told() -> None:
    """A Kubernetes node got another name in Slurm."""
    override = {wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE: "other"}
    seen = per_node(pod(0, **DAEMON), slurm=(node("node-0"),), **override)
    assert told(seen) == [("HostnameMismatch", "Info", False, "gpu-0")]


def test_a_worker_of_a_node_that_ended_is_told_once() -> None:
    """The reasons of the Slinky slurm-operator, which records them in DaemonSet mode only."""
    ended: dict[str, Any] = {"ready_since": None, "finished_at": NOW - 60}
    failed = per_node(pod(0, phase="Failed", **ended, **DAEMON), slurm=(node("node-0"),))
    assert told(failed) == [("FailedDaemonPod", "Info", True, "gpu-0")]
    succeeded = per_node(pod(0, phase="Succeeded", **ended, **DAEMON), slurm=(node("node-0"),))
    assert told(succeeded) == [("SucceededDaemonPod", "Info", False, "gpu-0")]
    marks = {wellknown.ANNOTATION_POD_CORDON: "true", wellknown.ANNOTATION_POD_CORDON_BY: "PodFinished"}
    again = per_node(pod(0, phase="Failed", annotations=marks, **ended, **DAEMON), slurm=(node("node-0"),))
    assert told(again) == []
    numbered = observe(pod(0, phase="Failed", **ended), slurm=IDLE)
    assert told(numbered) == []


def test_a_worker_that_slurm_has_lost_is_told() -> None:
    """Before it is replaced."""
    lost = pod(0, conditions=shown("Idle"))
    seen = observe(lost, view=view(node("gpu-9"), others=Evidence(5, NOW - 300)))
    assert told(seen) == [("SlurmNodeNotRegistered", "Delete", True, "gpu-0")]


def test_a_record_that_is_deleted_is_told() -> None:
    """With pruning of scaled-in workers."""
    comment = (
        f'{{"namespace":"slurm","podName":"gpu-1","node":"node-1","nodeSetName":"gpu","nodeSetUID":"{UID}"}}'
    )
    nodeset = make_nodeset(replicas=1, pruneSlurmNodeRecords="ScaledIn", finalizers=GUARDED)
    slurm = (*IDLE, node("gpu-1", "DOWN", "NOT_RESPONDING", comment=comment))
    assert ("DefunctSlurmNodePruned", "Delete", False, "") in told(
        observe(pod(0), slurm=slurm, nodeset=nodeset)
    )


def test_a_claim_that_others_control_is_told() -> None:
    """Under the reason of the Slinky slurm-operator; the condition says ClaimConflict."""
    other = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "x", "controller": True}
    meta = {"name": "scratch-gpu-0", "uid": "claim-uid", "ownerReferences": [other]}
    claims = {"scratch-gpu-0": msgspec.convert({"metadata": meta}, PersistentVolumeClaim)}
    nodeset = make_nodeset(
        replicas=1,
        finalizers=GUARDED,
        volumeClaimTemplates=[{"metadata": {"name": "scratch"}, "spec": {}}],
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete"},
    )
    seen = observe(pod(0), slurm=IDLE, nodeset=nodeset, claims=claims)
    assert told(seen) == [("ConflictingController", "Info", True, "")]
