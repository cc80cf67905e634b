"""The rows of the whole operator: which of them are new, and which are gone."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import Controller, wellknown
from slurm_operator.kube.models.meta import Key, ObjectMeta
from slurm_operator.kube.models.store import Store
from slurm_operator.slurm.rest.connections import Connections
from slurm_operator.status_api import board
from slurm_operator.status_api.board import Board, BoardSources
from slurm_operator.status_api.decision_log import DecisionLog
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import pod

if TYPE_CHECKING:
    from slurm_operator.api.nodeset import NodeSet as NodeSetKind


class Site:
    """Caches with one Controller, one NodeSet and its pods."""

    def __init__(self, workers: int = 3, namespaces: tuple[str, ...] = ()) -> None:
        self.nodeset: NodeSetKind = make_nodeset(replicas=workers)
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
        self.board = Board(
            BoardSources(
                nodesets=self.nodesets,
                controllers=self.controllers,
                owned_pods=lambda _: self.pods.list(),
                connections=Connections(reason_prefix=wellknown.REASON_PREFIX),
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
