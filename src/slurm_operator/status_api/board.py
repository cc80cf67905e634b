"""The rows of all clusters, NodeSets and workers, refreshed when asked for, and what has changed in them.

A refresh walks through the caches and makes a new row only where something that the row is made of is another
object than before; so at rest a thousand workers take about a millisecond. It gives the event loop a turn
every few milliseconds. A request that comes while a refresh is under way waits for it and uses its result.

Every change of a row has a version. A client that knows the rows of one version asks for what is newer; what
is gone is remembered for a while, and a client that comes later than that has to start again. Rows that are
not asked for are dropped after a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import msgspec

from slurm_operator.controllers.nodeset.decide.autoscale import Power, power_of
from slurm_operator.controllers.nodeset.decide.observation import read_worker
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.process.loop_turns import SLICE
from slurm_operator.slurm.model.view import AnswerReason
from slurm_operator.slurm.rest.connections import ConnectionKey
from slurm_operator.status_api.cluster_rows import Reached, cluster_row, nodeset_row
from slurm_operator.status_api.worker_rows import WorkerFacts, facts_of, row_without_pod, worker_row
from slurm_operator.status_rows import AgeRow, ClusterRow, NodeSetRow, WorkerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from slurm_operator.api import Controller, NodeSet
    from slurm_operator.controllers.nodeset.decide.observation import Worker
    from slurm_operator.kube.models.kinds import Pod
    from slurm_operator.kube.models.store import Store
    from slurm_operator.slurm.model.view import ClusterView
    from slurm_operator.slurm.rest.connections import Connections
    from slurm_operator.status_api.decision_log import DecisionLog, LastPlan

R = TypeVar("R", ClusterRow, NodeSetRow, WorkerRow)

# A refresh that takes longer comes less often, so that it never takes more than a small part of a processor.
LEAST_SECONDS: Final = 1.0
_PART: Final = 50.0
_LONGEST_SECONDS: Final = 3.0
# Clients that wait for the interval must not come a moment too early.
_SOON: Final = 0.9
_KEPT_SECONDS: Final = 60.0
_MOST_REMOVED: Final = 20_000


@dataclass(frozen=True)
class BoardSources:
    """What the rows are made of."""

    nodesets: Store[NodeSet]
    controllers: Store[Controller]
    owned_pods: Callable[[NodeSet], list[Pod]]
    connections: Connections
    log: DecisionLog
    namespaces: tuple[str, ...] = ()
    """Those that the operator is confined to; empty if it works in all."""


class Removed(NamedTuple):
    """A row that is gone."""

    version: int
    table: str
    key: Key


class _Made(NamedTuple):
    """A row of a worker, and what it was made of."""

    pod: Pod
    nodeset: Key
    worker: Worker
    facts: WorkerFacts


@dataclass
class Table(Generic[R]):
    """The rows of one kind, each with the version in which it last changed."""

    name: str
    rows: dict[Key, tuple[int, R]] = field(default_factory=dict)

    def values(self) -> Iterator[R]:
        """Iterate over all rows."""
        return (row for _, row in self.rows.values())

    def newer(self, version: int) -> list[R]:
        """Return the rows that have changed since a version."""
        return [row for changed, row in self.rows.values() if changed > version]

    def put(self, key: Key, row: R, version: int) -> bool:
        """Store a row; return whether it differs from the one before."""
        before = self.rows.get(key)
        if before is not None and _alike(before[1], row):
            self.rows[key] = (before[0], row)
            return False
        self.rows[key] = (version, row)
        return True


class Board:
    """Keeps the rows; to be used from one event loop."""

    def __init__(self, caches: BoardSources) -> None:
        self._caches = caches
        self.version = 0
        self.clusters: Table[ClusterRow] = Table("clusters")
        self.nodesets: Table[NodeSetRow] = Table("nodesets")
        self.workers: Table[WorkerRow] = Table("workers")
        self._removed: deque[Removed] = deque()
        self._forgotten = 0
        self._made: dict[Key, _Made] = {}
        self._without_pod: dict[Key, WorkerFacts] = {}
        self._refreshing = asyncio.Lock()
        self._refreshed = float("-inf")
        self._took = 0.0
        self._dropping: asyncio.TimerHandle | None = None

    @property
    def interval(self) -> float:
        """Return how many seconds should pass between two refreshes."""
        return min(_LONGEST_SECONDS, max(LEAST_SECONDS, _PART * self._took))

    def namespaces(self) -> set[str]:
        """Return the namespaces in which there is anything to show."""
        caches = self._caches
        return {*caches.namespaces} | {
            key.namespace
            for store in (caches.nodesets, caches.controllers)
            for key in store.keys()  # noqa: SIM118
        }

    def removed(self, after: int) -> list[Removed] | None:
        """Return the rows that are gone since a version; None if that is too long ago to be known."""
        if after < self._forgotten:
            return None
        return [one for one in self._removed if one.version > after]

    async def refresh(self) -> None:
        """Bring the rows up to date, unless that was done a moment ago."""
        loop = asyncio.get_running_loop()
        async with self._refreshing:
            if loop.time() - self._refreshed < _SOON * self.interval:
                return
            self._keep(loop)
            began, breathe = loop.time(), _Work()
            await self._rebuild(self.version + 1, breathe)
            breathe.end()
            self._refreshed, self._took = began, breathe.seconds

    # --- inside

    async def _rebuild(self, version: int, breathe: _Work) -> None:
        changed = False
        nodesets: dict[Key, set[str]] = {}
        seen: dict[str, set[Key]] = {
            table.name: set() for table in (self.clusters, self.nodesets, self.workers)
        }
        for nodeset in self._caches.nodesets.list():
            rows = []
            for key, row in self._workers(nodeset):
                rows.append(row)
                seen["workers"].add(key)
                changed |= self.workers.put(key, row, version)
                await breathe()
            waits = self._caches.log.plan(nodeset.key).waits
            changed |= self.nodesets.put(nodeset.key, nodeset_row(nodeset, rows, waits), version)
            seen["nodesets"].add(nodeset.key)
            owner = Key(nodeset.metadata.namespace, nodeset.spec.controller_ref.name)
            nodesets.setdefault(owner, set()).add(nodeset.metadata.name)
            await breathe()
        for controller in self._caches.controllers.list():
            cluster = self._cluster(controller, nodesets.get(controller.key, ()))
            changed |= self.clusters.put(controller.key, cluster, version)
            seen["clusters"].add(controller.key)
            await breathe()
        changed |= self._sweep(seen, version)
        if changed:
            self.version = version

    def _workers(self, nodeset: NodeSet) -> Iterator[tuple[Key, WorkerRow]]:
        caches, now = self._caches, asyncio.get_running_loop().time()
        namespace, cluster = nodeset.metadata.namespace, nodeset.spec.controller_ref.name
        connection = caches.connections.get(ConnectionKey("Controller", namespace, cluster))
        view = None if connection is None else connection.view
        plan = caches.log.plan(nodeset.key)
        current = plan.same or frozenset({nodeset.status.node_set_hash})
        pods = caches.owned_pods(nodeset)
        for pod in pods:
            known = self._made.get(pod.key)
            same_pod = known is not None and known.pod is pod and known.nodeset == nodeset.key
            worker = known.worker if known is not None and same_pod else read_worker(nodeset, pod)
            facts = replace(
                _facts(worker.slurm_name, view, now, plan),
                blocked=plan.blocked.get(worker.name),
                cause=plan.going.get(worker.uid),
                current=worker.revision in current,
            )
            shown = self.workers.rows.get(pod.key)
            if known is not None and same_pod and shown is not None and known.facts.same(facts):
                yield pod.key, shown[1]
                continue
            self._made[pod.key] = _Made(pod, nodeset.key, worker, facts)
            yield pod.key, worker_row(namespace, nodeset.metadata.name, cluster, worker, facts)
        if nodeset.has_power_records:
            present = {pod.metadata.name for pod in pods}
            yield from self._nodes_without_pod(nodeset, present, lambda name: _facts(name, view, now, plan))

    def _nodes_without_pod(
        self, nodeset: NodeSet, present: set[str], facts_about: Callable[[str], WorkerFacts]
    ) -> Iterator[tuple[Key, WorkerRow]]:
        """Yield rows of the nodes that Slurm may power up, and of those of which nothing is known."""
        for ordinal in range(nodeset.most_replicas):
            pod = nodeset.pod_name(ordinal)
            if pod in present:
                continue
            name = nodeset.pod_hostname(ordinal)
            facts = facts_about(name)
            if not _powered(nodeset, facts):
                continue
            key = Key(nodeset.metadata.namespace, pod)
            known, shown = self._without_pod.get(key), self.workers.rows.get(key)
            if known is not None and shown is not None and shown[1].without_pod and known.same(facts):
                yield key, shown[1]
                continue
            self._without_pod[key] = facts
            yield key, row_without_pod(nodeset, pod, name, facts)

    def _cluster(self, controller: Controller, nodesets: Iterable[str]) -> ClusterRow:
        now, wall = asyncio.get_running_loop().time(), datetime.now(UTC)
        key = ConnectionKey("Controller", *controller.key)
        connections = self._caches.connections
        connection, linked = connections.get(key), connections.linked(key)
        reached = None
        if connection is not None:
            reached = Reached(
                view=connection.view,
                server=connection.target.url,
                via="" if linked is None else f"{linked.kind} {linked}",
                api_version=connection.rest.version or "",
                failing_since=connection.failing_since,
            )
        return cluster_row(controller, reached, nodesets, now, wall)

    def _sweep(self, seen: dict[str, set[Key]], version: int) -> bool:
        gone = False
        for table in (self.clusters, self.nodesets, self.workers):
            for key in table.rows.keys() - seen[table.name]:
                del table.rows[key]
                self._removed.append(Removed(version, table.name, key))
                gone = True
        if gone:
            left = seen["workers"]
            self._made = {key: made for key, made in self._made.items() if key in left}
            self._without_pod = {key: facts for key, facts in self._without_pod.items() if key in left}
        while len(self._removed) > _MOST_REMOVED:
            self._forgotten = self._removed.popleft().version
        return gone

    def _keep(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
        self._dropping = loop.call_later(_KEPT_SECONDS, self._drop)

    def _drop(self) -> None:
        """Forget all rows; a client that knows some has to start again."""
        self.version += 1
        self._forgotten = self.version
        for table in (self.clusters, self.nodesets, self.workers):
            table.rows.clear()
        self._removed.clear()
        self._made.clear()
        self._without_pod.clear()
        self._dropping = None
        self._refreshed = float("-inf")


class _Work:
    """Gives the event loop its turns during a refresh, and adds up the time between them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = time.perf_counter()

    async def __call__(self) -> None:
        """Wait for a turn if it is time for that."""
        took = time.perf_counter() - self._began
        if took > SLICE:
            self.seconds += took
            await asyncio.sleep(0)
            self._began = time.perf_counter()

    def end(self) -> None:
        """Count the time since the last turn."""
        self.seconds += time.perf_counter() - self._began


def _facts(name: str, view: ClusterView | None, now: float, plan: LastPlan) -> WorkerFacts:
    """Return what Slurm says of a node."""
    if view is None:
        return WorkerFacts(unknown=AnswerReason.NO_VIEW)
    node, unknown = facts_of(view.node(name, now))
    return WorkerFacts(node=node, unknown=unknown, jobs=view.jobs.by_node.get(name), late=plan.late.get(name))


def _powered(nodeset: NodeSet, facts: WorkerFacts) -> bool:
    """Return whether a node without a pod is, or may be, a record of power saving of a NodeSet."""
    if facts.node is None:
        return facts.unknown is not None
    return power_of(facts.node) is not Power.PLAIN and nodeset.slurm_name in facts.node.features


def _alike(before: object, after: object) -> bool:
    """Return whether two rows of an object show the same, ages aside."""
    if isinstance(before, ClusterRow) and isinstance(after, ClusterRow):
        return _ageless(before) == _ageless(after)
    return before is after or before == after


def _ageless(row: ClusterRow) -> ClusterRow:
    views = {name: AgeRow(stale=one.stale) for name, one in row.views.items()}
    return msgspec.structs.replace(row, views=views, uptime_seconds=None)
