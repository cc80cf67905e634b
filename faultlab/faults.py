"""The faults as data, with the text form that the command line and the repeat commands use.

A fault is written as words of the form key=value, as in `do=kill-before write='PATCH pods compute-0 #1'`:

    do=kill-before | kill-accepted | kill-after     write=POINT
        kill -9 of the operator at one write: before it is sent on; when the server has accepted it, before
        the answer is sent back; when the operator has had the answer, up to its next write
    do=refuse | do=lose                             write=POINT
        a write is answered with 500 and not sent on; or it is sent on and its answer is lost: without a kill
    do=withhold         kind=RESOURCE [name=NAME]   watch events are held back until the fault ends
    do=stale            kind=RESOURCE [write=POINT] kill -9; lists then show the state before the scenario's
                                                    changes, and watches are held back, until the fault ends
    do=answer           status=409|429|500|504 [times=N]    the server is not asked
    do=delay | do=reset | do=drip | do=freeze       requests wait, break off, are answered slowly, or hang
    do=frozen-slurm                                 reads of Slurm get the answers of the fault's beginning
    server=kubernetes|slurm, method=…, kind=…, name=…   which requests; seconds=S: how long the fault lasts
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from faultlab.errors import ScenarioError
from faultlab.writes import KUBERNETES, SLURM

if TYPE_CHECKING:
    from faultlab.writes import Write

KILLS: Final = ("kill-before", "kill-accepted", "kill-after")
REFUSE, LOSE = "refuse", "lose"
WITHHOLD, STALE, ANSWER, DELAY, RESET, DRIP, FREEZE, FROZEN_SLURM = (
    "withhold",
    "stale",
    "answer",
    "delay",
    "reset",
    "drip",
    "freeze",
    "frozen-slurm",
)
_AT_WRITES: Final = (*KILLS, REFUSE, LOSE)
_KINDS: Final = (*_AT_WRITES, WITHHOLD, STALE, ANSWER, DELAY, RESET, DRIP, FREEZE, FROZEN_SLURM)
_OLD_VIEWS: Final = (WITHHOLD, STALE, FROZEN_SLURM)
_STATUSES: Final = (409, 429, 500, 504)
# The words of the text form whose names are no names of fields.
_WORDS: Final = {"do": "do", "write": "point"}


@dataclass(frozen=True)
class Fault:
    """One fault of one run."""

    do: str
    point: str = ""
    """The write at which it happens."""
    server: str = ""
    method: str = ""
    kind: str = ""
    name: str = ""
    status: int = 500
    times: int = 0
    """How many requests are hit; 0 for all while the fault lasts."""
    seconds: float = 5.0

    @property
    def shows_the_past(self) -> bool:
        """Whether the operator acts on an old view for as long as it lasts."""
        return self.do in _OLD_VIEWS

    """How long it lasts, counted from the scenario's own beginning."""

    def __post_init__(self) -> None:
        if self.do not in _KINDS:
            raise ScenarioError(f"do={self.do}: use one of {', '.join(_KINDS)}")
        if (self.do in _AT_WRITES and not self.point) or (self.point and self.do not in (*_AT_WRITES, STALE)):
            raise ScenarioError(f"write=… names the write of do={', '.join(_AT_WRITES)} and {STALE}")
        if self.do in (WITHHOLD, STALE) and not self.kind:
            raise ScenarioError(f"do={self.do} needs kind=…, a resource such as pods")
        if self.do == ANSWER and self.status not in _STATUSES:
            raise ScenarioError(f"status={self.status}: use one of {', '.join(map(str, _STATUSES))}")
        if self.server not in ("", KUBERNETES, SLURM):
            raise ScenarioError(f"server={self.server}: use {KUBERNETES} or {SLURM}")

    @property
    def kills(self) -> bool:
        """Whether it is a crash at one write."""
        return self.do in KILLS

    def hits_write(self, write: Write) -> bool:
        """Return whether this is the write at which it happens."""
        return bool(self.point) and write.counted and write.point == self.point

    def hits(self, server: str, method: str, kind: str, name: str) -> bool:
        """Return whether a request is one of those that the fault is about."""
        wanted = (
            (self.server or KUBERNETES, server),
            (self.method, method),
            (self.kind, kind),
            (self.name, name),
        )
        return all(not mine or mine == theirs for mine, theirs in wanted)

    def to_text(self) -> str:
        """Return the text form."""
        names = {field: word for word, field in _WORDS.items()}
        words = [
            f"{names.get(field.name, field.name)}={shlex.quote(str(value))}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return " ".join(words)


def parse(text: str) -> Fault:
    """Read the text form."""
    known = {field.name for field in fields(Fault)}
    values: dict[str, Any] = {}
    for word in shlex.split(text):
        key, equals, value = word.partition("=")
        name = _WORDS.get(key, key)
        if not equals or name not in known or (key != name and key not in _WORDS):
            raise ScenarioError(f"fault {text!r}: {word!r} is not understood")
        try:
            values[name] = {"status": int, "times": int, "seconds": float}.get(name, str)(value)
        except ValueError:
            raise ScenarioError(f"fault {text!r}: {value!r} is not a number") from None
    if "do" not in values:
        raise ScenarioError(f"fault {text!r}: do=… is missing")
    return Fault(**values)
