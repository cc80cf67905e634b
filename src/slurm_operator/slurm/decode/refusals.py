"""What an answer means that is no success: its status, and the `errors[]` of slurmrestd.

`errors[]` decides, whatever the status is, since slurmrestd also refuses with a 200. A question that
slurmrestd fails to answer without knowing why was not refused: it makes most lists of several answers of
slurmctld, and one that stops in between leaves it without a reason, so that is `ControllerDown`.

What a server sends that is not slurmrestd's JSON, such as the page of some proxy, is never quoted, and the
token is struck out of what is: a server may repeat what it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

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

if TYPE_CHECKING:
    from collections.abc import Container

    from slurm_operator.slurm.model.records import Fault

OK: Final = 200
NOT_MODIFIED: Final = 304
NOT_FOUND: Final = 404
INTERNAL_ERROR: Final = 500
_REDIRECTS = range(300, 400)
_TOKEN_STATUSES = frozenset({401, 511})
# What stands in front of slurmrestd answers this to a token that it does not accept.
_FORBIDDEN = 403
_GATEWAY_STATUSES = frozenset({502, 503, 504})
_TOO_MANY_REQUESTS = 429

# Numbers of Slurm's own list of errors. 1800 and the like say that slurmrestd cannot reach slurmctld, 5004
# that slurmctld took the connection and said nothing, 2027 and 2131 that only a standby slurmctld was found.
_CONTROLLER_DOWN = frozenset({1001, 1002, 1003, 1004, 1800, 1801, 1802, 1803, 2027, 2131, 5003, 5004, 5005})
# "Unspecified error": to a change it may be Slurm's no, but a list is never refused in this way.
_UNEXPLAINED = frozenset({-1})
_OVERLOADED = frozenset({1804, 1805})
_TOKEN_REFUSED = frozenset({1007})
NO_SUCH_NODE: Final = 2018
NO_SUCH_RESERVATION: Final = 2053

_PLAIN: Final[tuple[tuple[Container[int], type[SlurmError], str], ...]] = (
    (_TOKEN_STATUSES | {_FORBIDDEN}, TokenRefused, "slurmrestd rejected the token"),
    (_GATEWAY_STATUSES, RestUnreachable, "something in front of slurmrestd cannot reach it"),
    ({_TOO_MANY_REQUESTS}, Overloaded, "too many requests"),
    ({NOT_MODIFIED}, BadReply, "unchanged, to a request without a condition"),
    (_REDIRECTS, BadReply, "redirected; give the URL of slurmrestd itself"),
)

_LONGEST_QUOTE = 300
_MOST_FAULTS = 3


class Reply(NamedTuple):
    """An HTTP answer, read to its end."""

    status: int
    content_type: str
    body: bytes | bytearray

    @property
    def json(self) -> bool:
        """Return whether it claims to be JSON."""
        return self.content_type.partition(";")[0].strip().lower() == "application/json"


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked: the words for it, and how to read the answer."""

    what: str
    """What was wanted, and of which server."""
    absent: frozenset[int] = frozenset()
    """Slurm's error numbers that mean, for this question, that the thing does not exist."""
    secret: str = field(default="", repr=False)
    """What must not be repeated."""


def unexplained(reply: Reply, question: Question, *, itself: bool) -> SlurmError:
    """Return what an answer without `errors[]` means, from slurmrestd itself or not."""
    kind, said = _plain(reply, itself=itself)
    message = f"{question.what}: {quote(said, question)} (HTTP {reply.status})"
    return kind(message, status=reply.status) if kind is Refused else kind(message)


def _plain(reply: Reply, *, itself: bool) -> tuple[type[SlurmError], str]:
    """Return what an answer without `errors[]` means, from slurmrestd itself or not, and the words for it."""
    if itself and reply.status in _GATEWAY_STATUSES:
        # Asked for partitions while slurmctld is silent, every release seen says 504 and not a word more.
        return ControllerDown, "slurmctld does not answer slurmrestd"
    for statuses, kind, said in _PLAIN:
        if reply.status in statuses:
            return kind, said
    if reply.status == OK:
        sort = reply.content_type or "an answer without a content type"
        return BadReply, f"{sort} instead of JSON; is this slurmrestd?"
    return Refused, "rejected without an explanation"


def explained(reply: Reply, faults: tuple[Fault, ...], question: Question, *, listing: bool) -> SlurmError:
    """Return what `errors[]` means in the answer to a change, or in a list that was asked for."""
    numbers = {fault.error_number for fault in faults}
    said = "; ".join(_sentence(fault) for fault in faults[:_MOST_FAULTS])
    if len(faults) > _MOST_FAULTS:
        said += f"; and {len(faults) - _MOST_FAULTS} more"
    message = f"{question.what}: {quote(said, question)} (HTTP {reply.status})"
    if reply.status in _TOKEN_STATUSES or numbers & _TOKEN_REFUSED:
        return TokenRefused(message)
    if numbers & _OVERLOADED or reply.status == _TOO_MANY_REQUESTS:
        return Overloaded(message)
    if numbers & _CONTROLLER_DOWN or reply.status in _GATEWAY_STATUSES:
        return ControllerDown(message)
    if listing and numbers <= _UNEXPLAINED:
        return ControllerDown(message)
    if numbers <= question.absent:
        return NotInSlurm(message, faults, status=reply.status)
    return Refused(message, faults, status=reply.status)


def _sentence(fault: Fault) -> str:
    number = f"error {fault.error_number}" if fault.error_number else ""
    parts = [part for part in (fault.description, fault.error if fault.error_number else "", number) if part]
    return ", ".join(parts) or "an error without a description"


def quote(text: str, question: Question) -> str:
    """Return a short, printable, harmless form of what came from outside."""
    if question.secret:
        text = text.replace(question.secret, "…")
    text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
