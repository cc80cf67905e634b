from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide import finalizer, messages, observation
from slurm_operator.controllers.nodeset.decide.actions import (
    AddFinalizer,
    DeletePod,
    DeleteReservation,
    PatchPod,
    RemoveFinalizer,
)
from slurm_operator.controllers.nodeset.decide.observation import ControllerState, NodeAnswer
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.kube.manifests.wire import BadObject
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import Key, ObjectMeta, OwnerReference
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, drained_node, node, view

UID = make_nodeset().metadata.uid
DRAIN, RESERVATION = wellknown.FINALIZER_DRAIN, wellknown.FINALIZER_RESERVATION


def leave(*pods: Any, slurm: Any = (), also: tuple[str, ...] = (), skip: bool = False, **fields: Any) -> Plan:
    nodeset = make_nodeset(replicas=1, deleting=True, finalizers=(DRAIN, *also))
    if skip:
        asked = {wellknown.ANNOTATION_SKIP_DRAIN: "true"}
        nodeset = msgspec.structs.replace(
            nodeset, metadata=msgspec.structs.replace(nodeset.metadata, annotations=asked)
        )
    return plan(observe(*pods, slurm=slurm, nodeset=nodeset, **fields))


def released(decided: Plan) -> list[str]:
    return [one.name for one in decided.actions if isinstance(one, RemoveFinalizer)]


def deleted(decided: Plan) -> list[str]:
    return [one.name for one in decided.actions if isinstance(one, DeletePod)]


def test_a_new_nodeset_is_guarded_before_it_has_pods() -> None:
    """The finalizer is the first thing that is written."""
    assert plan(observe(nodeset=make_nodeset(replicas=1))).actions[0] == AddFinalizer(DRAIN)


def test_a_deleted_nodeset_drains_first() -> None:
    """Busy workers keep the NodeSet; drained ones go."""
    decided = leave(pod(0), pod(1), slurm=(node("gpu-0", "MIXED", alloc=1), drained_node("gpu-1")))
    assert deleted(decided) == ["gpu-1"]
    assert released(decided) == []


def test_a_deleted_nodeset_waits_for_its_last_pod() -> None:
    """Also for one that only terminates."""
    assert released(leave(pod(0, deleting=True))) == []
    assert released(leave()) == [DRAIN]
    assert released(leave(settled=False)) == []


def test_a_deleted_nodeset_that_cannot_ask_slurm_waits() -> None:
    """No connection is no permission."""
    decided = leave(pod(0), view=None)
    assert deleted(decided) == released(decided) == []
    assert decided.blocked


def test_what_lets_a_nodeset_go_at_once() -> None:
    """The annotation, a Controller that goes too, and pods that are to be orphaned."""
    busy = (node("gpu-0", "MIXED", alloc=1),)
    bare = pod(0, protected=False)
    assert released(leave(bare, slurm=busy, skip=True)) == [DRAIN]
    assert released(leave(bare, slurm=busy, controller=ControllerState.LEAVES)) == [DRAIN]
    assert released(leave(bare, view=None, controller=ControllerState.GONE, also=(RESERVATION,))) == [
        DRAIN,
        RESERVATION,
    ]
    assert released(leave(pod(0), slurm=busy, also=("orphan",))) == [DRAIN]
    assert deleted(leave(pod(0), slurm=(drained_node("gpu-0"),), also=("orphan",))) == []


@pytest.mark.parametrize(
    "way", [{"skip": True}, {"controller": ControllerState.LEAVES}, {"controller": ControllerState.GONE}]
)
def test_pods_lose_their_protection_before_a_nodeset_is_let_go(way: dict[str, Any]) -> None:
    """Kubernetes could not delete them afterwards, and nobody would be left to take it away."""
    decided = leave(pod(0), slurm=(node("gpu-0", "MIXED", alloc=1),), **way)
    unlabel = PatchPod("gpu-0", "uid-0", {wellknown.LABEL_POD_PROTECT: None})
    assert decided.actions == (unlabel,)
    assert decided.requeue is not None


def test_orphaned_pods_keep_their_protection() -> None:
    """They run on, and whoever adopts them finds them protected."""
    decided = leave(pod(0), slurm=(node("gpu-0"),), also=("orphan",))
    assert not [one for one in decided.actions if isinstance(one, PatchPod)]


def test_a_live_nodeset_gives_up_its_finalizer_after_the_protection_of_its_pods() -> None:
    """The annotation means that the pods may go with the NodeSet: then Kubernetes must be able to do it."""
    nodeset = make_nodeset(
        replicas=1, finalizers=(DRAIN,), annotations={wellknown.ANNOTATION_SKIP_DRAIN: "true"}
    )
    first = plan(observe(pod(0), slurm=(node("gpu-0"),), nodeset=nodeset))
    assert RemoveFinalizer(DRAIN) not in first.actions
    assert [one.labels for one in first.actions if isinstance(one, PatchPod)] == [
        {wellknown.LABEL_POD_PROTECT: None}
    ]
    bare = pod(0, protected=False)
    assert RemoveFinalizer(DRAIN) in plan(observe(bare, slurm=(node("gpu-0"),), nodeset=nodeset)).actions


def test_a_protected_pod_that_no_cache_shows_keeps_the_nodeset() -> None:
    """All pods are asked for before the finalizer goes."""
    mine = [OwnerReference(uid="u", kind="NodeSet", name="gpu", api_version="v1")]

    def made(name: str, owners: list[OwnerReference], label: str) -> Pod:
        labels = {wellknown.LABEL_POD_PROTECT: label}
        return Pod(metadata=ObjectMeta(name=name, labels=labels, owner_references=tuple(owners)))

    assert finalizer.still_protected("u", [made("gpu-0", mine, "false"), made("other", [], "true")]) is None
    assert "gpu-1" in str(finalizer.still_protected("u", [made("gpu-1", mine, "true")]))


def test_a_nodeset_that_skips_the_drain_still_takes_its_reservation_along() -> None:
    """That nobody waits for jobs is no reason to leave a maintenance window behind."""
    seen = {"view": view(node("gpu-0"), reservations_listed_at=NOW - 1)}
    decided = leave(pod(0, protected=False), also=(RESERVATION,), skip=True, **seen)
    assert decided.actions == (RemoveFinalizer(DRAIN), DeleteReservation("SlurmOperatorMaint-gpu"))
    assert decided.requeue is not None
    denied = {observation.reservation_key("SlurmOperatorMaint-gpu"): NodeAnswer(NOW - 1, exists=False)}
    assert released(leave(also=(RESERVATION,), skip=True, asked=denied, **seen)) == [DRAIN, RESERVATION]


def test_a_nodeset_that_skips_the_drain_has_no_finalizer() -> None:
    """The annotation takes the guard away before anybody deletes anything."""
    nodeset = make_nodeset(replicas=0, finalizers=(DRAIN,))
    asked = msgspec.structs.replace(nodeset.metadata, annotations={wellknown.ANNOTATION_SKIP_DRAIN: "true"})
    assert plan(observe(nodeset=msgspec.structs.replace(nodeset, metadata=asked))).actions == (
        RemoveFinalizer(DRAIN),
    )


def owned(name: str, *owners: str) -> ObjectMeta:
    return ObjectMeta(name=name, owner_references=tuple(OwnerReference(uid=uid) for uid in owners))


def unreadable(name: str, metadata: ObjectMeta) -> BadObject:
    return BadObject(Key("slurm", name), "spec.nodeName: not a string", metadata=metadata)


def test_no_pod_goes_with_its_nodeset_unseen() -> None:
    """Whatever a NodeSet owns, with or without labels, keeps it; pods of others do not."""
    others = [Pod(metadata=owned("free")), Pod(metadata=owned("web-0", "another-uid"))]
    assert finalizer.strays(UID, [], []) is None
    assert finalizer.strays(UID, others, []) is None
    ours = [Pod(metadata=owned(name, "another-uid", UID)) for name in ("gpu-7", "gpu-3")]
    why = finalizer.strays(UID, [*others, *ours], [])
    assert why == messages.unlabelled_pods(2, "gpu-3")


def test_a_pod_that_cannot_be_read_may_be_one_of_its_own() -> None:
    """Only if its owners can be read, and are others, it does not keep the NodeSet."""
    foreign = unreadable("web-0", owned("web-0", "another-uid"))
    assert finalizer.strays(UID, [], [foreign]) is None
    for doubtful in (unreadable("gpu-1", owned("gpu-1", UID)), unreadable("gpu-1", ObjectMeta())):
        why = finalizer.strays(UID, [], [foreign, doubtful])
        assert why == messages.unreadable_pods(1, "gpu-1")


def test_what_workers_share_is_kept_while_they_drain() -> None:
    """Not for a NodeSet that stays, which makes it anyway, nor for one that is let go or has no worker."""

    def keeps(*pods: Any, deleting: bool = True, **fields: Any) -> bool:
        nodeset = make_nodeset(replicas=1, deleting=deleting, finalizers=(DRAIN,))
        return finalizer.keeps_shared(observe(*pods, nodeset=nodeset, **fields))

    assert keeps(pod(0))
    assert not keeps(pod(0), deleting=False)
    assert not keeps(pod(0), controller=ControllerState.GONE)
    assert not keeps(pod(0, deleting=True))
    assert not keeps()
