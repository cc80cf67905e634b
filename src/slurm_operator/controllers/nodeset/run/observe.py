"""Put together what a plan is made on: everything from caches, at one moment.

The pods, the view and the question whether the cache shows what this process has written are taken first, in
one go; reading pods comes after and gives others a turn of the event loop every few milliseconds. A pod that
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
from slurm_operator.controllers.nodeset.decide import autoscale
from slurm_operator.controllers.nodeset.decide.memo import Memo
from slurm_operator.controllers.nodeset.decide.observation import ControllerState, Observation, read_worker
from slurm_operator.controllers.nodeset.run.watches import SlurmNames
from slurm_operator.kube.process.loop_turns import Breather
from slurm_operator.objects import slurm_conf, slurmd
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.slurmd_records import record_shape
from slurm_operator.slurm.model.versions import Feature, lack, offers
from slurm_operator.slurm.rest.connections import ConnectionKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.actions import Defer
    from slurm_operator.controllers.nodeset.decide.observation import FailedResume, Revision, Worker
    from slurm_operator.controllers.nodeset.run.reconcile_state import NodeSetState
    from slurm_operator.controllers.nodeset.run.template import ControllerRef
    from slurm_operator.controllers.nodeset.run.watches import Caches
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.models.kinds import PersistentVolumeClaim, Pod
    from slurm_operator.objects.node_fit import Fit
    from slurm_operator.slurm.rest.connections import Connection

# About 2 ms of reading, if none of them was read before.
_SLICE: Final = 100


@dataclasses.dataclass(frozen=True, slots=True)
class ReconcileInputs:
    """What does not change within a reconcile: it is read before the pods are."""

    nodeset: NodeSet
    controller_ref: ControllerRef
    revision: Revision
    fit: Fit
    hashes: Mapping[str, str]
    certain: bool
    budget: Defer | None = None
    """Why the budget of the workers does not protect them, if so."""


@dataclasses.dataclass(slots=True)
class ReadState:
    """What was read and found out about pods and nodes.

    Without it everything is read and decided again, and the delay with which a node that did not power up in
    time is tried again starts from its first value.
    """

    workers: dict[str, tuple[Pod, Mapping[str, str], Worker]] = dataclasses.field(default_factory=dict)
    """Pods as they were read, by UID; a pod object that is still the same is not read again."""
    resumes: dict[str, FailedResume] = dataclasses.field(default_factory=dict)
    """Nodes that did not come up in time."""
    memo: Memo = dataclasses.field(default_factory=Memo)
    """What the last plans found out about pods and nodes that have not changed."""

    def drop_memo(self) -> None:
        """Forget what the last plans found out: a thread that still plans must not share it with the next."""
        self.memo = Memo()


class Observer:
    """Observes NodeSets; `since` is when this process began to lead."""

    def __init__(self, wiring: Wiring, caches: Caches) -> None:
        self.since = float("inf")
        self._caches = caches
        self.slurm_names = SlurmNames(caches)
        self._connections = wiring.connections
        self._propagated = wiring.propagated_node_conditions

    async def run(self) -> None:
        """Note when this process begins to lead, and wait; what was seen before counts for nothing."""
        loop = asyncio.get_running_loop()
        self.since = loop.time()
        await loop.create_future()

    def connection(self, inputs: ReconcileInputs) -> Connection | None:
        """Return the connection to the Slurm cluster of a NodeSet.

        Without its Controller there is none, unless the NodeSet is deleted too and an external Slurm goes on.
        """
        nodeset, key = inputs.nodeset, _controller_key(inputs.nodeset)
        if inputs.controller_ref.controller is None and not (
            nodeset.deleting and self._connections.outlives(key)
        ):
            return None
        return self._connections.get(key)

    def answered_at(self, nodeset: NodeSet) -> float | None:
        """Return when the newest list of nodes was here, with the jobs if they were needed for it."""
        connection = self._connections.get(_controller_key(nodeset))
        return None if connection is None else connection.view.answered_at

    def _controller_state(self, inputs: ReconcileInputs) -> ControllerState:
        nodeset, reference = inputs.nodeset, inputs.controller_ref
        if reference.state is ControllerState.STAYS:
            return reference.state
        recorded = nodeset.metadata.annotations.get(wellknown.ANNOTATION_EXTERNAL_SLURM) == wellknown.TRUE
        known = recorded or self._connections.outlives(_controller_key(nodeset))
        external = known if reference.controller is None else reference.controller.spec.external
        return ControllerState.OUTLIVED if external else reference.state

    async def observe(self, inputs: ReconcileInputs, state: NodeSetState) -> Observation:
        """Return what is known of a NodeSet now."""
        nodeset, caches = inputs.nodeset, self._caches
        now = asyncio.get_running_loop().time()
        pods = state.pods.answers.newest(caches.owned_pods(nodeset), now)
        connection = self.connection(inputs)
        settled = inputs.certain and self._settled(nodeset, now)
        near = self.slurm_names.others(nodeset)
        nodes = {node.metadata.name: node for node in caches.nodes.store.list()}
        claims = self._claims(nodeset, state, now) if nodeset.spec.volume_claim_templates else {}
        seen = Observation(
            nodeset=nodeset,
            workers=(),
            revision=inputs.revision,
            wall=datetime.now(UTC),
            now=now,
            view=None if connection is None else connection.view,
            nodes=nodes,
            fit=inputs.fit,
            claims=claims,
            controller=self._controller_state(inputs),
            external=None
            if inputs.controller_ref.controller is None
            else inputs.controller_ref.controller.spec.external,
            settled=settled,
            since=self.since,
            connected=-math.inf if connection is None else connection.record.since,
            written=state.nodes.invalid_before,
            asked=dict(state.evidence.answers),
            budget=inputs.budget,
            failures={name: times for name, (times, _) in state.pods.failures.items()},
            propagated=self._propagated,
            neighbours=near.neighbours,
            name_holders=near.name_holders,
            records_created=state.records.created_at,
            memo=state.read.memo,
        )
        if nodeset.autoscaled:
            seen = _with_power_saving(seen, inputs, state, connection)
        return dataclasses.replace(seen, workers=await _read(nodeset, pods, state.read, inputs.hashes))

    def _claims(self, nodeset: NodeSet, state: NodeSetState, now: float) -> dict[str, PersistentVolumeClaim]:
        known = state.claims.newest(self._caches.claims_of(nodeset), now)
        return {claim.metadata.name: claim for claim in known}

    def _settled(self, nodeset: NodeSet, now: float) -> bool:
        if not self._caches.expectations.satisfied(nodeset.key, now):
            return False
        namespace, prefix = nodeset.metadata.namespace, nodeset.pod_generate_name
        return not any(
            key.namespace == namespace and key.name.startswith(prefix)
            for key in self._caches.pods.store.unreadable
        )


def _with_power_saving(
    seen: Observation, inputs: ReconcileInputs, state: NodeSetState, connection: Connection | None
) -> Observation:
    """Add what is known about the records of a NodeSet that Slurm scales."""
    nodeset, controller = inputs.nodeset, inputs.controller_ref.controller
    shape, lacks = None, ""
    try:
        if controller is not None:
            shape = record_shape(nodeset, reserve=slurm_conf.constrains_memory(controller))
    except Unbuildable as error:
        lacks = "; ".join(f"{one.field}: {one.message}" for one in error.problems)
    version = None if connection is None else connection.rest.version
    # Slurm 25.11 creates nodes, but refuses a line with a SuspendTime (`record_shape`).
    if version is not None and not offers(version, Feature.SUSPEND_TIME):
        lacks = lack(version, Feature.SUSPEND_TIME)
    names = map(nodeset.pod_hostname, range(nodeset.most_replicas))
    view = seen.view
    if view is not None and not view.stale(seen.now) and view.suspicion is None:
        state.read.resumes = autoscale.failed_resumes(state.read.resumes, view, names, seen.now)
    return dataclasses.replace(
        seen,
        record=shape,
        lacks=lacks,
        resumes=dict(state.read.resumes),
        made=dict(state.records.created_with),
    )


def _controller_key(nodeset: NodeSet) -> ConnectionKey:
    return ConnectionKey("Controller", nodeset.metadata.namespace, nodeset.spec.controller_ref.name)


async def _read(
    nodeset: NodeSet, pods: list[Pod], read: ReadState, hashes: Mapping[str, str]
) -> tuple[Worker, ...]:
    known, found = read.workers, {}
    breathe = Breather()
    for number, pod in enumerate(pods):
        entry = known.get(pod.metadata.uid)
        if entry is None or entry[0] is not pod or (entry[1] is not hashes and entry[1] != hashes):
            worker = read_worker(nodeset, pod)
            if slurmd.content_changed(pod.metadata.annotations, hashes):
                worker = dataclasses.replace(worker, revision="")
            entry = (pod, hashes, worker)
        if number % _SLICE == 0:
            await breathe()
        found[pod.metadata.uid] = entry
    read.workers = found
    return tuple(entry[2] for entry in found.values())
