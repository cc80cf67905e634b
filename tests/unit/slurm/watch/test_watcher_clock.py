"""What "unchanged since" is worth: it keeps a list from growing stale, and makes none newer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.slurm.model.view import AnswerReason, Known, Unknown
from tests.support.slurm.memory_cluster import Cluster, now, watching
from tests.support.slurm.views import node
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from slurm_operator.slurm.watch.watcher import SlurmWatch


def drained(watch: SlurmWatch, name: str, newer_than: float) -> AnswerReason:
    return watch.view.drained(name, now(), newer_than).reason


@virtual_time
async def test_unchanged_is_no_newer_list() -> None:
    """slurmctld's clock goes back, a drained node gets work, and slurmctld says that nothing changed.

    The view must not pass its old list off as one of this moment.
    """
    cluster = Cluster(node("n1", "IDLE", "DRAIN"))
    async with watching(cluster) as watched:
        await watched.settle()
        await asyncio.sleep(2.0)
        assert drained(watched.watch, "n1", float("-inf")) is AnswerReason.DRAINED
        cluster.clock_offset = -3600
        cluster.put(node("n1", "ALLOCATED"))
        changed = now()
        lists = cluster.count("nodes")
        await watched.until(lambda: cluster.count("nodes") > lists)
        await asyncio.sleep(0.1)
        view = watched.watch.view
        last = [one for one in cluster.asked if one.what == "nodes"][-1]
        assert last.since is not None, "it was asked for changes, and there were none"
        assert not view.stale(now())
        assert view.age(now()) < 1.0
        answer = view.node("n1", now(), newer_than=changed)
        assert isinstance(answer, Unknown)
        assert answer.reason is AnswerReason.VIEW_PENDING
        assert drained(watched.watch, "n1", changed) is AnswerReason.DRAIN_PENDING
        assert view.listed_at is not None
        assert view.listed_at <= changed


@virtual_time
async def test_who_waits_for_a_newer_list_gets_a_whole_one() -> None:
    """After the clock went back, the list that a deletion waits for shows the node as it is."""
    cluster = Cluster(node("n1", "IDLE", "DRAIN"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.clock_offset = -3600
        cluster.put(node("n1", "ALLOCATED"))
        view = await watched.watch.refreshed(now(), now() + 30.0)
        answer = view.node("n1", now())
        assert isinstance(answer, Known)
        assert answer.node.state == ("ALLOCATED",)


@virtual_time
async def test_who_waits_gets_whole_jobs_too() -> None:
    """A list of jobs that was only said to be unchanged is asked for as a whole before a verdict."""
    cluster = Cluster(node("n1", "IDLE", "DRAIN"))
    async with watching(cluster) as watched:
        await watched.settle()
        await asyncio.sleep(20.0)
        begun = now()
        await watched.watch.refreshed(begun, begun + 30.0)
        await watched.until(lambda: bool(cluster.times("jobs", begun)))
        assert [one.since for one in cluster.asked if one.what == "jobs" and one.at >= begun] == [None]


@virtual_time
async def test_unchanged_keeps_a_list_for_half_a_minute_at_most() -> None:
    """Then it is asked for as a whole, and shows what a clock that went back has hidden."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.clock_offset = -3600
        cluster.put(node("n1", "ALLOCATED"))
        begun = now()
        await watched.until(lambda: watched.watch.view.nodes["n1"].state == ("ALLOCATED",))
        assert now() - begun <= watched.watch.timing.stale_after + 1.0


@virtual_time
async def test_after_a_write_two_lists_are_whole() -> None:
    """Who hears a moment too late that his write is done needs a list after that one, and not in a minute."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        watched.watch.wake()
        await watched.until(lambda: watched.watch.view.age(now()) < 0.1)
        heard = now()
        await watched.until(lambda: isinstance(watched.watch.view.node("n1", now(), heard), Known), 5.0)
