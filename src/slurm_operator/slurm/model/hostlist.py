"""Slurm's short form for many node names: `n[001-010,12]` instead of eleven names.

Folding takes names apart into text and numbers. Names with the same texts have the same shape; within a shape
the number that takes the most values goes into a bracket, and names that agree in all other numbers share it.
So `r1n1 … r200n2` becomes `r[1-200]n1,r[1-200]n2`, whichever of the two numbers comes first. One bracket for
each name is enough: a second one saves little and makes lists that are hard to read.

Padding belongs to the name: `n1`, `n01` and `n001` are three nodes. Slurm gives all numbers of a range the
width of its first one, so a range only joins numbers of which that is true.

Expanding accepts what `scontrol show hostnames` accepts, in the same order and with its duplicates, apart
from a few forms that Slurm lets pass by accident (`n[1-]`, `n1]`). The text, the number of names and their
length are limited: a short text can name more nodes than there is memory.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final

from slurm_operator.slurm.model.reply_limits import MAX_HOSTLIST, MAX_NAME, MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The most names that expand() makes unless told otherwise; also what slurmctld takes in one range.
MAX_NAMES: Final = MAX_NODES
_MAX_RANGE: Final = 65_536
# Slurm counts with 64 bits. 18 digits always fit; a longer number is cut, and only one piece ever counts.
_NUMBER: Final = re.compile(r"([0-9]{1,18})")
_MAX_NUMBER: Final = 2**64 - 1
_RESERVED: Final = re.compile(r"[\[\],\s\x00-\x1f\x7f]")
_TOKEN: Final = re.compile(r"(?P<text>[^\[\],\s]+)|\[(?P<ranges>[^\[\]]*)\]|(?P<gap>[,\s]+)")
_RANGE: Final = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_SHOWN: Final = 60

Key = tuple[str | tuple[int, int], ...]


class TooManyNamesError(ValueError):
    """A hostlist stands for more names than were allowed."""


def natural(name: str) -> Key:
    """Return a sort key that puts n2 before n10, and n2 before n02."""
    parts = _NUMBER.split(name)
    return tuple((int(part), len(part)) if index % 2 else part for index, part in enumerate(parts))


def fold(names: Iterable[str]) -> str:
    """Write names as one hostlist: sorted, without duplicates, the same text for the same set."""
    unique = set(names)
    _refuse_reserved(unique)
    shapes: dict[tuple[str, ...], list[list[str]]] = {}
    for name in unique:
        parts = _NUMBER.split(name)
        shapes.setdefault(tuple(parts[::2]), []).append(parts)
    items = [item for shape, members in shapes.items() for item in _fold_shape(shape, members)]
    items.sort()
    return ",".join(text for _, text in items)


def single(name: str) -> str:
    """Write one name as a hostlist, as `fold` would, but quickly."""
    _refuse_reserved({name})
    return name


def split(names: Iterable[str], max_bytes: int) -> list[str]:
    """Write names as hostlists of at most so many bytes each; only a single name may be longer."""
    pending = [sorted(set(names), key=natural)]
    done: list[str] = []
    while pending:
        part = pending.pop()
        folded = fold(part)
        if len(part) > 1 and len(folded.encode()) > max_bytes:
            middle = len(part) // 2
            pending += [part[middle:], part[:middle]]
        elif part:
            done.append(folded)
    return done


def expand(text: str, limit: int = MAX_NAMES) -> list[str]:
    """Return the names in a hostlist, in its order; a ValueError says what is wrong with it, and where."""
    if len(text) > MAX_HOSTLIST:
        raise ValueError(f"hostlist {_shorten(text)} has more than {MAX_HOSTLIST} characters")
    names: list[str] = []
    parts: list[list[str]] = []
    position = length = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            problem = (
                "']' without a '['"
                if text[position] == "]"
                else "'[' that is not closed, or one inside another"
            )
            raise _malformed(text, position, problem)
        if token["gap"]:
            names += _combine(parts)
            parts, length = [], 0
        elif token["text"]:
            parts.append([token["text"]])
        else:
            parts.append(list(_expand_bracket(text, position + 1, token["ranges"], limit)))
        # Before the next bracket is made: each may be as long as the limit allows.
        length += len(parts[-1][-1]) if parts else 0
        if length > MAX_NAME:
            raise _malformed(text, position, f"a name of more than {MAX_NAME} characters")
        if parts and len(names) + prod(map(len, parts)) > limit:
            raise _too_many(text, limit)
        position = token.end()
    return names + _combine(parts)


def _refuse_reserved(names: set[str]) -> None:
    if "" in names:
        raise ValueError("an empty node name cannot be written in a hostlist")
    if _RESERVED.search("".join(names)) is None:
        return
    for name in sorted(names):
        if found := _RESERVED.search(name):
            raise ValueError(
                f"the node name {name[:_SHOWN]!r} cannot be written in a hostlist: "
                f"it has {found[0]!r} at position {found.start() + 1}"
            )


def _fold_shape(shape: tuple[str, ...], members: list[list[str]]) -> Iterator[tuple[Key, str]]:
    """Yield the items for all names of one shape, each with the key of its first name."""
    if len(shape) == 1:
        yield shape, shape[0]
        return
    place = _varying(members)
    rows: dict[tuple[str, ...], list[str]] = {}
    for parts in members:
        rows.setdefault((*parts[:place], *parts[place + 1 :]), []).append(parts[place])
    for rest, numbers in rows.items():
        front, back = "".join(rest[:place]), "".join(rest[place:])
        ranges = _ranges(numbers)
        first = ranges[0].partition("-")[0]
        lone = len(ranges) == 1 and first == ranges[0]
        key = natural(f"{front}{first}{back}")
        yield key, f"{front}{first}{back}" if lone else f"{front}[{','.join(ranges)}]{back}"


def _varying(members: list[list[str]]) -> int:
    """Return the place of the number that takes the most values; of equals the last, usually the counter."""
    places = range(len(members[0]) - 2, 0, -2)
    if len(places) == 1:
        return 1
    return max(places, key=lambda place: len({parts[place] for parts in members}))


def _ranges(numbers: list[str]) -> list[str]:
    """Write digits as ranges in which every number has the width that Slurm will give it."""
    padded = {len(digits) for digits in numbers if digits[0] == "0" and len(digits) > 1}
    widths: dict[int, list[int]] = {}
    for digits in numbers:
        widths.setdefault(len(digits) if len(digits) in padded else 1, []).append(int(digits))
    return [run for width in sorted(widths) for run in _runs(sorted(widths[width]), width)]


def _runs(values: list[int], width: int) -> Iterator[str]:
    start = last = values[0]
    for value in values[1:]:
        if value != last + 1 or value - start >= _MAX_RANGE:
            yield _run(start, last, width)
            start = value
        last = value
    yield _run(start, last, width)


def _run(start: int, last: int, width: int) -> str:
    return f"{start:0{width}d}" if start == last else f"{start:0{width}d}-{last:0{width}d}"


def _combine(parts: list[list[str]]) -> list[str]:
    """Join the parts of one item in every way, the last part changing fastest."""
    return ["".join(choice) for choice in product(*parts)] if parts else []


def _expand_bracket(text: str, position: int, ranges: str, limit: int) -> Iterator[str]:
    """Yield the digits that a bracket stands for."""
    if ranges.count(",") >= limit:
        raise _too_many(text, limit)
    count = 0
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise _malformed(text, position, f"{part[:_SHOWN]!r} where a number or a range is expected")
        low, high = found[1], found[2] or found[1]
        if len(low) > 20 or len(high) > 20 or int(high) > _MAX_NUMBER:  # noqa: PLR2004 - digits of 2**64
            raise _malformed(text, position, f"{part[:_SHOWN]!r} has a number above {_MAX_NUMBER}")
        start, last = int(low), int(high)
        if last < start:
            raise _malformed(text, position, f"the range {part!r} runs backwards")
        count += last - start + 1
        if count > limit:
            raise _too_many(text, limit)
        width = len(low)
        yield from (f"{value:0{width}d}" for value in range(start, last + 1))
        position += len(part) + 1


def _malformed(text: str, position: int, problem: str) -> ValueError:
    return ValueError(f"hostlist {_shorten(text)}: {problem} at position {position + 1}")


def _too_many(text: str, limit: int) -> TooManyNamesError:
    return TooManyNamesError(f"hostlist {_shorten(text)} stands for more than {limit} names")


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
