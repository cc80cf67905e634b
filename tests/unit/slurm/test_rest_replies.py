from __future__ import annotations

import json
from typing import Any

import pytest

from slurm_operator.slurm.errors import (
    BadReply,
    ControllerDown,
    NotFound,
    Overloaded,
    Refused,
    RestUnreachable,
    SlurmError,
    TokenRefused,
)
from slurm_operator.slurm.model import NoVal
from slurm_operator.slurm.replies import Envelope, Jobs, Nodes, Partitions, Question, Reply, moment, read

QUESTION = Question("list nodes of http://slurm:6820", frozenset({2018}), "s3cret-token")


def reply(content: object, status: int = 200, content_type: str = "application/json") -> Reply:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Reply(status, content_type, body)


def failed(number: int = 0, text: str = "") -> dict[str, Any]:
    return {"errors": [{"description": text or "Failure", "error_number": number, "error": "why"}]}


def refused(answer: Reply, shape: type[Envelope] = Nodes) -> SlurmError:
    with pytest.raises(SlurmError) as caught:
        read(answer, shape, QUESTION)
    assert str(caught.value).startswith(QUESTION.what)
    assert "s3cret-token" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return caught.value


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
        Nodes,
        QUESTION,
    )
    assert [node.name for node in answer.nodes] == ["n1", "n2"]
    assert moment(answer.last_update) == 1_700_000_000
    assert answer.meta.slurm.release == "26.05.5"


@pytest.mark.parametrize(
    ("status", "number", "kind"),
    [
        (200, 2020, Refused),
        (422, 2016, Refused),
        (500, -1, ControllerDown),
        (200, 2018, NotFound),
        (422, 2018, NotFound),
        (500, 2018, NotFound),
        (422, 2053, Refused),
        (511, 1007, TokenRefused),
        (200, 1007, TokenRefused),
        (401, 0, TokenRefused),
        (502, 1800, ControllerDown),
        (200, 1801, ControllerDown),
        (500, 1802, ControllerDown),
        (504, 5004, ControllerDown),
        (502, 12345, ControllerDown),
        (200, 2131, ControllerDown),
        (429, 1804, Overloaded),
        (200, 1805, Overloaded),
    ],
)
def test_errors_decide_what_an_answer_means(status: int, number: int, kind: type[SlurmError]) -> None:
    """`errors[]` is an error whatever the status, and its numbers tell which."""
    assert type(refused(reply(failed(number), status))) is kind


def test_a_failure_without_a_reason_is_no_refusal_of_a_list() -> None:
    """A list that slurmrestd could not make and cannot say why is slurmctld's silence, not a no."""
    unexplained = reply(failed(-1, "Unable to query partitions"), 500)
    assert type(refused(unexplained, Nodes)) is ControllerDown
    assert type(refused(unexplained, Jobs)) is ControllerDown
    assert type(refused(unexplained, Envelope)) is Refused
    both = {"errors": [*failed(-1)["errors"], *failed(2020)["errors"]]}
    assert type(refused(reply(both, 500), Nodes)) is Refused


def test_a_gateway_status_of_slurmrestd_itself_is_about_slurmctld() -> None:
    """A 504 with nothing in it is slurmctld's silence if slurmrestd made it; from others it is not."""
    itself = {"partitions": [], "meta": {"slurm": {"release": "26.05.5"}}, "errors": []}
    assert type(refused(reply(itself, 504), Partitions)) is ControllerDown
    assert type(refused(reply({"errors": []}, 504), Partitions)) is RestUnreachable


def test_errors_beside_a_list_spoil_it() -> None:
    """A list that comes with errors is not believed, however complete it looks."""
    content = {"jobs": [], "last_update": {"set": True, "number": 0}, **failed(1800)}
    assert isinstance(refused(reply(content), Jobs), ControllerDown)
    assert isinstance(refused(reply({"nodes": [{"name": "n1"}], **failed(9000)})), Refused)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, TokenRefused),
        (511, TokenRefused),
        (403, TokenRefused),
        (502, RestUnreachable),
        (503, RestUnreachable),
        (504, RestUnreachable),
        (429, Overloaded),
        (301, BadReply),
        (304, BadReply),
        (307, BadReply),
        (200, BadReply),
        (400, Refused),
        (418, Refused),
        (500, Refused),
    ],
)
def test_an_answer_of_somebody_else_is_told_by_its_status(status: int, kind: type[SlurmError]) -> None:
    """A page of a proxy is never quoted; its status says what it can."""
    error = refused(reply(b"<html>SECRET</html>", status, "text/html"))
    assert type(error) is kind
    assert "SECRET" not in str(error)
    assert str(status) in str(error)


def test_a_refusal_that_cannot_be_read_is_told_by_its_status() -> None:
    """A refusal that claims to be JSON and is not says what its status says."""
    assert type(refused(reply(b"{", 500))) is Refused
    assert type(refused(reply(b'{"errors": 1}', 511))) is TokenRefused
    assert type(refused(reply({"errors": [{}]}, 422))) is Refused


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
    (node,) = read(reply(content), Nodes, QUESTION).nodes
    assert (node.features, node.reason, node.boot_time) == ((), "", NoVal())
    (node,) = read(reply({"nodes": [{"name": "n1", "state": None}]}), Nodes, QUESTION).nodes
    assert node.state == ()


def test_what_slurm_says_is_quoted_short_and_clean() -> None:
    """A quoted sentence has an end, no control characters, and not the token, though the server said it."""
    said = f"line\nbreak \x1b[31m s3cret-token {'x' * 5000}"
    error = refused(reply({"errors": [{"description": said, "error_number": 9000}] * 50}, 500))
    assert "\n" not in str(error)
    assert "\x1b" not in str(error)
    assert "line break" in str(error)


def test_a_content_type_may_have_parameters() -> None:
    """JSON is JSON with a charset, too, and in capitals."""
    assert (
        read(reply({"nodes": []}, content_type="Application/JSON; charset=utf-8"), Nodes, QUESTION).nodes
        == ()
    )


@pytest.mark.parametrize(
    "value", [NoVal(), NoVal(set=True, number=0), NoVal(infinite=True), NoVal(set=True, number=1e300)]
)
def test_a_list_without_a_time_has_none(value: NoVal) -> None:
    """Zero, infinity and nothing are not the time of a list."""
    assert moment(value) is None
