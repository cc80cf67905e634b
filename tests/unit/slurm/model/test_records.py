from __future__ import annotations

import math
from datetime import UTC, datetime

import msgspec
import pytest

from slurm_operator.slurm.model.records import Diag, Job, JobState, Node, NodeUpdate, NoVal, ReservationSpec


@pytest.mark.parametrize(
    "words",
    [
        ["PENDING"],
        ["PENDING", "REQUEUED"],
        ["PENDING", "REQUEUE_HOLD"],
        ["PENDING", "SPECIAL_EXIT"],
        ["COMPLETED"],
        ["CANCELLED"],
        ["FAILED", "LAUNCH_FAILED"],
        ["TIMEOUT"],
        ["NODE_FAIL"],
        ["PREEMPTED"],
        ["BOOT_FAIL"],
        ["DEADLINE"],
        ["OUT_OF_MEMORY"],
        ["CANCELLED", "REVOKED"],
    ],
)
def test_a_job_that_ended_or_has_not_begun_holds_nothing(words: list[str]) -> None:
    """A job in a final state, or pending, is finished with its nodes."""
    assert Job(job_id=1, job_state=tuple(words), nodes="n1").finished


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["RUNNING"],
        ["SUSPENDED"],
        ["COMPLETED", "COMPLETING"],
        ["COMPLETING", "CANCELLED"],
        ["PENDING", "COMPLETING", "REQUEUED"],
        ["RUNNING", "CONFIGURING"],
        ["PENDING", "CONFIGURING"],
        ["RUNNING", "SIGNALING"],
        ["COMPLETED", "STAGE_OUT"],
        ["RUNNING", "RESIZING"],
        ["RUNNING", "STOPPED"],
        ["RUNNING", "COMPLETED"],
        ["QUANTUM"],
        ["COMPLETED", "QUANTUM"],
        ["REQUEUED"],
        [""],
    ],
)
def test_a_job_that_may_still_run_is_not_finished(words: list[str]) -> None:
    """Running, suspended, completing, without a state or in an unknown one: the job holds its nodes."""
    assert not Job(job_id=1, job_state=tuple(words), nodes="n1").finished


@pytest.mark.parametrize("word", ["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"])
def test_a_job_has_ended_if_its_state_says_nothing_else(word: str) -> None:
    """A job that waits anew has not, nor one with a flag, an unknown word, or no state."""
    assert JobState(job_id="1", state=(word,)).ended
    for words in ((word, "COMPLETING"), (word, "QUANTUM"), (word, "REQUEUED"), ("RUNNING", word)):
        assert not JobState(job_id="1", state=words).ended
    for other in ((), ("PENDING",), ("PENDING", "REQUEUED"), ("SUSPENDED",), ("",), (word.lower(),)):
        assert not JobState(job_id="1", state=other).ended


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("7", 7), ("7_0", 7), ("7_[1-3,5]", 7), ("7+1", 7), ("007", 7)),
        *((text, None) for text in ("", "_7", "x7", "7x", "7 8", "-7", "7" * 19)),
    ],
)
def test_the_number_of_a_job_is_read_as_a_whole_or_not_at_all(text: str, number: int | None) -> None:
    """What follows it may only be the number of a task or of a part."""
    assert JobState(job_id=text).number == number


def test_numbers_may_be_unset_or_infinite() -> None:
    """Slurm's numbers become a number, infinity or nothing."""
    assert NoVal().value is None
    assert NoVal(set=True, number=60).value == 60
    assert NoVal(set=True, number=0).value == 0
    assert NoVal(infinite=True).value == math.inf


def test_moments_that_are_none() -> None:
    """Zero, infinity, nothing and numbers beyond the calendar are no moments."""
    assert NoVal(set=True, number=1_700_000_000).time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    for value in (NoVal(), NoVal(set=True), NoVal(infinite=True), NoVal(set=True, number=1e20)):
        assert value.time is None


def test_unknown_words_and_fields_do_not_make_a_node_unreadable() -> None:
    """A node of tomorrow's Slurm is still a node."""
    text = (
        b'{"name":"n1","state":["QUANTUM","IDLE"],"spin":{"up":[1,null]},"alloc_cpus":2,"tres_weighted":0.5}'
    )
    node = msgspec.json.decode(text, type=Node)
    assert (node.name, node.state, node.alloc_cpus) == ("n1", ("QUANTUM", "IDLE"), 2)


@pytest.mark.parametrize("text", [b"{}", b'{"name":""}', b'{"name":null}', b"17", b"null"])
def test_a_node_without_a_name_is_none(text: bytes) -> None:
    """What has no name cannot stand in a list of nodes."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Node)


def test_uptime_is_by_the_clock_of_slurmctld() -> None:
    """How long slurmctld is up at least needs no clock of ours, and is nothing if it does not say."""
    diag = Diag(req_time=NoVal(set=True, number=5000), req_time_start=NoVal(set=True, number=2000))
    assert diag.uptime == 3000
    assert diag.server_started == datetime.fromtimestamp(2000, UTC)
    assert Diag().uptime is None
    assert Diag(req_time=NoVal(set=True, number=5000)).uptime is None
    assert Diag(req_time=NoVal(infinite=True), req_time_start=NoVal(infinite=True)).uptime is None


def test_an_update_says_only_what_changes() -> None:
    """What is None is not sent; what is empty is, for it empties."""
    assert msgspec.to_builtins(NodeUpdate(comment="")) == {"comment": ""}
    assert msgspec.json.encode(NodeUpdate(state=("DRAIN",), reason="slurm-operator: x")) == (
        b'{"state":["DRAIN"],"reason":"slurm-operator: x"}'
    )


def test_a_reservation_is_written_as_slurm_reads_it() -> None:
    """Times are whole seconds with a flag, nodes and users are lists, and what is not given is not sent."""
    spec = ReservationSpec(
        name="r1",
        node_list="n[1-3]",
        users=("root",),
        start_time=datetime(2026, 1, 1, tzinfo=UTC),
        duration_minutes=5,
        flags=("MAINT", "IGNORE_JOBS"),
    )
    assert spec.body() == {
        "name": "r1",
        "node_list": ["n[1-3]"],
        "users": ("root",),
        "start_time": {"set": True, "number": 1767225600},
        "duration": {"set": True, "number": 5},
        "flags": ("MAINT", "IGNORE_JOBS"),
    }
    assert ReservationSpec(name="r1").body() == {"name": "r1"}
