"""The pages of the documentation, and how tests read them."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "charts/*/README.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)

_FENCE = re.compile(r"^( *)(```+)(\w*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")


@functools.cache
def text_of(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


def prose(path: Path) -> str:
    """Return a page without its blocks of code."""
    return _FENCE.sub("", text_of(path))


def blocks(path: Path, *languages: str) -> list[str]:
    """Return the blocks of code of a page, of some languages or of all."""
    return [found[4] for found in _FENCE.finditer(text_of(path)) if not languages or found[3] in languages]


def spans(path: Path) -> list[str]:
    """Return what is set in backticks within sentences, each on one line."""
    return [" ".join(found[2].split()) for found in SPAN.finditer(prose(path))]


def commands(path: Path) -> Iterator[str]:
    """Yield every command that a reader may copy: lines of shells, and those within sentences."""
    lines = "\n".join(blocks(path, "", "sh", "console")).replace("\\\n", " ").splitlines()
    for line in [*lines, *spans(path)]:
        yield line.strip().removeprefix("$ ").partition(" #")[0]
