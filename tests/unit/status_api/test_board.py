"""The rows of the whole operator: which of them are new, and which are gone."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import Controller, wellknown
from slurm_operator.kube.models.meta import Key, ObjectMeta
from slurm_operator.kube.models.store import Store
from slurm_operator.slurm.decide.node_list_trust import Evidence
from slurm_operator.slurm.rest.connections import Connections
from slurm_operator.status_api import board
from slurm_operator.status_api.board import Board, BoardSources
from slurm_operator.status_api.decision_log import DecisionLog
from slurm_operator.status_rows import AutoscalingRow
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import pod
from tests.support.slurm.views import node, view

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.api.nodeset import NodeSet as NodeSetKind
    from slurm_operator.slurm.model.records import Node
    from slurm_operator.slurm.model.view import ClusterView
    from slurm_operator.slurm.rest.connections import ConnectionKey


class Views(Connections):
    """Connections with one view that the test sets."""

    def __init__(self, view: Callable[[], ClusterView | None]) -> None:
        super().__init__(reason_prefix=wellknown.REASON_PREFIX)
        self._view = view

    def get(self, key: ConnectionKey) -> Any:
        """Return something with the view, if there is one."""
        del key
        found = self._view()
        if found is None:
            return None
        return SimpleNamespace(
            view=found,
            target=SimpleNamespace(url="http://slurm"),
            rest=SimpleNamespace(version="v0.0.45"),
            failing_since=None,
        )


class Site:
    """Caches with one Controller, one NodeSet and its pods."""

    def __init__(self, workers: int = 3, namespaces: tuple[str, ...] = (), **spec: Any) -> None:
        self.nodeset: NodeSetKind = make_nodeset(replicas=workers, **spec)
        self.space = self.nodeset.metadata.namespace
        self.nodesets: Store[Any] = Store()
        self.controllers: Store[Any] = Store()
        self.pods: Store[Any] = Store()
        self.log = DecisionLog()
        self.nodesets.put(self.nodeset)
        name = self.nodeset.spec.controller_ref.name
        self.controllers.put(Controller(metadata=ObjectMeta(name=name, namespace=self.space, uid="c")))
        self.sims = [pod(number) for number in range(workers)]
        for one in self.sims:
            self.pods.put(one.show())
        self.view: ClusterView | None = None
        self.board = Board(
            BoardSources(
                nodesets=self.nodesets,
                controllers=self.controllers,
                owned_pods=lambda _: self.pods.list(),
                connections=Views(lambda: self.view),
                log=self.log,
                namespaces=namespaces,
            )
        )

    async def refresh(self) -> None:
        """Refresh at once, however lately that was done."""
        self.board._refreshed = float("-inf")
        await self.board.refresh()

    def change(self, number: int, **fields: Any) -> None:
        """Change a pod."""
        sim = replace(self.sims[number], version=self.sims[number].version + 1, **fields)
        self.sims[number] = sim
        self.pods.put(sim.show())


def elastic(*nodes: Node, workers: int = 1, most: int = 4, **fields: Any) -> Site:
    """Return a site that Slurm scales, with a list of these nodes that is fresh."""
    site = Site(workers, autoscaling={"minReplicas": 1, "maxReplicas": most})
    now = asyncio.get_running_loop().time()
    site.view = view(
        *nodes, **{"listed_at": now, "jobs_listed_at": now, "others": Evidence(7, 0.0), **fields}
    )
    return site


def record(number: int, *state: str) -> Node:
    """Return a record of power saving of worker number N."""
    return node(f"gpu-{number}", *state, "CLOUD", "DYNAMIC_NORM", features=("gpu",))


async def test_nodes_without_a_pod_have_a_row_while_slurm_scales() -> None:
    """One for each record of power saving; a name that Slurm does not list has none."""
    site = elastic(record(0, "IDLE"), record(1, "IDLE", "POWERED_DOWN"), record(2, "MIXED", "POWERING_UP"))
    await site.refresh()
    rows = {row.slurm_node: row for row in site.board.workers.values()}
    assert {name: (row.without_pod, row.power) for name, row in rows.items()} == {
        "gpu-0": (False, "up"),
        "gpu-1": (True, "powered down"),
        "gpu-2": (True, "powering up"),
    }
    (nodeset,) = site.board.nodesets.values()
    # The pod is of another revision than the status names.
    assert (nodeset.pods, nodeset.ready, nodeset.updated) == (1, 1, 0)
    assert nodeset.states == {"idle": 1, "powered-down": 1, "starting": 1}
    assert nodeset.autoscaling == AutoscalingRow(
        min_replicas=1,
        max_replicas=4,
        idle_seconds=300,
        resume_timeout_seconds=600,
        suspend_timeout_seconds=60,
        nodes={"powered down": 1, "powering up": 1, "up": 1, "without a record": 1},
    )


async def test_a_cluster_counts_powered_down_nodes_apart() -> None:
    """An idle node that is powered down runs no slurmd; one that powers up counts by its base state."""
    site = elastic(record(0, "IDLE"), record(1, "IDLE", "POWERED_DOWN"), record(2, "MIXED", "POWERING_UP"))
    await site.refresh()
    (found,) = site.board.clusters.values()
    assert found.nodes.by_state == {"IDLE": 1, "IDLE+POWERED_DOWN": 1, "MIXED": 1}


async def test_a_row_without_a_pod_becomes_that_of_the_pod() -> None:
    """The pod of a node that powers up replaces the row; at rest no row is made again."""
    site = elastic(record(0, "IDLE"), record(1, "MIXED", "POWERING_UP"), most=2)
    await site.refresh()
    version = site.board.version
    made = {key: id(row) for key, (_, row) in site.board.workers.rows.items()}
    await site.refresh()
    assert {key: id(row) for key, (_, row) in site.board.workers.rows.items()} == made
    site.pods.put(pod(1).show())
    await site.refresh()
    assert [(row.pod, row.without_pod) for row in site.board.workers.newer(version)] == [("gpu-1", False)]
    assert site.board.removed(version) == []


async def test_an_old_list_shows_no_power_state() -> None:
    """A stale list makes every node unknown, with and without a pod."""
    site = elastic(record(0, "IDLE"), record(1, "IDLE", "POWERED_DOWN"), most=2, listed_at=-1000.0)
    await site.refresh()
    assert {row.power for row in site.board.workers.values()} == {""}
    (nodeset,) = site.board.nodesets.values()
    assert nodeset.autoscaling is not None
    assert (nodeset.states, nodeset.autoscaling.nodes) == ({"unknown": 2}, {"unknown": 2})


async def test_records_of_others_are_not_shown_as_workers() -> None:
    """A record that slurmd made, or one without the feature of the NodeSet, is not one of power saving."""
    foreign = node("gpu-2", "IDLE", "POWERED_DOWN", "CLOUD", "DYNAMIC_NORM", features=("other",))
    site = elastic(record(0, "IDLE"), node("gpu-1"), foreign)
    await site.refresh()
    assert [row.slurm_node for row in site.board.workers.values()] == ["gpu-0"]


async def test_an_autoscaling_that_has_no_effect_shows_no_nodes() -> None:
    """While the condition Autoscaling is False, or the NodeSet is deleted, only pods are workers."""
    said = {"type": wellknown.CONDITION_AUTOSCALING, "status": "False", "reason": "AutoscalingUnsupported"}
    for given in ({"status": {"conditions": [said]}}, {"deleting": True}):
        site = elastic(record(1, "IDLE", "POWERED_DOWN"), workers=0)
        site.nodesets.put(make_nodeset(autoscaling={"maxReplicas": 4}, **given))
        await site.refresh()
        assert [*site.board.workers.values()] == []
        (nodeset,) = site.board.nodesets.values()
        assert nodeset.autoscaling is not None
        assert nodeset.autoscaling.nodes == {}


async def test_at_rest_nothing_is_new() -> None:
    """A refresh that finds everything as before changes no version."""
    site = Site()
    await site.refresh()
    version = site.board.version
    assert len(site.board.workers.newer(-1)) == 3
    await site.refresh()
    assert site.board.version == version
    assert site.board.workers.newer(version) == []
    assert site.board.clusters.newer(version) == []


async def test_only_what_changed_is_new() -> None:
    """A pod that changes gives one new row, and its NodeSet another if its counts change."""
    site = Site()
    await site.refresh()
    version = site.board.version
    site.change(1, ready_since=None)
    await site.refresh()
    assert [row.pod for row in site.board.workers.newer(version)] == ["gpu-1"]
    assert [row.ready for row in site.board.nodesets.newer(version)] == [2]


async def test_what_is_gone_is_told_as_long_as_it_is_remembered() -> None:
    """A client that knows a later version than what is remembered hears of it; another one starts again."""
    site = Site()
    await site.refresh()
    version = site.board.version
    site.pods.remove(Key(site.space, "gpu-2"))
    await site.refresh()
    gone = site.board.removed(version)
    assert gone is not None
    assert [(one.table, one.key.name) for one in gone] == [("workers", "gpu-2")]
    assert site.board.removed(site.board.version) == []
    site.board._drop()
    assert site.board.removed(version) is None
    await site.refresh()
    assert len(site.board.workers.newer(-1)) == 2


async def test_namespaces_are_those_with_objects_and_those_of_the_operator() -> None:
    """An operator that is confined to namespaces has something to show there, also before there is any."""
    site = Site(namespaces=("empty",))
    assert site.board.namespaces() == {site.space, "empty"}


async def test_a_thousand_workers_at_rest_take_little() -> None:
    """After the first refresh, rows of unchanged workers are not made again."""
    site = Site(1000)
    await site.refresh()
    made = {key: id(row) for key, (_, row) in site.board.workers.rows.items()}
    started = time.thread_time()
    await site.refresh()
    assert time.thread_time() - started < 0.5
    assert {key: id(row) for key, (_, row) in site.board.workers.rows.items()} == made


async def test_requests_at_the_same_time_share_one_refresh() -> None:
    """However many clients ask at once, the caches are walked through once."""
    site = Site()
    await asyncio.gather(*(site.board.refresh() for _ in range(20)))
    assert site.board.version == 1
    assert site.board.interval == board.LEAST_SECONDS


async def test_ages_are_no_change() -> None:
    """What grows by itself makes no row new."""
    site = Site()
    await site.refresh()
    (_, row), *_ = site.board.clusters.rows.values()
    older = msgspec.structs.replace(row, uptime_seconds=5.0)
    assert site.board.clusters.put(Key(row.namespace, row.name), older, 99) is False
