"""What happens when the NodeSet itself is deleted.

A finalizer keeps the NodeSet until its nodes are drained and its pods are gone; without it Kubernetes would
delete the pods with whatever runs on them. Three things lift it: the annotation that asks for that, a
Controller that is deleted too (then there is no Slurm left to ask), and `--cascade=orphan`, which means that
the pods are to stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset import names
from slurm_operator.controllers.nodeset.actions import AddFinalizer, RemoveFinalizer
from slurm_operator.controllers.nodeset.observation import Fate, Observation

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.actions import Action


def skips_drain(seen: Observation) -> bool:
    """Tell whether somebody asked that the pods go with the NodeSet, whatever runs on them."""
    return seen.nodeset.metadata.annotations.get(wellknown.ANNOTATION_SKIP_DRAIN) == wellknown.TRUE


def guard(seen: Observation) -> list[Action]:
    """Return what to change about the finalizer of a NodeSet that stays."""
    present = wellknown.FINALIZER_DRAIN in seen.nodeset.metadata.finalizers
    if skips_drain(seen):
        return [RemoveFinalizer(wellknown.FINALIZER_DRAIN)] if present else []
    return [] if present else [AddFinalizer(wellknown.FINALIZER_DRAIN)]


def lets_go(seen: Observation) -> bool:
    """Tell whether a NodeSet that is being deleted needs no drain."""
    return (
        skips_drain(seen)
        or seen.controller is not Fate.STAYS
        or names.FINALIZER_ORPHAN in seen.nodeset.metadata.finalizers
    )


def release(seen: Observation, *finalizers: str) -> list[Action]:
    """Return the removals of finalizers that are there."""
    return [RemoveFinalizer(one) for one in finalizers if one in seen.nodeset.metadata.finalizers]
