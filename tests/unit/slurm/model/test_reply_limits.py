"""What is kept of Slurm's replies, what is cut, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_operator.slurm.decide.node_list_trust import NodeListTrust, TrustRules
from slurm_operator.slurm.decode.bounded import bounded
from slurm_operator.slurm.decode.pieces import OversizeError
from slurm_operator.slurm.errors import ReplyTooLarge
from slurm_operator.slurm.model import hostlist, reply_limits
from slurm_operator.slurm.model.jobs import NO_JOBS, VANISHED_LISTS, VANISHED_SECONDS, JobBook
from slurm_operator.slurm.model.records import Job, Node, Reservation
from slurm_operator.slurm.model.view import AnswerReason, ClusterView, Unknown
from tests.support.slurm.views import take_list

LONG = "x" * 100_000


@pytest.mark.parametrize(
    "field", ["reason", "reason_set_by_user", "comment", "topology", "reservation", "version"]
)
def test_what_is_only_shown_is_cut(field: str) -> None:
    """A long text keeps its beginning, by which a drain of ours is recognised."""
    made: dict[str, Any] = {"name": "n1", field: "slurm-operator: " + LONG}
    kept, size = bounded(Node(**made))
    text = getattr(kept, field)
    assert text == ("slurm-operator: " + LONG)[: reply_limits.MAX_SHOWN] + "…"
    assert size < 5 * reply_limits.MAX_SHOWN


@pytest.mark.parametrize(
    "entry",
    [
        Node(name="n" * 256),
        Node(name="n1", state=("IDLE",) * 65),
        Node(name="n1", state=("D" * 65,)),
        Job(job_id=1, job_state=("RUNNING",) * 65),
        Job(job_id=1, nodes="n" * (reply_limits.MAX_HOSTLIST + 1)),
        Reservation(name="r" * 256),
        Reservation(name="r", flags=("X" * 100,)),
    ],
)
def test_what_decides_is_refused(entry: object) -> None:
    """A name, a state or a hostlist is never cut: a shorter one would be another."""
    with pytest.raises(OversizeError, match="of an entry has more than"):
        bounded(entry)


def job(number: int, nodes: str) -> Job:
    return Job(job_id=number, job_state=("RUNNING",), nodes=nodes)


def test_the_names_of_all_jobs_together_are_limited() -> None:
    """Jobs up to the budget hold their nodes; those beyond may be on any node."""
    listed = JobBook().listed([job(number, "n[1-65536]") for number in range(1, 7)], 0.0)
    assert len(listed.by_node) == reply_limits.MAX_NODES
    assert listed.by_node["n1"].jobs == (1, 2, 3, 4)
    assert [text for text in listed.unplaced if "262144 nodes in all" in text] == [*listed.unplaced]
    assert len(listed.unplaced) == 2


def test_jobs_on_more_nodes_than_there_can_be_are_unplaced() -> None:
    """A cluster has at most 65,536 nodes, so its jobs name no more of them."""
    listed = JobBook().listed([job(1, "a[1-65536]"), job(2, "b1"), job(3, "a1")], 0.0)
    assert listed.by_node["a1"].jobs == (1,)
    assert len(listed.unplaced) == 2


def test_many_jobs_that_cannot_be_placed_are_counted() -> None:
    """Ten are described, of the others it is said how many they are."""
    listed = JobBook().listed([job(number, "n[") for number in range(100)], 0.0)
    assert len(listed.unplaced) == 11
    assert " 90 more jobs " in listed.unplaced[-1]


def test_jobs_that_vanish_in_great_numbers_are_remembered_as_one() -> None:
    """A server that lists other jobs each time cannot fill the memory, and no node is free meanwhile."""
    book, width = JobBook(), reply_limits.MAX_JOBS // 2 + 1
    listed = NO_JOBS
    for turn in range(4):
        first = turn * width
        listed = book.listed([job(number, f"n{number % 5}") for number in range(first, first + width)], turn)
        assert len(book._held) <= width + reply_limits.MAX_JOBS
    assert any(text.split()[0].isdigit() for text in listed.unplaced), "counted, not named"
    for turn in range(VANISHED_LISTS + 1):
        listed = book.listed([], 100.0 + turn * VANISHED_SECONDS)
    assert (listed.unplaced, dict(listed.by_node)) == ((), {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n" * (reply_limits.MAX_HOSTLIST + 1), "more than 1048576 characters"),
        ("n" * 256, "a name of more than 255 characters"),
        ("n" * 250 + "[1-100000]", "stands for more than 65536 names"),
        ("n" * 250 + "[100000-100001]", "a name of more than 255 characters"),
        ("[1]" * 300, "a name of more than 255 characters"),
        ("n[" + "1," * 70_000 + "1]", "stands for more than 65536 names"),
    ],
)
def test_a_hostlist_is_limited_in_every_direction(text: str, problem: str) -> None:
    """Its text, its names and their number have limits; the refusal names them and is short."""
    with pytest.raises(ValueError, match=problem) as caught:
        hostlist.expand(text)
    assert len(str(caught.value)) < 300


def test_a_reply_that_is_too_large_is_a_reason_of_its_own() -> None:
    """The view says that nothing is known, why, and which limit it was."""
    failure = ReplyTooLarge("list nodes", "it lists more than 65536 nodes")
    answer = ClusterView(failure=failure).node("n1", 0.0)
    assert isinstance(answer, Unknown)
    assert answer.reason is AnswerReason.REPLY_TOO_LARGE
    assert "more than 65536 nodes" in answer.message
    view = ClusterView(
        nodes={"n1": Node(name="n1", state=("IDLE", "DRAIN"), alloc_cpus=0)},
        listed_at=0.0,
        jobs_failure=failure,
    )
    verdict = view.drained("n1", 0.0)
    assert (verdict.drained, verdict.reason) == (False, AnswerReason.REPLY_TOO_LARGE)


def test_names_that_are_gone_are_not_remembered_without_end() -> None:
    """A server that lists other names each time fills no memory: of those gone the last are remembered."""
    node_trust, width = (
        NodeListTrust(TrustRules(wide_lists=1, wide_seconds=0.0, grace=0.0)),
        reply_limits.MAX_NODES // 2,
    )
    for turn in range(6):
        node_trust.uptime(1000.0, float(turn))
        take_list(node_trust, [Node(name=f"t{turn}n{number}") for number in range(width)], float(turn))
        assert len(node_trust.snapshot.absent) <= reply_limits.MAX_NODES + width
    assert len(node_trust.snapshot.nodes) == width
    assert "t4n1" in node_trust.snapshot.absent
    assert "t0n1" not in node_trust.snapshot.absent
