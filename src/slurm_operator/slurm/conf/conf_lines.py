"""Lines of Slurm's configuration files: how to read the user's, and how to write ours safely.

Reading follows the simple form `Name=value`, one to a line: comments from `#` on, lines continued with a
backslash, names in any case. It is used to learn which parameters the user set; nothing that is read here is
ever written back in another form, except the lists that `merged` joins.

Writing refuses what would end the line, or comment out the rest of it: such a value would set other
parameters than the one it belongs to, or none. The error names the parameter. Only a password may contain
anything but line breaks; it is escaped the way Slurm undoes it, and appears in no message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# At these a value ends, a comment begins or a quotation opens.
_FORBIDDEN = '#"\\'
# Beside the control characters: delete, and what some readers take for the end of a line.
_LINE_ENDS = "\x7f\x85\u2028\u2029"
_MAX_PORT = 65535


class ConfError(ValueError):
    """A value that would break the file; `parameter` is the one whose value it is."""

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter}: {problem}")
        self.parameter = parameter
        self.problem = problem


# -------------------------------------------------------------------------------------------- lines of users


def settings(extra: str) -> dict[str, str]:
    """Return the parameters that lines of configuration set, by their names in lower case.

    Of several values the last counts. A line with several words is not of the simple form `Name=value` and
    sets nothing here; nor does one without a value.
    """
    found: dict[str, str] = {}
    for line in logical_lines(extra):
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if equals and name and value and not any(character.isspace() for character in value):
            found[name.lower()] = value
    return found


def merged(extra: str, required: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a line for each required list that `extra` sets too: the union of both, sorted.

    An option that both have is the operator's; of the user's own, the first of a name counts. Names of
    options compare without regard to case, and what comes from the user is written in lower case.
    """
    own = settings(extra)
    lines = []
    for name in sorted(required):
        value = own.get(name.lower())
        if value is None:
            continue
        options = {_option(item): item for item in required[name]}
        for item in _unquoted(value).lower().split(","):
            if item:
                options.setdefault(_option(item), item)
        lines.append(f"{name}={','.join(sorted(options.values()))}")
    return lines


def logical_lines(extra: str) -> Iterable[str]:
    """Yield lines without comments, with continued ones joined; blank lines do not end a continued one."""
    begun = ""
    for physical in extra.split("\n"):
        line = physical.removesuffix("\r").partition("#")[0].rstrip(" \t")
        if line.endswith("\\"):
            begun += line[:-1]
        elif line:
            yield begun + line
            begun = ""
    if begun:
        yield begun


def _option(item: str) -> str:
    return item.partition("=")[0].lower()


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1] if quoted else value


# ----------------------------------------------------------------------------------------------------- lines


def text(*sections: tuple[str, list[str]]) -> str:
    """Return a file of sections, each under its title; one without lines is left out."""
    lines: list[str] = []
    for title, content in sections:
        if content:
            lines += ["#", f"### {title} ###", *content]
    return "\n".join(lines) + "\n"


def port(name: str, number: int) -> str:
    """Return the line of a parameter that is a TCP port."""
    if not 0 < number <= _MAX_PORT:
        raise ConfError(name, f"{number} is not a port; use a number from 1 to {_MAX_PORT}")
    return f"{name}={number}"


def word(name: str, value: str) -> str:
    """Return the line of a parameter whose value is one word."""
    check_line(name, value)
    if not value:
        raise ConfError(name, "is empty, which Slurm rejects; set a value")
    bad = next((character for character in value if character.isspace() or character in _FORBIDDEN), None)
    if bad is not None:
        raise ConfError(
            name, f"{value!r} contains {bad!r}, which ends or quotes a value in Slurm's files; remove it"
        )
    return f"{name}={value}"


def password(name: str, value: str) -> str:
    """Return the line of a parameter with any value: a backslash protects, quotes hold words together."""
    if _unprintable(value):
        raise ConfError(name, "the value contains a line break or another control character; remove it")
    words = any(character.isspace() for character in value)
    if '"' in value and (words or _unquoted(value) != value):
        raise ConfError(
            name,
            "the value has a double quote together with a blank or around it; Slurm has no way to write that",
        )
    escaped = value.replace("\\", "\\\\").replace("#", "\\#")
    return f'{name}="{escaped}"' if words else f"{name}={escaped}"


def check_line(name: str, value: str) -> None:
    """Refuse what would end the line, or join it with the next."""
    if _unprintable(value):
        raise ConfError(
            name, f"{value!r} contains a line break or another control character; it must be one line"
        )
    if value.endswith("\\"):
        raise ConfError(
            name, f"{value!r} ends with a backslash, which would join it with the next line; remove it"
        )


def _unprintable(value: str) -> bool:
    return any((character < " " and character != "\t") or character in _LINE_ENDS for character in value)
