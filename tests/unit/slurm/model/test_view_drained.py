"""When a node is drained, and above all when it is not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm import errors
from slurm_operator.slurm.decide.node_list_trust import Evidence
from slurm_operator.slurm.model.jobs import JobBook
from slurm_operator.slurm.model.records import BASE_STATES, Job, Node, NoVal
from slurm_operator.slurm.model.view import EMPTY, AnswerReason, DrainAnswer
from tests.support.slurm.views import NOW, drained_node, job, jobs, node, number, view


def verdict(*state: str, alloc: int | None = 0, **fields: Any) -> DrainAnswer:
    return view(node("n1", *state, alloc=alloc), **fields).drained("n1", NOW)


@pytest.mark.parametrize(
    "state",
    [
        ("IDLE", "DRAIN", "DYNAMIC_NORM"),
        ("DOWN", "DRAIN", "NOT_RESPONDING", "DYNAMIC_NORM"),
        ("IDLE", "DRAIN", "CLOUD", "POWERED_DOWN"),
        ("IDLE", "DRAIN", "MAINTENANCE", "RESERVED"),
    ],
)
def test_drained(state: tuple[str, ...]) -> None:
    """A node that drains, is in a free state and has no job is drained."""
    found = verdict(*state)
    assert (found.drained, found.reason) == (True, AnswerReason.DRAINED)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ((), AnswerReason.NOT_DRAINING),
        (("IDLE",), AnswerReason.NOT_DRAINING),
        (("DOWN",), AnswerReason.NOT_DRAINING),
        (("IDLE", "DRAIN", "UNDRAIN"), AnswerReason.UNDRAIN_PENDING),
        (("MIXED", "DRAIN"), AnswerReason.JOBS_RUNNING),
        (("ALLOCATED", "DRAIN"), AnswerReason.JOBS_RUNNING),
        (("IDLE", "MIXED", "DRAIN"), AnswerReason.JOBS_RUNNING),
        (("IDLE", "DRAIN", "COMPLETING"), AnswerReason.JOBS_COMPLETING),
        (("DOWN", "DRAIN", "COMPLETING"), AnswerReason.JOBS_COMPLETING),
        (("UNKNOWN", "DRAIN"), AnswerReason.STATE_UNKNOWN),
        (("ERROR", "DRAIN"), AnswerReason.STATE_UNKNOWN),
        (("FUTURE", "DRAIN"), AnswerReason.STATE_UNKNOWN),
        (("EXTERNAL", "DRAIN"), AnswerReason.STATE_UNKNOWN),
        (("DRAIN",), AnswerReason.STATE_UNKNOWN),
        (("IDLE", "DOWN", "DRAIN"), AnswerReason.STATE_UNKNOWN),
        (("IDLE", "DRAIN", "QUANTUM"), AnswerReason.STATE_UNKNOWN),
        (("QUANTUM",), AnswerReason.STATE_UNKNOWN),
    ],
)
def test_a_state_that_is_not_drained(state: tuple[str, ...], reason: AnswerReason) -> None:
    """Every other state has a reason of its own, and a word that nobody knows is never a good sign."""
    listed = view(Node(name="n1", state=state, alloc_cpus=0))
    found = listed.drained("n1", NOW)
    assert (found.drained, found.reason) == (False, reason)
    assert "n1" in found.message


def test_allocated_cpus_speak_against_a_drain() -> None:
    """A node with allocated CPUs, or without a word about them, is not drained, whatever its state says."""
    assert verdict("IDLE", "DRAIN", alloc=1).reason is AnswerReason.JOBS_RUNNING
    assert verdict("IDLE", "DRAIN", alloc=None).reason is AnswerReason.STATE_UNKNOWN


@pytest.mark.parametrize(
    "state",
    [
        ("RUNNING",),
        ("SUSPENDED",),
        ("CONFIGURING",),
        ("RUNNING", "CONFIGURING"),
        ("COMPLETED", "COMPLETING"),
        ("CANCELLED", "COMPLETING"),
        ("PENDING", "COMPLETING"),
        ("RESIZING",),
        ("COMPLETED", "STAGE_OUT"),
        ("QUANTUM",),
        (),
    ],
)
def test_a_job_that_has_not_left_its_node(state: tuple[str, ...]) -> None:
    """An unfinished job that lists a node keeps it from being drained, though its state says idle."""
    listed = jobs(Job(job_id=7, nodes="n[1-2]", job_state=state))
    held = view(drained_node("n1"), drained_node("n3"), jobs=listed)
    found = held.drained("n1", NOW)
    assert (found.drained, found.reason) == (False, AnswerReason.JOBS_RUNNING)
    assert "job 7" in found.message
    assert held.drained("n3", NOW).drained


@pytest.mark.parametrize(
    "state", [("COMPLETED",), ("CANCELLED",), ("NODE_FAIL",), ("PENDING",), ("PENDING", "REQUEUED")]
)
def test_a_job_that_has_left_its_node(state: tuple[str, ...]) -> None:
    """Finished and waiting jobs hold nothing, also when they still list nodes."""
    held = view(drained_node("n1"), jobs=jobs(job(7, "n1", *state)))
    assert held.drained("n1", NOW).drained


def test_one_job_with_unreadable_nodes() -> None:
    """A job whose nodes cannot be read may be anywhere: nobody is drained, and the other jobs still count."""
    listed = jobs(job(7, "n[1-"), job(8, "n2"))
    held = view(drained_node("n1"), drained_node("n2"), jobs=listed)
    first, second = held.drained("n1", NOW), held.drained("n2", NOW)
    assert (first.drained, first.reason) == (False, AnswerReason.JOBS_UNKNOWN)
    assert "job 7" in first.message
    assert (second.drained, second.reason) == (False, AnswerReason.JOBS_RUNNING)
    assert held.latest_end("n2") == 13_600
    assert not view(drained_node("n1"), jobs=jobs(job(7, ""))).drained("n1", NOW).drained


def test_a_waiting_job_has_no_nodes() -> None:
    """A job that waits, with a flag that nobody knows, holds nothing while it lists no node."""
    assert view(drained_node("n1"), jobs=jobs(job(7, "", "PENDING", "QUANTUM"))).drained("n1", NOW).drained
    held = view(drained_node("n1"), jobs=jobs(job(7, "n1", "PENDING", "QUANTUM")))
    assert held.drained("n1", NOW).reason is AnswerReason.JOBS_RUNNING


def test_jobs_that_are_not_known() -> None:
    """Without a list of jobs, with an old one, or with one from before the drain, a node is not drained."""
    never = view(drained_node("n1"), jobs_listed_at=None, jobs_failure=errors.BadReply("half a list"))
    assert never.drained("n1", NOW).reason is AnswerReason.JOBS_UNKNOWN
    assert "half a list" in never.drained("n1", NOW).message
    old = view(drained_node("n1"), jobs_listed_at=NOW - 121, jobs_stale_after=120.0)
    assert old.drained("n1", NOW).reason is AnswerReason.JOBS_UNKNOWN
    before = view(drained_node("n1"), jobs_listed_at=NOW - 20)
    assert before.drained("n1", NOW, newer_than=NOW - 10).reason is AnswerReason.DRAIN_PENDING
    assert before.drained("n1", NOW, newer_than=NOW - 30).drained


def test_a_view_that_cannot_tell() -> None:
    """Old, empty and suspicious views, lists from before the drain, and absent nodes are not drained."""
    seen = view(drained_node("n1"), others=Evidence(5, 900.0))
    assert EMPTY.drained("n1", NOW).reason is AnswerReason.NO_VIEW
    assert seen.drained("n1", NOW + 60).reason is AnswerReason.VIEW_STALE
    assert seen.drained("n1", NOW, newer_than=NOW).reason is AnswerReason.DRAIN_PENDING
    assert seen.drained("other", NOW).reason is AnswerReason.NODE_ABSENT
    assert view(drained_node("n1"), suspicion="x").drained("n1", NOW).reason is AnswerReason.LIST_SUSPICIOUS
    assert not any(
        answer.drained
        for answer in (EMPTY.drained("n1", NOW), seen.drained("n1", NOW + 60), seen.drained("other", NOW))
    )


words = st.sampled_from([*sorted(BASE_STATES), "DRAIN", "UNDRAIN", "COMPLETING", "DYNAMIC_NORM", "QUANTUM"])


@given(
    state=st.lists(words, max_size=5),
    alloc=st.one_of(st.none(), st.integers(0, 2)),
    job_state=st.lists(
        st.sampled_from(["RUNNING", "SUSPENDED", "COMPLETED", "COMPLETING", "PENDING", "ODD"])
    ),
    job_nodes=st.sampled_from(["n1", "n[1-3]", "n2", "", "n["]),
    age=st.floats(0, 60),
)
def test_drained_needs_everything(
    state: list[str], alloc: int | None, job_state: list[str], job_nodes: str, age: float
) -> None:
    """Whatever Slurm says, drained means: draining, one free base state, no CPU, no job, no odd word."""
    seen = view(
        Node(name="n1", state=tuple(state), alloc_cpus=alloc),
        listed_at=NOW - age,
        jobs=jobs(Job(job_id=1, nodes=job_nodes, job_state=tuple(job_state))),
    )
    if seen.drained("n1", NOW).drained:
        known = set(state)
        assert known & BASE_STATES in ({"IDLE"}, {"DOWN"})
        assert "DRAIN" in known
        assert not known & {"UNDRAIN", "COMPLETING", "QUANTUM"}
        assert alloc == 0
        assert age <= 30.0
        over = bool(job_state) and set(job_state) <= {"COMPLETED", "PENDING"}
        waits = "PENDING" in job_state and "COMPLETING" not in job_state and not job_nodes
        assert over or waits or job_nodes == "n2"


def test_latest_end() -> None:
    """The last job counts: start and limit, later if Slurm moved its end; in centuries without a limit."""
    listed = jobs(
        job(1, "n1", time_limit=number(10), end_time=number(0)),
        job(2, "n1", time_limit=number(30), end_time=number(0)),
        job(3, "n2", end_time=number(20_000)),
        job(4, "n3", time_limit=NoVal(infinite=True)),
        job(5, "n4", time_limit=NoVal()),
        job(6, "n5", start_time=NoVal()),
        job(7, "n6", "COMPLETED"),
        job(8, "n7", time_limit=number(2**32 - 3)),
        job(9, "n8", end_time=NoVal(infinite=True)),
    )
    seen = view(jobs=listed)
    ends = [seen.latest_end(f"n{index}") for index in range(1, 9)]
    never = 10_000 + 9_223_372_036
    assert ends == [11_800, 20_000, never, math.inf, math.inf, None, never, never]
    assert listed.by_node["n1"].jobs == (1, 2)


def test_a_vanished_job_holds_on() -> None:
    """A running job that a list leaves out holds its nodes until several lists over some time agree."""
    book = JobBook()
    lists: list[tuple[float, list[Job]]] = [
        (0.0, [job(7, "n1"), job(8, "n2")]),
        (1.0, []),
        (2.0, [job(7, "n1"), job(8, "n2", "COMPLETED")]),
        (10.0, []),
        (12.0, []),
        (14.0, []),
        (20.0, []),
    ]
    seen = [({*book.listed(listed, sent).by_node}, book.doubtful) for sent, listed in lists]
    assert seen == [
        ({"n1", "n2"}, False),
        ({"n1", "n2"}, True),
        ({"n1"}, False),
        ({"n1"}, True),
        ({"n1"}, True),
        ({"n1"}, True),
        (set(), False),
    ]


def test_a_job_that_has_ended_holds_its_nodes_no_more() -> None:
    """The other jobs on them stay, with their ends, and a number that is not held changes nothing."""
    book = JobBook()
    shown = book.listed([job(7, "n[1-3]"), job(8, "n2", time_limit=number(30), end_time=number(0))], 0.0)
    left = book.ended([7, 9], shown)
    assert {name: on.jobs for name, on in left.by_node.items()} == {"n2": (8,)}
    assert left.by_node["n2"].end == 11_800
    assert shown.by_node.keys() == {"n1", "n2", "n3"}
    assert left.counts == shown.counts
    assert book.ended([8], left).by_node == {}
    assert book.listed([], 1.0).by_node == {}
    assert not book.doubtful


def test_a_drain_that_is_covered_needs_no_newer_list_of_jobs() -> None:
    """But the list of nodes must be newer, the list of jobs not too old, and no other list be waited for."""
    seen = view(drained_node("n1"), jobs_listed_at=NOW - 20, covered=frozenset({"n1"}))
    assert seen.drained("n1", NOW, newer_than=NOW - 10).drained
    assert not seen.drained("n1", NOW, newer_than=NOW - 0.5).drained
    assert not replace(seen, owed=frozenset({"n1"})).drained("n1", NOW, newer_than=NOW - 10).drained
    assert not replace(seen, jobs_listed_at=NOW - 121).drained("n1", NOW, newer_than=NOW - 130).drained
    assert not replace(seen, jobs=jobs(job(7, "n1"))).drained("n1", NOW, newer_than=NOW - 10).drained
    assert not replace(seen, covered=frozenset({"n2"})).drained("n1", NOW, newer_than=NOW - 10).drained


def test_a_job_number_that_comes_twice() -> None:
    """Two entries with the same number hold the nodes of both, and neither hides that one cannot be read."""
    assert jobs(job(7, "n1"), job(7, "n2")).by_node.keys() == {"n1", "n2"}
    assert jobs(job(7, "n["), job(7, "n2")).unplaced


def test_jobs_are_counted() -> None:
    """Jobs are counted by state and partition, finished ones too."""
    counts = jobs(job(1, "n1", partition="a"), job(2, "n1", partition="a"), job(3, "", "PENDING")).counts
    assert dict(counts) == {("RUNNING", "a"): 2, ("PENDING", ""): 1}
