"""The five invariants in any history that Hypothesis can think of.

Each history is a list of events from `events`, in a world where the first three are checked at every write
(`model`): no pod goes while a job runs in it, no drain and no cordon of a person is undone. Then all faults
end, and what was asked for last must come about, and then nothing more may be written. CI runs
`HISTORIES` of them; set NODESET_HISTORIES to run more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset import names
from tests.unit.nodeset.events import NEWS
from tests.unit.nodeset.model import World

if TYPE_CHECKING:
    from collections.abc import Callable

HISTORIES = int(os.environ.get("NODESET_HISTORIES", "3000"))

News = tuple["Callable[[World, int], None]", int]
histories = st.lists(st.tuples(st.sampled_from(NEWS), st.integers(0, 5)), min_size=1, max_size=40)


def live_through(history: list[News]) -> World:
    """Return the world after a history, with all faults ended and everything settled."""
    world = World(replicas=3)
    world.settle()
    for what, number in history:
        what(world, number)
    world.heal()
    world.settle()
    check_wanted(world)
    return world


def check_wanted(world: World) -> None:
    """Fail unless everything is as it was last asked for."""
    assert not any(pod.deleting for pod in world.pods.values())
    assert {pod.mode for pod in world.pods.values()} <= {world.mode}
    if world.mode == "StatefulSet":
        assert len(world.pods) == world.replicas
    else:
        placed = {pod.node for pod in world.pods.values()}
        assert len(placed) == len(world.pods)
        assert placed >= {name for name, node in world.nodes.items() if not node.spec.unschedulable}
    for pod in world.pods.values():
        record = world.slurm.records.get(pod.hostname)
        if world.strategy == "RollingUpdate":
            assert pod.revision == f"r{world.revision}", f"{pod.name} is of an old revision"
        cordoned_node = bool(pod.node) and world.nodes[pod.node].spec.unschedulable
        assert (names.ANNOTATION_POD_CORDON_BY in pod.annotations) <= cordoned_node
        assert (wellknown.ANNOTATION_POD_CORDON in pod.annotations) == (pod.persons_cordon or cordoned_node)
        if pod.phase == "Running":
            assert record is not None, f"{pod.name} is not in Slurm"
            assert record.drain == (record.persons or pod.persons_cordon or cordoned_node), record
        assert wellknown.LABEL_POD_PROTECT not in pod.labels


@settings(max_examples=HISTORIES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_whatever_happens_no_job_is_killed_and_what_was_asked_for_comes_about(history: list[News]) -> None:
    """In no history is a pod deleted under a job, nor a person overruled; it ends as wished, and silent."""
    world = live_through(history)
    writes = world.writes
    for _ in range(3):
        world.pass_time(20.0)
        world.reconcile()
    assert world.writes == writes
