"""What becomes of an action: the write itself, what Kubernetes and Slurm make of it, and what it must not do.

Here the first three invariants are held against the truth: no pod is deleted while a job runs in it, no drain
and no cordon of a person is undone, no more workers than allowed are taken out of service. Slurm may take
only half of a bulk write, and every write may be the last one before a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide import actions, observation
from slurm_operator.controllers.nodeset.decide.actions import Proof, RemovalCause
from slurm_operator.controllers.nodeset.decide.deletion import confirm
from slurm_operator.controllers.nodeset.decide.observation import ControllerState, NodeAnswer
from slurm_operator.controllers.nodeset.decide.update import max_unavailable
from slurm_operator.kube.models.meta import OwnerReference
from slurm_operator.objects import slurmd_claims
from slurm_operator.slurm.decide.node_changes import Drain, ResumeCloud, SetState, Undrain
from tests.support.simulation.kubernetes import FIT, SimClaim, SimPod
from tests.support.simulation.operator_process import KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.slurm.decide.node_changes import NodeChange
    from tests.support.simulation.world import World


# The Controller is deleted, and its slurmctld with it.
_NO_SLURM = (ControllerState.LEAVES, ControllerState.GONE)


class Crashed(Exception):  # noqa: N818 - what happens to the process, no error of its own
    """The process ended before a write."""


def do(world: World, action: actions.Action) -> None:
    """Carry out one action; after it no worker that may run a job is without protection."""
    world.spend()
    _do(world, action)
    world.check_protected()


def _do(world: World, action: actions.Action) -> None:  # noqa: C901, PLR0912, PLR0915 - one arm per word
    match action:
        case actions.AddFinalizer(name):
            assert name not in world.finalizers
            assert not world.deleting, "the API server adds no finalizer to what is being deleted"
            world.finalizers = (*world.finalizers, name)
            world.awake = True
        case actions.RemoveFinalizer(name) if name == wellknown.FINALIZER_DRAIN and _keeps_protected(world):
            world.awake = True
        case actions.RemoveFinalizer(name):
            world.waived |= world.skip_drain or world.controller in _NO_SLURM
            world.finalizers = tuple(one for one in world.finalizers if one != name)
            world.awake = True
        case actions.CreatePod():
            _create(world, action)
        case actions.PatchPod():
            _patch(world, action)
        case actions.PatchPodStatus():
            _patch_status(world, action)
        case actions.DeletePod():
            _delete(world, action)
        case actions.ReleasePod():
            _release(world, action)
        case actions.DrainNodes(reason, some):
            _write(world, {name: Drain(reason) for name in some}, state=True)
        case actions.UndrainNodes(some):
            _check_budget(world, some)
            _write(world, {name: Undrain() for name in some}, state=True)
        case actions.ResumeNodes(some):
            _check_budget(world, some)
            _write(world, {name: SetState("RESUME") for name in some}, state=True)
        case actions.ResumeCloudNodes(some):
            _check_budget(world, some)
            _write(world, dict.fromkeys(some, ResumeCloud()), state=True)
        case actions.PowerUpNodes(some):
            _write(world, dict.fromkeys(some, SetState("POWER_UP")), state=True)
        case actions.CreateRecords(some):
            _create_records(world, some)
        case actions.WriteNodes(changes):
            _write(world, changes, state=False)
        case actions.DeleteRecord(name):
            _forget(world, name)
        case actions.OwnClaim():
            _own(world, action)
        case actions.RestoreClaims():
            _restore_claims(world, action)
        case actions.WriteReservation(spec, _):
            made = world.slurm.answers and world.slurm.reserve(spec)
            if made:
                world.operator.asked[observation.reservation_key(spec.name)] = NodeAnswer(
                    world.now, exists=True
                )
            world.awake |= not made
        case actions.DeleteReservation(name):
            if world.slurm.answers:
                world.slurm.windows.pop(name, None)
                world.operator.asked[observation.reservation_key(name)] = NodeAnswer(world.now, exists=False)
            world.awake = True


def _check_budget(world: World, some: tuple[str, ...]) -> None:
    """Fail if a node gets work again whose worker no budget protects."""
    given = [pod.hostname for pod in world.pods.values() if pod.protected and not pod.deleting]
    assert world.budget or not {*given} & {*some}, f"{some} get work without a budget"


def _keeps_protected(world: World) -> bool:
    """Return whether a pod is protected, cached or not: all are listed before the finalizer goes."""
    return any(pod.protected and not pod.deleting for pod in world.pods.values())


def _write(world: World, changes: Mapping[str, NodeChange], *, state: bool) -> None:
    """Send a bulk write: of half of one, nobody knows which half until the next list."""
    slurm = world.slurm
    sent = list(changes.items())
    if world.partial:
        sent = sent[: len(sent) // 2]
    for name, change in changes.items():
        if slurm.answers and (name, change) in sent:
            slurm.write(name, change)
        if state:
            world.operator.written[name] = world.now
    # Whoever sent it knows that it failed, and comes again.
    world.awake |= world.partial or not slurm.answers


def _forget(world: World, name: str) -> None:
    record = world.slurm.records.get(name)
    if record is None or not world.slurm.answers:
        return
    assert not record.persons, "a person's drain was forgotten"
    if not any(job.node == name for job in world.slurm.jobs.values()):
        assert not record.slurmd, f"the record of {name} was deleted under its slurmd"
        del world.slurm.records[name]
        world.operator.node_trust.expect_gone((name,), world.now)


def _create_records(world: World, names: tuple[str, ...]) -> None:
    listed_at = {pod.hostname for pod in world.pods.values()} & {*names}
    assert not listed_at or world.operator.behind, f"{listed_at} run, and would look powered down"
    world.awake |= not (world.slurm.answers and not world.partial and world.slurm.create(names))


def _create(world: World, action: actions.CreatePod) -> None:
    nodeset, operator = world.nodeset(), world.operator
    if action.name in world.pods:
        return
    world.uids += 1
    numbered = action.ordinal is not None
    hostname = _hostname(world, action)
    index = nodeset.padded(action.ordinal) if action.ordinal is not None else ""
    mounts = tuple(slurmd_claims.claim_names(nodeset, index or hostname).values())
    for name in mounts:
        if name not in world.claims:
            _make_claim(world, name)
        assert not world.claims[name].deleting, f"{action.name} was made with a claim on its way out"
    twins = [one.name for one in world.pods.values() if one.hostname == hostname and one.finished_at is None]
    assert not twins or world.operator.behind, f"{action.name} and {twins} are both {hostname} in Slurm"
    pod = SimPod(
        name=action.name,
        uid=f"uid-{world.uids}",
        mode="StatefulSet" if numbered else "DaemonSet",
        index=index,
        hostname=hostname,
        revision=f"r{world.revision}",
        created=world.now,
        target=action.node or action.pin,
        mounts=mounts,
        labels={wellknown.LABEL_POD_PROTECT: "true"} if nodeset.protects_workers else {},
    )
    if action.failures:
        pod.annotations[wellknown.ANNOTATION_POD_FAILURES] = str(action.failures)
    operator.failures.pop(action.name, None)
    assert world.budget or not pod.protected, f"{pod.name} was made without a budget"
    if not pod.protected:
        world.excused.add(pod.uid)
    operator.expectations.expect_creations(KEY, [pod.name], world.now)
    world.pods[pod.name] = pod
    operator.expectations.created(KEY, pod.name, pod.uid)
    world.touch(pod)


def _make_claim(world: World, name: str) -> None:
    world.uids += 1
    world.claims[name] = SimClaim(name, f"claim-{world.uids}", _owners(world))
    world.operator.claims[name] = world.claims[name].show()


def _restore_claims(world: World, action: actions.RestoreClaims) -> None:
    pod = world.pods.get(action.pod)
    if pod is None or pod.deleting or pod.phase != "Pending":
        assert world.operator.behind, f"claims of {action.pod} were restored, which does not wait for them"
        return
    for name in action.names:
        if name not in world.claims:
            _make_claim(world, name)


def _owners(world: World) -> tuple[OwnerReference, ...]:
    made = slurmd_claims.claims(world.nodeset(), "0")
    return msgspec.convert(made[0]["metadata"].get("ownerReferences", ()), tuple[OwnerReference, ...])


def _hostname(world: World, action: actions.CreatePod) -> str:
    if action.ordinal is not None:
        return world.nodeset().pod_hostname(action.ordinal)
    node = world.nodes[action.node]
    return node.metadata.annotations.get(wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE) or action.node


def _patch(world: World, action: actions.PatchPod) -> None:
    pod = world.pods.get(action.name)
    if pod is None or pod.uid != action.uid or (action.version and action.version != str(pod.version)):
        world.awake = True
        return
    if wellknown.ANNOTATION_POD_CORDON in action.annotations:
        assert not pod.persons_cordon, f"a person's cordon of {pod.name} was touched"
    if action.labels.get(wellknown.LABEL_POD_PROTECT, "true") is None:
        waived = world.skip_drain or (world.deleting and world.controller in _NO_SLURM)
        assert waived, f"the protection of {pod.name} was removed without evidence"
        world.excused.add(pod.uid)
    for target, changes in ((pod.labels, action.labels), (pod.annotations, action.annotations)):
        for key, value in changes.items():
            if value is None:
                target.pop(key, None)
            else:
                target[key] = value
    world.touch(pod)


def _patch_status(world: World, action: actions.PatchPodStatus) -> None:
    pod = world.pods.get(action.name)
    if pod is None or pod.uid != action.uid:
        return
    pod.conditions |= {one.type: one for one in action.set}
    for kind in action.remove:
        pod.conditions.pop(kind, None)
    world.touch(pod)


def _own(world: World, action: actions.OwnClaim) -> None:
    claim = world.claims.get(action.patch.claim)
    body = action.patch.body["metadata"]
    if claim is None or (claim.uid, str(claim.version)) != (body["uid"], body["resourceVersion"]):
        world.awake = True
        return
    claim.owners = msgspec.convert(body["ownerReferences"], tuple[OwnerReference, ...])
    claim.version += 1
    world.operator.claims[claim.name] = claim.show()
    world.awake = True


def _release(world: World, action: actions.ReleasePod) -> None:
    if not _confirmed(world, action):
        return
    pod = world.pods.get(action.name)
    if pod is None or pod.uid != action.uid or action.version != str(pod.version):
        world.awake = True
        return
    running = [job.job_id for job in world.slurm.work.values() if job.pod == pod.uid]
    assert not running, f"pod {pod.name} is released, and jobs {running} run in it"
    del pod.labels[wellknown.LABEL_POD_PROTECT]
    world.touch(pod)


def _confirmed(world: World, action: actions.Removal) -> bool:
    slurm, operator = world.slurm, world.operator
    if action.proof is not Proof.NONE:
        world.poll()
        if action.proof is Proof.NAME and slurm.answers:
            operator.asked[action.slurm_name] = NodeAnswer(world.now, exists=slurm.has(action.slurm_name))
        if not slurm.answers or not confirm(world.observe(), (action,)):
            return False
    return True


def _delete(world: World, action: actions.DeletePod) -> None:
    slurm, operator = world.slurm, world.operator
    if not _confirmed(world, action):
        return
    pod = world.pods.get(action.name)
    operator.expectations.expect_deletions(KEY, [action.uid], world.now)
    if pod is None or pod.uid != action.uid or (action.version and action.version != str(pod.version)):
        operator.expectations.deletion_failed(KEY, action.uid)
        world.awake = True
        return
    killed = [job.job_id for job in slurm.work.values() if job.pod == pod.uid]
    assert not killed, f"jobs {killed} were killed with pod {pod.name} ({action.because})"
    _check_service(world, pod, action)
    if action.failures:
        assert pod.finished_at is not None, f"{pod.name} did not fail"
        operator.failures[pod.name] = action.failures
    pod.cause = action.cause
    world.delete(pod)


def _check_service(world: World, leaver: SimPod, action: actions.DeletePod) -> None:
    """Fail if a healthy worker is taken out of service although too many are out already."""
    voluntary = action.cause in (RemovalCause.UPDATE, RemovalCause.REGISTRATION)
    if (
        world.most is not None
        or not voluntary
        or world.strategy == "ScheduledUpdate"
        or world.operator.behind
    ):
        return
    if leaver.ready_since is None or leaver.phase != "Running":
        return
    left = [pod for pod in world.pods.values() if pod is not leaver and _serves(world, pod)]
    seen = world.observe()
    desired = world.replicas
    if world.mode == "DaemonSet":
        here = {pod.node or pod.target for pod in world.pods.values() if pod.mode == world.mode}
        desired = sum(FIT.keeps(world.nodes[name]) for name in here if name in world.nodes)
    allowed = max_unavailable(seen, desired)
    assert desired - len(left) <= allowed, f"{leaver.name} goes, and only {len(left)} of {desired} serve"


def _serves(world: World, pod: SimPod) -> bool:
    """Return whether a worker is in service, by the clock that the operator has."""
    if pod.deleting or pod.mode != world.mode or pod.phase != "Running" or pod.ready_since is None:
        return False
    # Of an old worker nobody waits for more than that it is ready.
    waits = world.min_ready and pod.revision == f"r{world.revision}"
    return not waits or pod.ready_since + world.min_ready <= world.now + world.skew
