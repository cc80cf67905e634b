"""The conditions of a pod that mirror its Slurm node, and whether it may be deleted.

Only types of our own are touched: the kubelet writes its conditions into the same list.

When the conditions of a pod, and the comment of its node, are worth writing.

At rest they say what is so. While things move, many would be true for a second and cost a write each, and
the writes would be in the way of what moves. So they are put off, for some seconds, or as long as it takes to
create that many pods:

    - a drain, or its end, is asked for the first time: the next list will show it, and most idle pods are
      gone by then;
    - a node has just begun to look drained, and the jobs that decide about it are being listed;
    - the pod has just become ready, and others are still starting: a user who scales out waits for these,
      and for the status that counts them. Not if the node has work: that is recorded at once, since the
      record is needed if Slurm loses the node.

What a worker says about its Slurm node, and the node about its worker.

On the pod: the label that protects it (`protection`), the latest end of its jobs, where it is in the
topology. On the Slurm node: which pod it is, its topology and its features. Everything is compared first; at
rest nothing is written. `metadata_patch` and `status_patch` are the bodies of such writes to pods.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import BLOCKING, Reason
from slurm_operator.controllers.nodeset.decide import observation, protection
from slurm_operator.controllers.nodeset.decide.actions import (
    CreatePod,
    Defer,
    DrainNodes,
    ResumeNodes,
    UndrainNodes,
)
from slurm_operator.kube.models.meta import Condition
from slurm_operator.kube.models.text_limits import shorten
from slurm_operator.objects import node_fit, slurmd_identity, slurmd_marks
from slurm_operator.slurm.decide.node_changes import Comment, Features, Topology, Unchanged
from slurm_operator.slurm.model.records import NodeUpdate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeset.decide.actions import Action, Decision, PatchPod, PatchPodStatus
    from slurm_operator.controllers.nodeset.decide.cordon import Changes
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
    from slurm_operator.objects.desired import Manifest
    from slurm_operator.slurm.decide.node_changes import NodeChange
    from slurm_operator.slurm.model.records import Node


def _slurm_word(state: str) -> str:
    """Return the word that Slurm has for a state: `NotResponding` is NOT_RESPONDING there."""
    return "".join(
        f"_{char}" if char.isupper() and index else char for index, char in enumerate(state)
    ).upper()


_BASE: Final = {_slurm_word(state): state for state in wellknown.SLURM_BASE_STATES}
_FLAGS: Final = {_slurm_word(state): state for state in wellknown.SLURM_FLAG_STATES}
_WAITS: Final = {wait.value: wait for wait in BLOCKING}


def state_names(node: Node) -> tuple[str, ...]:
    """Return the base state of a node and its flags, in the words of the conditions."""
    return _names(node.state)


# Few combinations exist, and thousands of nodes share them.
@functools.lru_cache(maxsize=1024)
def _names(state: tuple[str, ...]) -> tuple[str, ...]:
    base = next((name for word, name in _BASE.items() if word in state), None)
    flags = (name for word, name in _FLAGS.items() if word in state)
    return (*((base,) if base else ()), *flags)


def state_conditions(node: Node) -> tuple[Condition, ...]:
    """Return the conditions that mirror a node."""
    return _conditions(node.state, shorten(node.reason))


@functools.lru_cache(maxsize=1024)
def _conditions(state: tuple[str, ...], message: str) -> tuple[Condition, ...]:
    kinds = (f"{wellknown.POD_CONDITION_PREFIX}{name}" for name in _names(state))
    return tuple(Condition(type=kind, status="True", message=message) for kind in kinds)


def safe_condition(decision: Decision) -> Condition:
    """Return the condition that says whether a pod that must be removed may be deleted."""
    if isinstance(decision, Defer):
        return Condition(
            type=wellknown.POD_CONDITION_SAFE,
            status="False",
            reason=decision.reason.value,
            message=shorten(decision.message),
        )
    return Condition(
        type=wellknown.POD_CONDITION_SAFE, status="True", reason="Safe", message=shorten(decision.because)
    )


def recorded_wait(worker: Worker) -> Defer | None:
    """Return what a pod waits for by its own condition, if it has one."""
    for one in worker.conditions:
        if one.type == wellknown.POD_CONDITION_SAFE and one.status == "False" and one.reason in _WAITS:
            return Defer(_WAITS[one.reason], one.message)
    return None


def changed_conditions(
    worker: Worker, wanted: Iterable[Condition], *, states_known: bool, wall: datetime
) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
    """Return the conditions of ours to set and the types to remove; states stay while they are unknown."""
    present = {
        one.type: one
        for one in worker.conditions
        if one.type.startswith(wellknown.POD_CONDITION_PREFIX) or one.type == wellknown.POD_CONDITION_SAFE
    }
    by_type = {one.type: one for one in wanted}
    new = []
    for kind, one in by_type.items():
        old = present.get(kind)
        if old is not None and (old.status, old.reason, old.message) == (one.status, one.reason, one.message):
            continue
        moved = old is None or old.status != one.status
        since = wall.replace(microsecond=0) if moved or old is None else old.last_transition_time
        new.append(
            Condition(
                type=kind,
                status=one.status,
                reason=one.reason,
                message=one.message,
                last_transition_time=since,
            )
        )
    gone = [
        kind
        for kind in present
        if kind not in by_type and (states_known or kind == wellknown.POD_CONDITION_SAFE)
    ]
    return tuple(new), tuple(gone)


# From a pod that is ready to the list that shows what was written about its node: a few polls.
JUST_NOW_SECONDS: Final = 10.0
# A user who scales out by thousands waits for the last of them: about as long as it takes to create them.
_JUST_NOW_PER_WORKER: Final = 0.01
# A pod that takes longer to start waits for something else than its turn, so no write is put off for it.
STARTS_SECONDS: Final = 30.0


class PodConditionUpdates:
    """Decides for each pod of one plan; `put_off` says whether any has to wait."""

    def __init__(self, seen: Observation, slurm: SlurmState, actions: Iterable[Action]) -> None:
        self._seen = seen
        self._slurm = slurm
        planned = [*actions]
        self.moving = {
            name
            for one in planned
            if isinstance(one, DrainNodes | UndrainNodes | ResumeNodes)
            for name in one.names
        }
        """Slurm nodes whose state is about to be changed."""
        self.put_off = False
        self._just_now = JUST_NOW_SECONDS + _JUST_NOW_PER_WORKER * len(seen.workers)
        self._coming = any(isinstance(one, CreatePod) for one in planned) or any(
            not worker.ready
            and not (worker.deleting or worker.finished)
            and self._within(STARTS_SECONDS, worker.created)
            for worker in seen.workers
        )

    def waits(self, worker: Worker, cordon: Changes | None, decision: Decision | None) -> bool:
        """Return whether nothing is to be written about a pod for now."""
        name = worker.slurm_name
        if decision is None:
            late = self._coming and self._just_ready(worker) and not self._slurm.busy(name)
        else:
            late = self._jobs_follow(name, decision)
        if late or (name in self.moving and (cordon is not None or self._just_ready(worker))):
            self.put_off = True
            return True
        return False

    def _just_ready(self, worker: Worker) -> bool:
        since = worker.ready_since
        return since is not None and self._within(self._just_now, since)

    def _within(self, seconds: float, moment: datetime) -> bool:
        # A clock that is behind the one that said since when must not make it just now for ever.
        wall = self._seen.wall
        return moment <= wall and (wall - moment).total_seconds() < seconds

    def _jobs_follow(self, name: str, decision: Decision | None) -> bool:
        view = self._seen.view
        return (
            isinstance(decision, Defer)
            and decision.reason is Reason.JOBS_UNKNOWN
            and view is not None
            and name in view.owed
            and view.jobs_failure is None
        )


# Slurm has no dates beyond these.
_LAST_YEAR = 9999


def labels(seen: Observation, slurm: SlurmState, worker: Worker, *, cordoned: bool) -> dict[str, str | None]:
    """Return the labels to change on a pod; None removes."""
    wanted: dict[str, str | None] = {**slurmd_identity.overdue_labels(seen.nodeset, worker.pod)}
    # The budget selects by it; pods of the first versions lack it.
    if not worker.labels.get(wellknown.LABEL_CLUSTER):
        wanted[wellknown.LABEL_CLUSTER] = seen.nodeset.spec.controller_ref.name
    protect = protection.wanted(worker, slurm, cordoned=cordoned)
    wanted[wellknown.LABEL_POD_PROTECT] = wellknown.TRUE if protect else None
    return {key: value for key, value in wanted.items() if worker.labels.get(key) != value}


def tolerations(slurm: SlurmState, worker: Worker) -> tuple[dict[str, Any], ...]:
    """Return all tolerations that a pod of an older version should have; none if it has them already.

    They are a list that is replaced as a whole, so only in a pod that has not changed.
    """
    if not slurm.protects or worker.finished:
        return ()
    return tuple(node_fit.overdue_tolerations(worker.pod) or ())


def remarks(seen: Observation, slurm: SlurmState, worker: Worker) -> dict[str, str | None]:
    """Return the annotations to change on a pod; None removes."""
    wanted: dict[str, str | None] = protection.annotation(seen, worker)
    known, end = slurm.deadline(worker.slurm_name)
    if known:
        wanted[wellknown.ANNOTATION_POD_DEADLINE] = None if end is None else moment_text(end)
    node = seen.nodes.get(worker.node) if worker.scheduled else None
    if node is not None:
        text = node.metadata.annotations.get(wellknown.ANNOTATION_TOPOLOGY)
        said = worker.annotations.get(wellknown.ANNOTATION_TOPOLOGY)
        if text:
            wanted[wellknown.ANNOTATION_TOPOLOGY] = text
        elif said and isinstance(slurm.decide(worker.slurm_name, Topology("")), Unchanged):
            # Removed once Slurm has forgotten it too: until then the pod remembers that there was one.
            wanted[wellknown.ANNOTATION_TOPOLOGY] = None
    return {key: value for key, value in wanted.items() if worker.annotations.get(key) != value}


def changes(seen: Observation, slurm: SlurmState, worker: Worker) -> list[NodeChange]:
    """Return what the Slurm node of a pod should be told."""
    slurm_node = slurm.node(worker.slurm_name)
    if slurm_node is None or not worker.healthy:
        return []
    wanted: list[NodeChange] = []
    # Nearly always equal: only what differs is worth a call of `decide`.
    comment = slurmd_marks.comment(seen.nodeset, worker.pod)
    if slurm_node.comment != comment:
        wanted.append(Comment(comment))
    node = seen.nodes.get(worker.node)
    if node is not None:
        topology = node.metadata.annotations.get(wellknown.ANNOTATION_TOPOLOGY, "")
        # Slurm may have a topology of its own making: it is cleared only if it came from here.
        if topology != slurm_node.topology and (
            topology or worker.annotations.get(wellknown.ANNOTATION_TOPOLOGY)
        ):
            wanted.append(Topology(topology))
        text = node.metadata.annotations.get(wellknown.ANNOTATION_NODE_FEATURES, "")
        features = tuple(sorted({name for part in text.split(",") if (name := part.strip())}))
        if features or any(
            one.startswith(wellknown.FEATURE_PREFIX)
            for one in (*slurm_node.features, *slurm_node.active_features)
        ):
            wanted.append(Features(features, wellknown.FEATURE_PREFIX))
    return [change for change in wanted if isinstance(slurm.decide(worker.slurm_name, change), NodeUpdate)]


def moment_text(seconds: float) -> str:
    """Return a moment of Slurm's clock as Kubernetes writes moments."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return observation.NO_DEADLINE
    return observation.NO_DEADLINE if moment.year >= _LAST_YEAR else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def metadata_patch(action: PatchPod) -> Manifest:
    """Return the body that changes labels, annotations and tolerations of a pod, by strategic merge."""
    metadata: dict[str, Any] = {"uid": action.uid}
    if action.labels:
        metadata["labels"] = dict(action.labels)
    if action.annotations:
        metadata["annotations"] = dict(action.annotations)
    if action.version:
        metadata["resourceVersion"] = action.version
    # A list of tolerations is replaced as a whole.
    spec = {"spec": {"tolerations": [*action.tolerations]}} if action.tolerations else {}
    return {"metadata": metadata, **spec}


def status_patch(action: PatchPodStatus) -> Manifest:
    """Return the body that changes conditions of a pod, by strategic merge."""
    removed = [{"$patch": "delete", "type": kind} for kind in action.remove]
    return {
        "metadata": {"uid": action.uid},
        "status": {"conditions": [*map(_wire, action.set), *removed]},
    }


def _wire(condition: Condition) -> dict[str, Any]:
    """Return a condition with all that could be left over from the one before."""
    wire: dict[str, Any] = {"reason": "", "message": "", **msgspec.to_builtins(condition)}
    return wire
