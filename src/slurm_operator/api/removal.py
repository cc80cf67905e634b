"""Requests to remove a worker, as an annotation on its pod.

An eviction or a deletion of a worker that may run jobs is refused by Kubernetes and recorded here, by the
webhook or by hand. The operator then drains the Slurm node and deletes the pod when it is idle. A request
that is not repeated expires, and the node returns to service.

The value is a time and, behind a space, who asked: `2026-11-16T17:00:00Z eviction by alice`. A value that
does not begin with a time is a request without an end: it holds until the annotation is removed. By hand:
`kubectl annotate pod NAME nodeset.slinky.slurm.net/removal-requested=true --overwrite`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown

if TYPE_CHECKING:
    from collections.abc import Mapping

# A drain that retries does so every few seconds, and an autoscaler every few minutes.
EXPIRES: Final = timedelta(minutes=15)
# So that a client which retries every second causes no write every second.
REPEAT: Final = timedelta(seconds=30)
# A client that is refused an eviction tries again within this time, so its last request is younger.
RETRY: Final = timedelta(seconds=45)
EVICTION: Final = "eviction"
_MAX_BY: Final = 200


@dataclass(frozen=True, slots=True)
class RemovalRequest:
    """Since when a worker is asked to go, and by whom; `at` is None for a request without an end."""

    at: datetime | None
    by: str = ""

    def expires(self) -> datetime | None:
        """Return when the request ends if it is not repeated; None if it never does."""
        return None if self.at is None else self.at + EXPIRES

    def retried(self, wall: datetime) -> bool:
        """Return whether this is an eviction whose client is still trying."""
        return self.by.startswith(EVICTION) and self.at is not None and wall - self.at < RETRY

    def live(self, wall: datetime) -> bool:
        """Return whether the request still holds."""
        end = self.expires()
        return end is None or wall < end


def read(annotations: Mapping[str, str]) -> RemovalRequest | None:
    """Return the request on a pod, if there is one."""
    text = annotations.get(wellknown.ANNOTATION_REMOVAL_REQUESTED, "")
    if not text:
        return None
    first, _, by = text.partition(" ")
    try:
        moment = datetime.fromisoformat(first)
    except ValueError:
        return RemovalRequest(None, "" if text == wellknown.TRUE else text[:_MAX_BY])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        moment + EXPIRES  # a time at the end of the calendar has no end
    except OverflowError:
        return RemovalRequest(None, by[:_MAX_BY])
    return RemovalRequest(moment, by[:_MAX_BY])


def due(annotations: Mapping[str, str], now: datetime) -> bool:
    """Return whether a request that comes now must be recorded: there is none, or it is no longer fresh."""
    known = read(annotations)
    if known is None:
        return True
    return known.at is not None and not abs(now - known.at) < REPEAT


def text(at: datetime, by: str) -> str:
    """Return the value of the annotation; `by` is cut and has only printable characters."""
    who = "".join(char if char.isprintable() else " " for char in by)[:_MAX_BY].strip()
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} {who}".rstrip()
