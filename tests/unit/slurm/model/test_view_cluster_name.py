"""Of which Slurm cluster an answer is: one of another name says nothing about any node."""

from __future__ import annotations

import asyncio

import pytest

from slurm_operator.slurm.errors import WrongCluster
from slurm_operator.slurm.model.view import AnswerReason, ClusterView, Known, Unknown, ViewUpdate, deltas
from slurm_operator.slurm.watch.watcher import ExpectingWatch
from tests.support.slurm.memory_cluster import Cluster, now, watching
from tests.support.slurm.views import node
from tests.support.virtual_time import virtual_time

NODES = {"n1": node("n1")}


def seen(cluster: str) -> ClusterView:
    return ClusterView(nodes=NODES, listed_at=10.0, cluster=cluster, complete=True, up_since=0.0)


@pytest.mark.parametrize(
    ("reported", "expected"), [("lab", "lab"), ("lab", "LAB"), ("", "lab"), ("lab", ""), ("", "")]
)
def test_a_name_that_fits_or_is_not_stated_changes_nothing(reported: str, expected: str) -> None:
    """Slurm writes every ClusterName in lower case, and an empty name says nothing."""
    view = seen(reported)
    assert view.expecting(expected) is view


def test_a_view_of_another_cluster_knows_nothing() -> None:
    """No node is known, absent or drained, no job and no reservation is shown, and the reason says why."""
    view = seen("other").expecting("lab")
    for name in ("n1", "n2"):
        answer = view.node(name, 10.5)
        assert isinstance(answer, Unknown)
        assert answer.reason is AnswerReason.CLUSTER_NAME_MISMATCH
        assert "'other'" in answer.message
        assert "'lab'" in answer.message
        assert view.drained(name, 10.5).reason is AnswerReason.CLUSTER_NAME_MISMATCH
    assert isinstance(view.failure, WrongCluster)
    assert (view.listed_at, view.jobs_listed_at, view.reservations_listed_at, view.nodes) == (
        None,
        None,
        None,
        {},
    )


def test_an_update_to_another_cluster_takes_every_node_away() -> None:
    """Whoever expects the first cluster hears that all its nodes are unknown from now on."""
    before, after = seen("lab"), seen("other")
    update = ViewUpdate(after, before, deltas(before, after))
    assert update.changes == ()
    told = update.expecting("lab")
    assert [(change.name, change.new) for change in told.changes] == [("n1", None)]
    assert isinstance(told.view.failure, WrongCluster)
    assert update.expecting("") is update


@virtual_time
async def test_a_server_that_is_exchanged_is_noticed_with_its_first_list() -> None:
    """Each list is compared; what was known about one cluster says nothing about the next."""
    cluster = Cluster(node("n1"), node("n2"))
    cluster.name = "lab"
    async with watching(cluster) as watched:
        expecting = ExpectingWatch(watched.watch, "lab")
        await watched.settle()
        assert isinstance(expecting.view.node("n1", now()), Known)
        cluster.name = "other"
        cluster.drop("n2")
        with pytest.raises(WrongCluster):
            await expecting.refreshed(now(), now() + 30.0)
        assert expecting.view.failure is not None
        assert watched.watch.view.cluster == "other"
        # Not even for somebody who expects any cluster does the old one's list speak for the new one.
        gone = watched.watch.view.node("n2", now())
        assert isinstance(gone, Unknown)
        assert gone.reason is not AnswerReason.LIST_SUSPICIOUS
        cluster.name = "lab"
        cluster.put(node("n2"))
        view = await expecting.refreshed(now(), now() + 30.0)
        assert isinstance(view.node("n2", now()), Known)


@virtual_time
async def test_jobs_of_another_cluster_are_not_believed() -> None:
    """A list of jobs that names another cluster than the list of nodes is no list."""
    cluster = Cluster(node("n1"))
    cluster.name = "lab"
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.jobs_name = "other"
        cluster.touch("jobs")
        listed_at = watched.watch.view.jobs_listed_at
        await asyncio.sleep(70.0)
        view = watched.watch.view
        assert view.jobs_failure is not None
        assert "'other'" in str(view.jobs_failure)
        assert view.jobs_listed_at == listed_at
