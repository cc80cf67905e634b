"""Which names in Slurm the workers of each NodeSet have, and what other NodeSets a NodeSet has beside it.

The names are kept as pods come and go, so that a look at one NodeSet need not read the pods of all. A pod
that has ended bears no name any more; one that is being deleted does until it is gone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_operator.controllers.nodeset.decide import name_conflicts
from slurm_operator.kube.meta import Key
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.nodefit import node_fit
from slurm_operator.objects.slurmd_identity import node_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.name_conflicts import Neighbour
    from slurm_operator.controllers.nodeset.run.watches import Caches
    from slurm_operator.kube.models import Pod
    from slurm_operator.kube.store import Change
    from slurm_operator.objects.nodefit import Fit

_NONE: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


class Near(NamedTuple):
    """What an observation says about other NodeSets."""

    neighbours: tuple[Neighbour, ...] = ()
    bearers: Mapping[str, frozenset[str]] = _NONE


class Bearing(NamedTuple):
    """Whose pod has which name in Slurm."""

    namespace: str
    name: str
    owner: str


class Bearers:
    """The NodeSets with a pod of a name, by namespace and name, kept as pods come and go."""

    def __init__(self) -> None:
        self._pods: Counter[Bearing] = Counter()
        self._owners: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)

    def within(self, namespace: str) -> dict[str, frozenset[str]]:
        """Return the UIDs of NodeSets by the names that their pods have in Slurm."""
        # A copy: a plan may be made in a thread, while pods come and go.
        return dict(self._owners[namespace])

    def changed(self, change: Change[Pod]) -> None:
        """Take in what has become of a pod."""
        before, after = _ends(change)
        if before == after:
            return
        if before is not None:
            self._pods[before] -= 1
            if not self._pods[before]:
                del self._pods[before]
                self._note(before, self._known(before) - {before.owner})
        if after is not None:
            self._pods[after] += 1
            self._note(after, self._known(after) | {after.owner})

    def _known(self, bearing: Bearing) -> frozenset[str]:
        return self._owners[bearing.namespace].get(bearing.name, frozenset())

    def _note(self, bearing: Bearing, owners: frozenset[str]) -> None:
        if owners:
            self._owners[bearing.namespace][bearing.name] = owners
        else:
            del self._owners[bearing.namespace][bearing.name]


class Neighbourhood:
    """Knows what NodeSets there are beside a NodeSet."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._bearers = Bearers()
        self._fits: dict[str, tuple[int, Fit | None]] = {}
        """By UID, with the generation that they were made for."""
        caches.pods.add_handler(self._bearers.changed)

    def of(self, nodeset: NodeSet) -> Near:
        """Return what there is beside a NodeSet; nothing if it is the only one of its Controller."""
        namespace = nodeset.metadata.namespace
        siblings = self._caches.siblings(namespace, nodeset.spec.controller_ref.name)
        near = name_conflicts.neighbours(nodeset, siblings, self._fit)
        return Near(near, self._bearers.within(namespace)) if near else Near()

    def heirs(self, change: Change[Pod]) -> Iterable[Key]:
        """Map a pod that gives up its name to the other NodeSets that ask for that name."""
        given_up, after = _ends(change)
        if given_up is None or after == given_up:
            return ()
        node = self._caches.nodes.store.get(Key("", given_up.name))
        others = self._caches.nodesets.store.list(given_up.namespace)
        heirs = name_conflicts.heirs(others, self._fit, given_up.name, node)
        return [one.key for one in heirs if one.metadata.uid != given_up.owner]

    def _fit(self, nodeset: NodeSet) -> Fit | None:
        uid, generation = nodeset.metadata.uid, nodeset.metadata.generation
        known = self._fits.get(uid)
        if known is None or known[0] != generation:
            if len(self._fits) > 2 * len(self._caches.nodesets.store):
                self._fits.clear()
            try:
                known = (generation, node_fit(nodeset))
            except Unbuildable:
                # Nothing is made of it, and it says so itself.
                known = (generation, None)
            self._fits[uid] = known
        return known[1]


def _ends(change: Change[Pod]) -> tuple[Bearing | None, Bearing | None]:
    """Return who bore which name before a change, and who does now."""
    before = None if change.old is None else bearing(change.old)
    return before, None if change.new is None else bearing(change.new)


def bearing(pod: Pod) -> Bearing | None:
    """Return which name a pod has in Slurm, and which NodeSet has it by that; None if it has none."""
    owner = pod.controller_owner
    if owner is None or pod.finished:
        return None
    name = node_of(pod)
    return Bearing(pod.metadata.namespace, name, owner.uid) if name else None
