"""The objects that a rule reads besides the one that is being validated.

`lookups` fills this in; the rules only read. Three results are distinguished: the object, that it does not
exist, and that it could not be read. A name that was not looked up is not here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api import Controller, NodeSet
    from slurm_operator.kube.models.kinds import ConfigMap, PersistentVolumeClaim
    from slurm_operator.kube.models.meta import Object

T = TypeVar("T", bound="Object")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that could not be read; `reason` is shown to the user."""

    reason: str


@dataclass(frozen=True, slots=True)
class Running:
    """A Slurm cluster, and the name of a pod that is one of its workers, empty if it has no name."""

    controller: Controller
    worker: str | Unreadable | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The names, in the namespace of the validated object, that its rules ask about; or all of a kind."""

    config_maps: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()
    node_sets: bool = False
    clusters: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """The answers, by name; None means that there is no such object."""

    config_maps: Mapping[str, ConfigMap | Unreadable | None] = field(default_factory=dict)
    claims: Mapping[str, PersistentVolumeClaim | Unreadable | None] = field(default_factory=dict)
    node_sets: tuple[NodeSet, ...] | Unreadable = ()
    clusters: tuple[Running, ...] | Unreadable = ()


NOTHING = World()
