"""Without the budget that protects workers from evictions no worker is made, and none gets work again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import (
    CreatePod,
    Defer,
    DeletePod,
    DrainNodes,
    RemovalCause,
    ResumeNodes,
    UndrainNodes,
)
from slurm_operator.controllers.nodeset.decide.observation import Revision
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.kube.models.kinds import PodDisruptionBudget
from slurm_operator.objects import slurmd_shared
from tests.support.simulation.kubernetes import FIT, LABELS, make_node, make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import drained_node, node, number

if TYPE_CHECKING:
    from slurm_operator.slurm.model.records import Node

GUARDED = (wellknown.FINALIZER_DRAIN,)
MISSING = Defer(Reason.BUDGET_MISSING, "PodDisruptionBudget 'slurm-workers-pdb-slurm' could not be applied")
OURS = "slurm-operator: NodeSet (slurm/gpu) scales in"
DRAINED = node("gpu-0", "IDLE", "DRAIN", reason=OURS)
DOWN = node(
    "gpu-0",
    "DOWN",
    reason="slurm-operator: Pod is terminating",
    slurmd_start_time=number(200),
    reason_changed_at=number(100),
)


@pytest.mark.parametrize("budget", [None, MISSING], ids=["there", "missing"])
def test_workers_are_made_with_a_budget_only(budget: Defer | None) -> None:
    """A worker that Kubernetes may evict must not be there, in either scaling mode."""
    nodeset = make_nodeset(replicas=2, finalizers=GUARDED)
    decided = plan(observe(nodeset=nodeset, budget=budget))
    assert bool([one for one in decided.actions if isinstance(one, CreatePod)]) == (budget is None)
    assert (
        bool(decided.notes) if budget is None else [one.reason for one in decided.notes] == ["BudgetMissing"]
    )
    assert budget is None or decided.requeue is not None
    daemons = make_nodeset(scalingMode="DaemonSet", finalizers=GUARDED)
    nodes = {"node-0": make_node("node-0", labels=LABELS)}
    again = plan(observe(nodeset=daemons, nodes=nodes, fit=FIT, budget=budget))
    assert bool([one for one in again.actions if isinstance(one, CreatePod)]) == (budget is None)


@pytest.mark.parametrize(
    ("slurm", "kind"), [(DRAINED, UndrainNodes), (DOWN, ResumeNodes)], ids=["undrain", "resume"]
)
def test_no_node_gets_work_again_without_a_budget(slurm: Node, kind: type) -> None:
    """A job must not start on a worker that Kubernetes may evict."""
    with_budget = plan(observe(pod(0), slurm=(slurm,)))
    assert [one for one in with_budget.actions if isinstance(one, kind)]
    without = plan(observe(pod(0), slurm=(slurm,), budget=MISSING))
    assert not [one for one in without.actions if isinstance(one, UndrainNodes | ResumeNodes)]


def test_the_condition_names_the_budget() -> None:
    """`Degraded` has the reason and the sentence, also while all workers are there."""
    seen = observe(pod(0), slurm=(node("gpu-0"),), budget=MISSING)
    said = {one.type: one for one in report(seen, plan(seen)).conditions}
    degraded = said[wellknown.CONDITION_DEGRADED]
    assert (degraded.status, degraded.reason, degraded.message) == ("True", "BudgetMissing", MISSING.message)


def test_scale_in_goes_on_without_a_budget() -> None:
    """Drains and deletions need none: they only make fewer workers."""
    nodeset = make_nodeset(replicas=0, finalizers=GUARDED)
    slurm = (drained_node("gpu-0"), node("gpu-1", "MIXED", alloc=1))
    decided = plan(observe(pod(0), pod(1), slurm=slurm, nodeset=nodeset, budget=MISSING))
    assert decided.going == {"uid-0": RemovalCause.SCALE_IN, "uid-1": RemovalCause.SCALE_IN}
    assert [one.name for one in decided.actions if isinstance(one, DeletePod)] == ["gpu-0"]
    assert [one.names for one in decided.actions if isinstance(one, DrainNodes)] == [("gpu-1",)]


@pytest.mark.parametrize("skip", [True, False], ids=["skip-drain", "protection off"])
def test_where_workers_are_not_protected_the_budget_is_not_needed(skip: bool) -> None:  # noqa: FBT001 - a column
    """A person has given up the protection of all workers: nothing waits for the budget."""
    nodeset = make_nodeset(
        replicas=1,
        workloadDisruptionProtection=skip,
        annotations={wellknown.ANNOTATION_SKIP_DRAIN: "true"} if skip else {},
        finalizers=() if skip else GUARDED,
    )
    decided = plan(observe(nodeset=nodeset, budget=MISSING))
    assert [one.name for one in decided.actions if isinstance(one, CreatePod)] == ["gpu-0"]


def test_an_old_worker_is_not_replaced_without_a_budget() -> None:
    """An update would take a worker out of service that no other may replace."""
    seen = observe(pod(0), slurm=(node("gpu-0"),), revision=Revision("r2", frozenset({"r2"})), budget=MISSING)
    assert plan(seen).going == {}


def test_which_budget_protects() -> None:
    """One that selects the protected workers of the cluster and allows no eviction, and stays."""
    nodeset = make_nodeset(replicas=1)
    wanted = slurmd_shared.disruption_budget(nodeset, [])
    budget = msgspec.convert(wanted, PodDisruptionBudget)
    assert slurmd_shared.protects(nodeset, budget)
    spec = budget.spec
    less = msgspec.structs.replace(spec, min_available=1)
    assert not slurmd_shared.protects(nodeset, msgspec.structs.replace(budget, spec=less))
    other = make_nodeset(replicas=1, controllerRef={"name": "other"})
    assert not slurmd_shared.protects(other, budget)
    unselective = msgspec.structs.replace(spec, selector=None)
    assert not slurmd_shared.protects(nodeset, msgspec.structs.replace(budget, spec=unselective))
