"""What a NodeSet beyond every bound costs: objects that were stored before the CRD had a maximum."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

from slurm_operator.api.limits import MAX_DIGITS, MAX_WORKERS
from slurm_operator.controllers.nodeset.decide.actions import CreatePod
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.controllers.nodeset.decide.scale import CREATES_PER_RECONCILE
from slurm_operator.objects.slurmd_names import series
from tests.support.simulation.kubernetes import make_node, make_nodeset
from tests.support.simulation.observations import observe, pod

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation

GUARDED = ("nodeset.slinky.slurm.net/drain",)
MOST = 2**31 - 1
# 200,000 creations took 38 MB, and 2,147,483,647 hundreds of GB.
MEMORY = 8 * 2**20


def creates(decided: Plan) -> list[str]:
    return [action.name for action in decided.actions if isinstance(action, CreatePod)]


def planned(seen: Observation) -> tuple[Plan, int]:
    """Return the plan and the most memory that making it took."""
    tracemalloc.start()
    try:
        decided = plan(seen)
        return decided, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_replicas_beyond_the_maximum_are_the_maximum() -> None:
    """An object with 2,147,483,647 replicas asks for as many workers as Slurm can have."""
    decided, memory = planned(observe(nodeset=make_nodeset(replicas=MOST, finalizers=GUARDED)))
    assert decided.desired == MAX_WORKERS
    assert memory < MEMORY


def test_one_reconcile_creates_a_bounded_number_of_pods_and_comes_back() -> None:
    """A large NodeSet grows in portions, from the lowest number, each followed by the next."""
    decided, memory = planned(observe(pod(0), nodeset=make_nodeset(replicas=MOST, finalizers=GUARDED)))
    assert creates(decided) == [f"gpu-{number}" for number in range(1, CREATES_PER_RECONCILE + 1)]
    assert decided.requeue is not None
    assert decided.requeue <= 1
    assert decided.unfinished
    assert memory < MEMORY


def test_what_fits_into_one_portion_is_created_at_once() -> None:
    """A NodeSet of the size of one portion needs no second reconcile."""
    decided = plan(observe(nodeset=make_nodeset(replicas=CREATES_PER_RECONCILE, finalizers=GUARDED)))
    assert len(creates(decided)) == CREATES_PER_RECONCILE
    assert not decided.unfinished


def test_workers_per_node_are_created_in_portions_too() -> None:
    """A NodeSet that follows the nodes wants all of them, and creates some at a time."""
    nodes = {f"n{number}": make_node(f"n{number}") for number in range(CREATES_PER_RECONCILE + 100)}
    nodeset = make_nodeset(scalingMode="DaemonSet", finalizers=GUARDED)
    decided = plan(observe(nodeset=nodeset, nodes=nodes))
    assert decided.desired == len(nodes)
    assert len(creates(decided)) == CREATES_PER_RECONCILE
    assert decided.requeue is not None
    assert decided.requeue <= 1


def test_a_number_has_no_more_digits_than_a_host_name() -> None:
    """A padding of two billion digits does not make a name of two gigabytes."""
    nodeset = make_nodeset(replicas=1, ordinalPadding=MOST)
    names = series(nodeset)
    assert names is not None
    assert len(nodeset.padded(0)) == MAX_DIGITS
    assert len(names.name(0)) == MAX_DIGITS + len(names.prefix)
