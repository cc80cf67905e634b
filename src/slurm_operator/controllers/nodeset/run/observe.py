"""Put together what a plan is made on: everything from caches, at one moment.

The pods, the view and the question whether the cache shows what this process has written are taken first, in
one go; reading pods comes after and gives others a turn of the event loop every few hundred pods. A pod that
has not changed since it was last read is not read again.

A pod whose Secret has another content than when it was made is as old as one of an older revision.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.observation import Fate, Observation, read_worker
from slurm_operator.controllers.nodeset.run.slurm_names import Neighbourhood
from slurm_operator.objects import slurmd
from slurm_operator.slurm.clients import ConnectionKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.actions import Hold
    from slurm_operator.controllers.nodeset.decide.observation import Revision, Worker
    from slurm_operator.controllers.nodeset.run.state import Memory
    from slurm_operator.controllers.nodeset.run.template import Master
    from slurm_operator.controllers.nodeset.run.watches import Caches
    from slurm_operator.controllers.wiring import Wiring
    from slurm_operator.kube.models import PersistentVolumeClaim, Pod
    from slurm_operator.objects.nodefit import Fit
    from slurm_operator.slurm.clients import Connection

# About 5 ms of reading.
_SLICE: Final = 250


@dataclasses.dataclass(frozen=True, slots=True)
class Ground:
    """What does not change within a pass: it is read before the pods are."""

    nodeset: NodeSet
    master: Master
    revision: Revision
    fit: Fit
    hashes: Mapping[str, str]
    certain: bool
    budget: Hold | None = None
    """Why the budget of the workers does not protect them, if so."""


class Observer:
    """Looks at NodeSets; `since` is when this process began to lead."""

    def __init__(self, wiring: Wiring, caches: Caches) -> None:
        self.since = float("inf")
        self._caches = caches
        self.neighbourhood = Neighbourhood(caches)
        self._connections = wiring.connections
        self._propagated = wiring.propagated_node_conditions

    async def run(self) -> None:
        """Note when this process begins to lead, and wait; what was seen before counts for nothing."""
        loop = asyncio.get_running_loop()
        self.since = loop.time()
        await loop.create_future()

    def connection(self, ground: Ground) -> Connection | None:
        """Return the connection to the Slurm cluster of a NodeSet.

        Without its Controller there is none, unless the NodeSet is deleted too and an external Slurm goes on.
        """
        nodeset, key = ground.nodeset, _controller_key(ground.nodeset)
        if ground.master.controller is None and not (nodeset.deleting and self._connections.outlives(key)):
            return None
        return self._connections.get(key)

    def _fate(self, ground: Ground) -> Fate:
        fate, nodeset, controller = ground.master.fate, ground.nodeset, ground.master.controller
        if fate is Fate.STAYS:
            return fate
        recorded = nodeset.metadata.annotations.get(wellknown.ANNOTATION_EXTERNAL_SLURM) == wellknown.TRUE
        known = recorded or self._connections.outlives(_controller_key(nodeset))
        return Fate.OUTLIVED if (known if controller is None else controller.spec.external) else fate

    async def look(self, ground: Ground, memory: Memory) -> Observation:
        """Return what there is to see of a NodeSet now."""
        nodeset, caches = ground.nodeset, self._caches
        now = asyncio.get_running_loop().time()
        pods = memory.pods.newest(caches.owned_pods(nodeset), now)
        connection = self.connection(ground)
        settled = ground.certain and self._settled(nodeset, now)
        near = self.neighbourhood.of(nodeset)
        nodes = {node.metadata.name: node for node in caches.nodes.store.list()}
        claims = self._claims(nodeset, memory, now) if nodeset.spec.volume_claim_templates else {}
        seen = Observation(
            nodeset=nodeset,
            workers=(),
            revision=ground.revision,
            wall=datetime.now(UTC),
            now=now,
            view=None if connection is None else connection.view,
            nodes=nodes,
            fit=ground.fit,
            claims=claims,
            controller=self._fate(ground),
            external=None if ground.master.controller is None else ground.master.controller.spec.external,
            settled=settled,
            since=self.since,
            # While a state is being changed, no list says anything about that node.
            written=memory.written | dict.fromkeys(memory.changing, math.inf),
            asked=dict(memory.asked),
            budget=ground.budget,
            failures={name: times for name, (times, _) in memory.failures.items()},
            propagated=self._propagated,
            neighbours=near.neighbours,
            bearers=near.bearers,
            memo=memory.memo,
        )
        return dataclasses.replace(seen, workers=await _read(nodeset, pods, memory, ground.hashes))

    def _claims(self, nodeset: NodeSet, memory: Memory, now: float) -> dict[str, PersistentVolumeClaim]:
        known = memory.claims.newest(self._caches.claims_of(nodeset), now)
        return {claim.metadata.name: claim for claim in known}

    def _settled(self, nodeset: NodeSet, now: float) -> bool:
        if not self._caches.expectations.satisfied(nodeset.key, now):
            return False
        namespace, prefix = nodeset.metadata.namespace, nodeset.pod_generate_name
        return not any(
            key.namespace == namespace and key.name.startswith(prefix)
            for key in self._caches.pods.store.unreadable
        )


def _controller_key(nodeset: NodeSet) -> ConnectionKey:
    return ConnectionKey("Controller", nodeset.metadata.namespace, nodeset.spec.controller_ref.name)


async def _read(
    nodeset: NodeSet, pods: list[Pod], memory: Memory, hashes: Mapping[str, str]
) -> tuple[Worker, ...]:
    known, found = memory.workers, {}
    fresh = 0
    for pod in pods:
        entry = known.get(pod.metadata.uid)
        if entry is None or entry[0] is not pod or (entry[1] is not hashes and entry[1] != hashes):
            worker = read_worker(nodeset, pod)
            if slurmd.content_changed(pod.metadata.annotations, hashes):
                worker = dataclasses.replace(worker, revision="")
            entry = (pod, hashes, worker)
            fresh += 1
            if fresh % _SLICE == 0:
                await asyncio.sleep(0)
        found[pod.metadata.uid] = entry
    memory.workers = found
    return tuple(entry[2] for entry in found.values())
