from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import PatchPodStatus, WriteNodes
from slurm_operator.controllers.nodeset.decide.memo import KnownUpkeep, Memo
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.pod_status import state_conditions
from slurm_operator.objects import slurmd_marks
from tests.support.simulation.kubernetes import make_node, make_nodeset, moment
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, job, jobs, node, view

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation

NODESET = make_nodeset(replicas=1, finalizers=("nodeset.slinky.slurm.net/drain",))
RECORD = node("gpu-0", comment=slurmd_marks.comment(NODESET, pod(0).show()))


def at_rest(memo: Memo, **fields: Any) -> Observation:
    settled: dict[str, Any] = {"view": view(RECORD), "nodes": {"node-0": make_node("node-0")}, "memo": memo}
    conditions = {one.type: one for one in state_conditions(RECORD)}
    return observe(pod(0, conditions=conditions), nodeset=NODESET, **(settled | fields))


def test_what_follows_from_the_same_grounds_is_known() -> None:
    """The same grounds say what is to be written; other grounds, and another era, say nothing."""
    memo: KnownUpkeep[str] = KnownUpkeep()
    first, second = (object(), object()), (object(), object())
    memo.begin(1)
    assert memo.known("uid", first) is None
    memo.note("uid", first, "written")
    memo.begin(1)
    assert memo.known("uid", first) == "written"
    memo.begin(1)
    assert memo.known("uid", first) == "written"
    assert memo.known("uid", second) is None
    memo.begin(2)
    assert memo.known("uid", first) is None


def test_workers_that_are_gone_are_forgotten() -> None:
    """What was not asked about in a reconcile is not kept for the next one."""
    memo: KnownUpkeep[str] = KnownUpkeep()
    grounds = (object(),)
    memo.begin(1)
    memo.note("uid", grounds, "written")
    memo.begin(1)
    memo.begin(1)
    assert memo.known("uid", grounds) is None


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
    # What was to be written is known by now, and is the same once more.
    assert plan(changed) == plan(replace(changed, memo=Memo()))
    assert plan(changed) == plan(replace(changed, memo=Memo()))


STARTED = pod(0, created=NOW - 5, ready_since=NOW - 2)
STARTING = pod(1, created=NOW - 5, started=False, ready_since=None, phase="Pending")


def test_conditions_that_were_put_off_are_written_when_the_others_have_started() -> None:
    """A memory that a pod has nothing to be told for now ends with the reason to wait."""
    pair = make_nodeset(replicas=2, finalizers=NODESET.metadata.finalizers)
    waiting = observe(STARTED, STARTING, nodeset=pair, slurm=(node("gpu-0"),), memo=Memo())
    assert plan(waiting).actions == ()
    assert plan(waiting) == plan(replace(waiting, memo=Memo()))
    later = replace(waiting, wall=moment(NOW + 60))
    written = plan(later)
    assert [type(action) for action in written.actions] == [PatchPodStatus, WriteNodes]
    assert written == plan(replace(later, memo=Memo()))


def test_a_pod_that_comes_is_seen_through_a_memo() -> None:
    """Whether others are starting is known of every worker, also of one that rests."""
    memo = Memo()
    rests = at_rest(memo)
    rests = replace(rests, workers=tuple(replace(one, ready_since=moment(NOW - 2)) for one in rests.workers))
    assert plan(rests).actions == ()
    pair = make_nodeset(replicas=2, finalizers=NODESET.metadata.finalizers)
    coming = replace(rests, nodeset=pair, workers=(*rests.workers, *observe(STARTING).workers))
    assert plan(coming) == plan(replace(coming, memo=Memo()))
