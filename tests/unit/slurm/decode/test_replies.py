"""Answers of slurmrestd that are read, and those that cannot be."""

from __future__ import annotations

import pytest

from slurm_operator.slurm.decode.replies import JobsReply, NodesReply, moment, read
from slurm_operator.slurm.errors import BadReply, ControllerDown, Refused
from slurm_operator.slurm.model.records import NoVal
from tests.support.slurm.reply_cases import QUESTION, failed, refused, reply


def test_a_list_is_read_whole() -> None:
    """A good answer gives every entry, its time, and the release of the server."""
    answer = read(
        reply(
            {
                "nodes": [{"name": "n1", "state": ["IDLE"], "new": 1}, {"name": "n2"}],
                "last_update": {"set": True, "infinite": False, "number": 1700000000},
                "meta": {"slurm": {"release": "26.05.5", "cluster": "lab"}, "plugin": {}},
                "errors": [],
                "warnings": [{"description": "careful", "source": "x"}],
            }
        ),
        NodesReply,
        QUESTION,
    )
    assert [node.name for node in answer.nodes] == ["n1", "n2"]
    assert moment(answer.last_update) == 1_700_000_000
    assert answer.meta.slurm.release == "26.05.5"


def test_errors_beside_a_list_spoil_it() -> None:
    """A list that comes with errors is not believed, however complete it looks."""
    content = {"jobs": [], "last_update": {"set": True, "number": 0}, **failed(1800)}
    assert isinstance(refused(reply(content), JobsReply), ControllerDown)
    assert isinstance(refused(reply({"nodes": [{"name": "n1"}], **failed(9000)})), Refused)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"nodes": [{"name": "n1"}, {"na',
        b"\xff\xfe",
        b"null",
        b"[]",
        {},
        {"nodes": None},
        {"nodes": {}},
        {"nodes": [{"name": "n1"}, 17]},
        {"nodes": [{"name": "n1"}, None]},
        {"nodes": [{"name": "n1"}, {"state": ["IDLE"]}]},
        {"nodes": [{"name": "n1"}, {"name": ""}]},
        {"nodes": [{"name": "n1", "state": "IDLE"}]},
        {"nodes": [{"name": "n1", "state": [1]}]},
        {"nodes": [{"name": "n1", "state": [None]}]},
        {"nodes": [], "errors": "none"},
        b'{"nodes": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"nodes": [], "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_an_answer_that_cannot_be_read_is_bad_as_a_whole(content: object) -> None:
    """One entry that cannot be read spoils the list: without it, the list would look complete."""
    assert type(refused(reply(content))) is BadReply


def test_null_means_absent_where_that_is_harmless() -> None:
    """A null in place of a field is read as if the field were not there."""
    content = {
        "nodes": [{"name": "n1", "state": ["IDLE"], "features": None, "reason": None, "boot_time": None}],
        "warnings": None,
        "errors": None,
    }
    (node,) = read(reply(content), NodesReply, QUESTION).nodes
    assert (node.features, node.reason, node.boot_time) == ((), "", NoVal())
    (node,) = read(reply({"nodes": [{"name": "n1", "state": None}]}), NodesReply, QUESTION).nodes
    assert node.state == ()


def test_a_content_type_may_have_parameters() -> None:
    """JSON is JSON with a charset, too, and in capitals."""
    assert (
        read(reply({"nodes": []}, content_type="Application/JSON; charset=utf-8"), NodesReply, QUESTION).nodes
        == ()
    )


@pytest.mark.parametrize(
    "value", [NoVal(), NoVal(set=True, number=0), NoVal(infinite=True), NoVal(set=True, number=1e300)]
)
def test_a_list_without_a_time_has_none(value: NoVal) -> None:
    """Zero, infinity and nothing are not the time of a list."""
    assert moment(value) is None
