"""The golden file of messages: one section per part of the operator, compared or written.

Each line of a section is a sentence that product code has rendered from sample values, behind what it is
about (a field, or a condition with its reason). Other tests assert reasons, fields and codes, so a better
wording changes this file and nothing else: `MESSAGES_WRITE=1 make test PYTEST_ARGS=tests/unit/…` writes it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE: Final = Path(__file__).parents[1] / "fixtures" / "messages.txt"
WRITE: Final = "MESSAGES_WRITE"
_HEADING: Final = "## "


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of a golden file by heading, without blank ones."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith(_HEADING):
            heading = line.removeprefix(_HEADING)
            found[heading] = []
        elif line.strip():
            found[heading].append(line)
    return found


def written(found: dict[str, list[str]]) -> str:
    """Return the text of a golden file; sections are in the order of their headings."""
    return "\n".join(
        f"{_HEADING}{heading}\n" + "".join(f"{line}\n" for line in found[heading])
        for heading in sorted(found)
    )


def compare(
    heading: str, rendered: Iterable[str], file: Path = FILE, *, write: bool = bool(os.environ.get(WRITE))
) -> None:
    """Assert that a section has exactly these lines; with MESSAGES_WRITE set, write them instead."""
    lines = [*dict.fromkeys(line.replace("\n", "\\n") for line in rendered)]
    found = sections(file.read_text(encoding="utf-8")) if file.exists() else {}
    if write:
        file.write_text(written(found | {heading: lines}), encoding="utf-8")
        return
    assert found.get(heading, []) == lines, f"to write the new messages: {WRITE}=1"
