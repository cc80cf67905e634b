"""Times as the status API sends them: in UTC, to the second; pure."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(when: datetime | None) -> datetime | None:
    """Return a time as it is sent."""
    return None if when is None else when.astimezone(UTC).replace(microsecond=0)


def as_time(seconds: float | None) -> datetime | None:
    """Return seconds since 1970 as a time; None if they are none, infinite or beyond the calendar."""
    if not seconds:
        return None
    try:
        return moment(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):
        return None
