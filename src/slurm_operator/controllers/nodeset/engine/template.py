"""What new workers are made from, or why none can be made.

The template needs the Controller and the content of Secrets. If one of them is missing there is none, people
hear why, and pods that exist stay as they are: without a Controller nobody may say anything about jobs, so
nothing is deleted either. It is built again only if something that it is made from has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.controllers.nodeset.observation import Fate
from slurm_operator.controllers.workload.contents import Contents
from slurm_operator.controllers.workload.verdict import Cause
from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.failures import describe
from slurm_operator.kube.meta import Key
from slurm_operator.objects import slurmd
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.nodefit import Fit, node_fit

if TYPE_CHECKING:
    from slurm_operator.api import Controller, NodeSet
    from slurm_operator.controllers.nodeset.engine.caches import Caches
    from slurm_operator.controllers.nodeset.engine.memory import Memory
    from slurm_operator.controllers.nodeset.engine.outcome import Outcome
    from slurm_operator.controllers.wiring import Wiring
    from slurm_operator.kube.meta import ObjectMeta
    from slurm_operator.objects.references import Found
    from slurm_operator.objects.slurmd import WorkerTemplate

CONTROLLER_REF: Final = "spec.controllerRef"


@dataclass(frozen=True, slots=True)
class Master:
    """The Controller of a NodeSet, and what becomes of it."""

    controller: Controller | None
    fate: Fate


class Templates:
    """Builds the templates of NodeSets."""

    def __init__(self, wiring: Wiring, caches: Caches, name: str) -> None:
        self._caches = caches
        self._contents = Contents(wiring, name)
        self._domain = wiring.cluster_domain

    def master(self, nodeset: NodeSet, outcome: Outcome) -> Master:
        """Return the Controller of a NodeSet."""
        name = nodeset.spec.controller_ref.name
        key = Key(nodeset.metadata.namespace, name)
        store = self._caches.controllers.store
        found = store.get(key)
        if key in store.unreadable:
            outcome.certain = False
            outcome.trouble(
                Cause.UNREADABLE,
                f"{CONTROLLER_REF}: Controller {name!r} cannot be read: {store.unreadable[key]}",
            )
            return Master(found, Fate.STAYS)
        if found is None:
            outcome.trouble(
                Cause.MISSING,
                f"{CONTROLLER_REF}: Controller {name!r} does not exist; create it. Until then no worker is "
                "made or removed",
            )
            return Master(None, Fate.GONE)
        return Master(found, Fate.LEAVES if found.deleting else Fate.STAYS)

    async def build(
        self, nodeset: NodeSet, controller: Controller | None, memory: Memory, outcome: Outcome
    ) -> WorkerTemplate | None:
        """Return what new workers are made from; None if there is no such thing now."""
        try:
            found = await self._contents.read(nodeset.key, slurmd.references(nodeset, controller))
        except KubeError as error:
            outcome.errors.append(error)
            outcome.trouble(Cause.UNREADABLE, describe(error))
            return None
        if controller is None:
            return None
        ground = _ground(nodeset, controller, found)
        if memory.template is not None and memory.template[0] == ground:
            return memory.template[1]
        # One that cannot be made leaves the last one in the memory: its hashes still tell who is old.
        try:
            built = slurmd.worker_template(nodeset, controller, found, cluster_domain=self._domain)
        except Unbuildable as error:
            outcome.unbuildable(error)
            return None
        memory.template = (ground, built)
        return built

    def fit(self, nodeset: NodeSet, memory: Memory, outcome: Outcome) -> Fit:
        """Return on which Kubernetes nodes workers belong."""
        generation = nodeset.metadata.generation
        if memory.fit is None or memory.fit[0] != generation:
            try:
                memory.fit = (generation, node_fit(nodeset))
            except Unbuildable as error:
                # Nobody can say where pods belong, so none may go because of where it is.
                outcome.certain = False
                outcome.unbuildable(error)
                return _NOWHERE
        return memory.fit[1]

    def release(self, key: Key) -> None:
        """Watch no Secrets for a NodeSet that is gone."""
        self._contents.release(key)


_NOWHERE: Final = Fit(node_name="", selector=(), terms=(), tolerations=())


def _ground(nodeset: NodeSet, controller: Controller, found: Found) -> Any:
    secrets = [(one.metadata.uid, one.metadata.resource_version) for one in found.secrets.values()]
    return _version(nodeset.metadata), _version(controller.metadata), sorted(secrets)


def _version(metadata: ObjectMeta) -> tuple[object, ...]:
    """Return what changes with everything of an object but its status."""
    return metadata.uid, metadata.generation, metadata.labels, metadata.annotations
