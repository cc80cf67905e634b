"""The tables of figures: what they say, and where they are put."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from bench import report
from bench.nodeset.figures import Sizes, goals, words

if TYPE_CHECKING:
    from pathlib import Path


def test_a_figure_is_shown_with_its_goal_and_whether_it_is_met() -> None:
    """A reader need not compare numbers, and what was not measured has no row."""
    figures = {"slow": 7.0, "quick": 1234.5, "plain": 1.0}
    named = {"quick": "how quick", "slow": "how slow", "plain": "just so", "missing": "not taken"}
    text = report.markdown(figures, {"machine": "mine"}, {"slow": ("≤", 5.0), "quick": ("≥", 3.0)}, named)
    assert text.splitlines()[0] == "<sub>machine: mine</sub>"
    assert text.splitlines()[4:] == [
        "| how quick | 1,234.50 | ≥ 3 | met |",
        "| how slow | 7 | ≤ 5 | not met |",
        "| just so | 1 |  |  |",
    ]


def test_a_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    """Only what is between the two marks is written, and a page without them is refused."""
    page = tmp_path / "page.md"
    begin, end = "<!-- bench.x: written by --save-baseline -->", "<!-- bench.x: end -->"
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    report.into_page(page, "x", "new")
    assert page.read_text() == f"before\n{begin}\nnew\n{end}\nafter\n"
    with pytest.raises(ValueError, match=re.escape(begin.replace("bench.x", "bench.y"))):
        report.into_page(page, "y", "new")


def test_the_page_shows_the_baseline(tmp_path: Path) -> None:
    """What docs/project/performance.md says was measured is what the committed run measured."""
    copy = tmp_path / "performance.md"
    copy.write_text(report.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    figures, where = report.baseline_with_origin("nodeset")
    sizes = Sizes()
    report.into_page(copy, "nodeset", report.markdown(figures, where, goals(sizes), words(sizes)))
    assert copy.read_text(encoding="utf-8") == report.PAGE.read_text(encoding="utf-8"), (
        "run python -m bench.nodeset --page"
    )
