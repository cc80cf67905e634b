"""What an answer of slurmrestd, or of a server in front of it, means that is no success."""

from __future__ import annotations

import pytest

from slurm_operator.slurm.decode.replies import Envelope, JobsReply, NodesReply, Partitions
from slurm_operator.slurm.errors import (
    BadReply,
    ControllerDown,
    NotInSlurm,
    Overloaded,
    Refused,
    RestUnreachable,
    SlurmError,
    TokenRefused,
)
from tests.support.slurm.reply_cases import failed, refused, reply


@pytest.mark.parametrize(
    ("status", "number", "kind"),
    [
        (200, 2020, Refused),
        (422, 2016, Refused),
        (500, -1, ControllerDown),
        (200, 2018, NotInSlurm),
        (422, 2018, NotInSlurm),
        (500, 2018, NotInSlurm),
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
    assert type(refused(unexplained, NodesReply)) is ControllerDown
    assert type(refused(unexplained, JobsReply)) is ControllerDown
    assert type(refused(unexplained, Envelope)) is Refused
    both = {"errors": [*failed(-1)["errors"], *failed(2020)["errors"]]}
    assert type(refused(reply(both, 500), NodesReply)) is Refused


def test_a_gateway_status_of_slurmrestd_itself_is_about_slurmctld() -> None:
    """A 504 with nothing in it is slurmctld's silence if slurmrestd made it; from others it is not."""
    itself = {"partitions": [], "meta": {"slurm": {"release": "26.05.5"}}, "errors": []}
    assert type(refused(reply(itself, 504), Partitions)) is ControllerDown
    assert type(refused(reply({"errors": []}, 504), Partitions)) is RestUnreachable


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
def test_an_answer_of_another_server_is_told_by_its_status(status: int, kind: type[SlurmError]) -> None:
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


def test_what_slurm_says_is_quoted_short_and_clean() -> None:
    """A quoted sentence has an end, no control characters, and not the token, though the server said it."""
    said = f"line\nbreak \x1b[31m s3cret-token {'x' * 5000}"
    error = refused(reply({"errors": [{"description": said, "error_number": 9000}] * 50}, 500))
    assert "\n" not in str(error)
    assert "\x1b" not in str(error)
    assert "line break" in str(error)
