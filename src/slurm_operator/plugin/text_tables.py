"""Columns, colours and ages as kubectl prints them; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

_GAP: Final = "   "
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# Below these kubectl shows two units: 2h5m, 3d4h.
_TWO_UNIT_MINUTES, _TWO_UNIT_HOURS, _TWO_UNIT_DAYS = 10, 8, 8
# Below these it shows the smaller unit alone.
_TWO_HOURS, _TWO_DAYS = 2, 2


@dataclass(frozen=True, slots=True)
class Palette:
    """Paints words, if it is on."""

    on: bool = False

    def paint(self, text: str, colour: str) -> str:
        """Return a text in a colour; without one, or switched off, as it is."""
        code = _COLOURS.get(colour, "")
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and code and text else text


PLAIN: Final = Palette()
_COLOURS: Final = {"green": "32", "yellow": "33", "red": "31", "cyan": "36", "dim": "2", "bold": "1"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a colour."""

    text: str
    colour: str = ""


def table(head: Sequence[str], rows: Iterable[Sequence[str | Cell]], palette: Palette = PLAIN) -> list[str]:
    """Return lines with aligned columns; an empty cell is shown as `-`."""
    cells = [[_cell(one) for one in row] for row in rows]
    widths = [
        max(len(title), *(len(row[index].text) for row in cells)) if cells else len(title)
        for index, title in enumerate(head)
    ]
    lines = [_GAP.join(title.ljust(width) for title, width in zip(head, widths, strict=True)).rstrip()]
    for row in cells:
        parts = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = "" if index == len(row) - 1 else " " * (width - len(cell.text))
            parts.append(palette.paint(cell.text, cell.colour) + space)
        lines.append(_GAP.join(parts).rstrip())
    return lines


def _cell(given: str | Cell) -> Cell:
    cell = given if isinstance(given, Cell) else Cell(given)
    return Cell(visible(cell.text) or "-", cell.colour)


def visible(text: str) -> str:
    """Return a text as one line without control characters: names and reasons are written by any user."""
    flat = " ".join(text.split())
    return flat if flat.isprintable() else "".join(char if char.isprintable() else "?" for char in flat)


def indented(lines: Iterable[str], by: int = 2) -> list[str]:
    """Return lines moved to the right; an empty one stays empty."""
    return [f"{' ' * by}{line}" if line else "" for line in lines]


def age(since: datetime | None, now: datetime | None) -> str:
    """Return how long ago something was, in kubectl's short form; empty if that is unknown."""
    if since is None or now is None:
        return ""
    return duration((now - since).total_seconds())


def duration(seconds: float) -> str:
    """Return a length of time in kubectl's short form: 45s, 9m5s, 3h, 2d4h."""
    left = max(0, int(seconds))
    minutes, hours = left // _MINUTE, left // _HOUR
    if left < 2 * _MINUTE:
        return f"{left}s"
    if minutes < _TWO_UNIT_MINUTES:
        return _two(minutes, "m", left % _MINUTE, "s")
    if hours < _TWO_HOURS:
        return f"{minutes}m"
    return _long(left, hours)


def _long(left: int, hours: int) -> str:
    """Return a length of time of two hours or more."""
    days = left // _DAY
    if hours < _TWO_UNIT_HOURS:
        return _two(hours, "h", left % _HOUR // _MINUTE, "m")
    if days < _TWO_DAYS:
        return f"{hours}h"
    if days < _TWO_UNIT_DAYS:
        return _two(days, "d", left % _DAY // _HOUR, "h")
    return f"{days}d"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def moment(at: datetime | None) -> str:
    """Return a time as users and logs write it, in UTC; empty if it is unknown."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: 1 pod, 3 pods."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def listed(counts: Mapping[str, int]) -> str:
    """Return counts by name, the largest first: `3 IDLE, 1 MIXED+DRAIN`."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number} {visible(name)}" for name, number in order if number)


def shortened(text: str, length: int) -> str:
    """Return a text of at most that many characters, with an ellipsis if it was cut."""
    flat = visible(text)
    return flat if len(flat) <= length else f"{flat[: length - 1].rstrip()}…"
