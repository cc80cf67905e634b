"""A cluster that shrinks keeps room for the nodes that it had."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_operator.objects import slurm_conf, slurmctld
from slurm_operator.objects.max_node_count import keep_room
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.support.objects.resources import controller, found, node_set


def _cluster(replicas: int, **spec: Any) -> SlurmCluster:
    return SlurmCluster(controller(**spec), [node_set("a", replicas=replicas)])


def _room(cluster: SlurmCluster) -> int:
    return slurm_conf.max_nodes(cluster.controller, cluster.node_sets, cluster.room)


def _written(cluster: SlurmCluster) -> str:
    return slurm_conf.controller_files(cluster, found())["slurm.conf"]


@pytest.mark.parametrize(
    ("before", "now", "room"),
    [(10, 10, 1024), (3000, 10, 4096), (3000, 2500, 4096), (10, 3000, 4096), (70_000, 10, 65_536)],
)
def test_difference_8_room_grows_at_once_and_never_shrinks(before: int, now: int, room: int) -> None:
    """MaxNodeCount only grows, up to what Slurm can have, whatever else in slurm.conf changes with it."""
    written = _written(_cluster(before))
    for spec in ({}, {"extraConf": "X=1"}, {"inplaceReconfigure": True}):
        kept = keep_room(_cluster(now, **spec), found(), written, "of other files")
        assert _room(kept) == room
        assert _room(keep_room(_cluster(now, **spec), found(), _written(kept), "")) == room, "and later"


@pytest.mark.parametrize(("before", "now"), [(3000, 10), (3000, 2500), (70_000, 10)])
def test_difference_8_a_deleted_config_map_takes_no_room(before: int, now: int) -> None:
    """Without the slurm.conf that was written, the hash of what runs tells how much room there is."""
    running = slurmctld.config_hash(_cluster(before), found())
    kept = keep_room(_cluster(now), found(), "", running)
    assert slurmctld.config_hash(kept, found()) == running


def test_difference_8_the_user_has_the_last_word_about_room() -> None:
    """A user's own MaxNodeCount is less room if he says so, and stays as room when he says nothing more."""
    own = _cluster(10, extraConf="MaxNodeCount=2000")
    kept = keep_room(own, found(), _written(_cluster(3000)), "")
    assert _written(kept) == _written(own)
    assert _room(keep_room(_cluster(10), found(), _written(own), "")) == 2000


@pytest.mark.parametrize("written", ["", "MaxNodeCount=", "MaxNodeCount=many", f"MaxNodeCount={'9' * 5000}"])
@pytest.mark.parametrize("spec", [{"configFileRefs": [{"name": "missing"}]}, {}])
def test_nothing_runs(spec: dict[str, Any], written: str) -> None:
    """Without a slurmctld, or without the files that it needs, there is nothing to keep."""
    cluster = _cluster(10, **spec)
    assert keep_room(cluster, found(), written, "") == cluster
    assert keep_room(cluster, found(), written, "of other files") == cluster
