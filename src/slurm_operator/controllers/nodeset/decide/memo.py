"""What need not be worked out again.

A reconcile of five thousand workers nearly always finds that nearly all of them are as they were. What the
upkeep of such a worker takes follows from a few objects that are replaced when they change and shared while
they do not: the pod, its Slurm node and the jobs on it, its Kubernetes node, its claims. So a `Memo` keeps,
for each worker, what is to be written about it, mostly nothing, and what that followed from; while these are
the same it is the same. While thousands of workers start, their conditions wait for their turn for many
reconciles. No decision is kept: with another memo, or none, the plan is the same, and later, but for the
moment at which a condition is said to have changed.

One memo belongs to one NodeSet in one process, which reconciles it once at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from slurm_operator.controllers.nodeset.decide.actions import Action
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
    from slurm_operator.kube.models.kinds import Node
    from slurm_operator.objects.node_fit import Fit
    from slurm_operator.slurm.decide.node_changes import NodeChange

# Far above the workers of one NodeSet; those of pods that are gone are dropped then.
_MANY_CLAIMS: Final = 50_000

T = TypeVar("T")
Grounds = tuple[Any, ...]
"""Objects from which something followed; compared one by one, first by identity."""
Upkeep = tuple["list[Action]", "list[Action]", "list[NodeChange]"]
"""What is to be written about a worker: to its pod, to the status of its pod, to its Slurm node."""
NO_UPKEEP: Final[Upkeep] = ([], [], [])
"""One object for all workers about which nothing is to be written, which are nearly all."""


class KnownUpkeep(Generic[T]):
    """What is to be written about each worker, by UID, and what that followed from."""

    __slots__ = ("_before", "_era", "_now")

    def __init__(self) -> None:
        self._era: Hashable = None
        self._before: dict[str, tuple[Grounds, T]] = {}
        self._now: dict[str, tuple[Grounds, T]] = {}

    def begin(self, era: Hashable) -> None:
        """Start a reconcile; what all workers share is the era, and another one starts from nothing."""
        self._before = self._now if era == self._era else {}
        self._era, self._now = era, {}

    def known(self, uid: str, grounds: Grounds) -> T | None:
        """Return what was to be written about a worker for the same grounds; None if they are others."""
        before = self._before.get(uid)
        if before is None or before[0] != grounds:
            return None
        self._now[uid] = before
        return before[1]

    def note(self, uid: str, grounds: Grounds, upkeep: T) -> None:
        """Note what is to be written about a worker."""
        self._now[uid] = (grounds, upkeep)


class Memo:
    """What one process remembers of one NodeSet, to be quick."""

    __slots__ = ("_claims", "_fit", "_node_checks", "_slurm_state", "upkeep")

    def __init__(self) -> None:
        self.upkeep: KnownUpkeep[Upkeep] = KnownUpkeep()
        self._claims: dict[str, tuple[object, Hashable, tuple[str, ...]]] = {}
        self._slurm_state: tuple[object, SlurmState] | None = None
        self._fit: Fit | None = None
        self._node_checks: dict[str, tuple[Node, tuple[bool, bool, str]]] = {}

    def slurm_state(self, seen: object, make: Callable[[], SlurmState]) -> SlurmState:
        """Return the answers of an observation, which the plan and its report share."""
        if self._slurm_state is None or self._slurm_state[0] is not seen:
            self._slurm_state = (seen, make())
        return self._slurm_state[1]

    def node_checks(
        self, fit: Fit, nodes: Mapping[str, Node], hostname: Callable[[Node], str]
    ) -> Callable[[Node], tuple[bool, bool, str]]:
        """Return what tells of a Kubernetes node whether it keeps and admits workers, and their name."""
        if fit != self._fit or len(self._node_checks) > 2 * len(nodes):
            self._fit, self._node_checks = fit, {}
        known = self._node_checks

        def ask(node: Node) -> tuple[bool, bool, str]:
            name = node.metadata.name
            entry = known.get(name)
            if entry is None or entry[0] is not node:
                entry = known[name] = (node, (fit.keeps(node), fit.admits(node), hostname(node)))
            return entry[1]

        return ask

    def claim_names(
        self, uid: str, pod: object, era: Hashable, names: Callable[[], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Return the names of the claims of a worker."""
        known = self._claims.get(uid)
        if known is None or known[0] is not pod or known[1] != era:
            if len(self._claims) > _MANY_CLAIMS:
                self._claims.clear()
            known = self._claims[uid] = (pod, era, names())
        return known[2]
