from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.memo import Memo, Rested
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.pod_status import state_conditions
from slurm_operator.objects import slurmd_marks
from tests.unit.nodeset.clustermodel import make_node, make_nodeset
from tests.unit.nodeset.making import observe, pod
from tests.unit.slurm.views import job, jobs, node, view

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation

NODESET = make_nodeset(replicas=1, finalizers=("nodeset.slinky.slurm.net/drain",))
RECORD = node("gpu-0", comment=slurmd_marks.comment(NODESET, pod(0).show()))


def at_rest(memo: Memo, **fields: Any) -> Observation:
    settled: dict[str, Any] = {"view": view(RECORD), "nodes": {"node-0": make_node("node-0")}, "memo": memo}
    conditions = {one.type: one for one in state_conditions(RECORD)}
    return observe(pod(0, conditions=conditions), nodeset=NODESET, **(settled | fields))


def test_what_rests_is_not_looked_at_again() -> None:
    """The same grounds say that there is nothing to do; other grounds, and another era, say nothing."""
    rested, first, second = Rested(), (object(), object()), (object(), object())
    rested.begin(1)
    assert not rested.still("uid", first)
    rested.rests("uid", first)
    rested.begin(1)
    assert rested.still("uid", first)
    rested.begin(1)
    assert rested.still("uid", first)
    assert not rested.still("uid", second)
    rested.begin(2)
    assert not rested.still("uid", first)


def test_workers_that_are_gone_are_forgotten() -> None:
    """What was not asked about in a pass is not kept for the next one."""
    rested, grounds = Rested(), (object(),)
    rested.begin(1)
    rested.rests("uid", grounds)
    rested.begin(1)
    rested.begin(1)
    assert not rested.still("uid", grounds)


CHANGES: dict[str, dict[str, Any]] = {
    "comment": {"view": view(msgspec.structs.replace(RECORD, comment=""))},
    "state": {"view": view(msgspec.structs.replace(RECORD, state=("DOWN",)))},
    "jobs": {"view": view(RECORD, jobs=jobs(job(7, "gpu-0")))},
    "machine": {
        "nodes": {"node-0": make_node("node-0", annotations={wellknown.ANNOTATION_TOPOLOGY: "block:b1"})}
    },
    "cordon": {"nodes": {"node-0": make_node("node-0", cordoned=True)}},
    "template": {"revision": replace(observe().revision, hash="r2", same=frozenset({"r2"}))},
    "spec": {"nodeset": make_nodeset(replicas=0, generation=2, finalizers=NODESET.metadata.finalizers)},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_is_seen_through_a_memo(change: dict[str, Any]) -> None:
    """A plan with a memory is the plan without one."""
    memo = Memo()
    assert plan(at_rest(memo)).actions == ()
    assert plan(at_rest(memo)).actions == ()
    changed = at_rest(memo)
    changed = replace(changed, **change)
    assert plan(changed).actions
    assert plan(changed) == plan(replace(changed, memo=Memo()))
