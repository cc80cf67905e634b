"""What a worker says about its Slurm node, and the node about its worker.

On the pod: the label that protects it (`protection`), the latest end of its jobs, where it is in the
topology. On the Slurm node: which pod it is, its topology and its features. Everything is compared first; at
rest nothing is written.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide import observation, protection, removal_requests
from slurm_operator.objects import nodefit, slurmd_identity, slurmd_marks
from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.wishes import Comment, Features, Topology, Unchanged

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.slurm_state import Sight
    from slurm_operator.slurm.wishes import Wish

# Slurm has no dates beyond these.
_LAST_YEAR = 9999


def labels(seen: Observation, sight: Sight, worker: Worker, *, cordoned: bool) -> dict[str, str | None]:
    """Return the labels to change on a pod; None removes."""
    wanted: dict[str, str | None] = {**slurmd_identity.overdue_labels(seen.nodeset, worker.pod)}
    # The budget selects by it; pods of the first versions lack it.
    if not worker.labels.get(wellknown.LABEL_CLUSTER):
        wanted[wellknown.LABEL_CLUSTER] = seen.nodeset.spec.controller_ref.name
    protect = protection.wanted(worker, sight, cordoned=cordoned)
    wanted[wellknown.LABEL_POD_PROTECT] = wellknown.TRUE if protect else None
    return {key: value for key, value in wanted.items() if worker.labels.get(key) != value}


def tolerations(sight: Sight, worker: Worker) -> tuple[dict[str, Any], ...]:
    """Return all tolerations that a pod of an older version should have; none if it has them already.

    They are a list that is replaced as a whole, so only in a pod that has not changed.
    """
    if not sight.protects or worker.finished:
        return ()
    return tuple(nodefit.overdue_tolerations(worker.pod) or ())


def remarks(seen: Observation, sight: Sight, worker: Worker) -> dict[str, str | None]:
    """Return the annotations to change on a pod; None removes."""
    wanted: dict[str, str | None] = removal_requests.annotation(seen, worker)
    known, end = sight.deadline(worker.slurm_name)
    if known:
        wanted[wellknown.ANNOTATION_POD_DEADLINE] = None if end is None else moment_text(end)
    node = seen.nodes.get(worker.node) if worker.scheduled else None
    if node is not None:
        text = node.metadata.annotations.get(wellknown.ANNOTATION_TOPOLOGY)
        said = worker.annotations.get(wellknown.ANNOTATION_TOPOLOGY)
        if text:
            wanted[wellknown.ANNOTATION_TOPOLOGY] = text
        elif said and isinstance(sight.decide(worker.slurm_name, Topology("")), Unchanged):
            # Removed once Slurm has forgotten it too: until then the pod remembers that there was one.
            wanted[wellknown.ANNOTATION_TOPOLOGY] = None
    return {key: value for key, value in wanted.items() if worker.annotations.get(key) != value}


def wishes(seen: Observation, sight: Sight, worker: Worker) -> list[Wish]:
    """Return what the Slurm node of a pod should be told."""
    slurm_node = sight.node(worker.slurm_name)
    if slurm_node is None or not worker.healthy:
        return []
    wanted: list[Wish] = []
    # Nearly always equal: only what differs is worth the closer look of `decide`.
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
    return [wish for wish in wanted if isinstance(sight.decide(worker.slurm_name, wish), NodeUpdate)]


def moment_text(seconds: float) -> str:
    """Return a moment of Slurm's clock as Kubernetes writes moments."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return observation.NO_DEADLINE
    return observation.NO_DEADLINE if moment.year >= _LAST_YEAR else f"{moment:%Y-%m-%dT%H:%M:%SZ}"
