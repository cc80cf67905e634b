from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "differences.md"
# The tests of workers, which have a column of their own.
_NAMED = re.compile(r"`(test_\w+)`")
_DEFINED = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def test_what_the_page_says_is_tested_is_tested() -> None:
    """Every test that the list of differences names is there."""
    named = {*_NAMED.findall(PAGE.read_text(encoding="utf-8"))}
    files = (ROOT / "tests").rglob("test_*.py")
    there = {name for file in files for name in _DEFINED.findall(file.read_text(encoding="utf-8"))}
    assert named
    assert named - there == set()
