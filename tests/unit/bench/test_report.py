"""The tables of figures: what they say, where they are put, and when they become the baseline."""

from __future__ import annotations

import argparse
import json
import re
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from bench import processor, report
from bench.nodeset.figures import Sizes, goals, words

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = {"date": "2026-01-01T00:00:00+00:00"}
QUIET, BUSY = processor.OtherLoad({"sshd": 0.01}), processor.OtherLoad({"cc1": 1.5, "make": 0.1}, 0.02)


def test_the_figure_of_several_runs_is_their_median_with_the_least_and_the_most() -> None:
    """One slow run moves the spread, not the figure; a figure of a single run has no spread."""
    result = report.summarize([{"a": 3.0}, {"a": 9.0, "b": 1.0}, {"a": 2.0}], ORIGIN)
    assert result.figures == {"a": 3.0, "b": 1.0}
    assert result.spread == {"a": (2.0, 9.0)}
    assert result.origin == {**ORIGIN, "runs": "3"}


@pytest.mark.parametrize(("values", "verdict"), [((1.0, 4.0, 9.0), "met"), ((1.0, 6.0, 7.0), "MISSED")])
def test_only_the_median_decides_whether_a_goal_is_met(values: tuple[float, ...], verdict: str) -> None:
    """A run that misses the goal does not spoil it, and one lucky run does not meet it."""
    result = report.summarize([{"a": value} for value in values], ORIGIN)
    row = report.table(result, {"a": 4.5}, {"a": ("≤", 5.0)}).splitlines()[1]
    assert row.split() == ["a", f"{values[1]:.2f}", f"1.00..{values[2]:.2f}", "4.50", "≤", "5", verdict]


@dataclass(frozen=True)
class FixedLoad:
    """What others used most during the runs."""

    worst: processor.OtherLoad


def meters(before: processor.OtherLoad = QUIET, during: processor.OtherLoad = QUIET) -> report.LoadMeters:
    """Return meters that read so much before and during the runs."""
    return report.LoadMeters(lambda: before, lambda: nullcontext(FixedLoad(during)))


def measure(folder: Path, *arguments: str, load: report.LoadMeters | None = None) -> int:
    """Measure with these options; return how many runs were made."""
    made = 0

    def take() -> tuple[report.Figures, report.Origin]:
        nonlocal made
        made += 1
        return {"a": float(made)}, ORIGIN

    parser = argparse.ArgumentParser()
    report.add_options(parser)
    report.measure("x", parser.parse_args(arguments), take, {}, meters=load or meters(), folder=folder)
    return made


def test_a_baseline_is_the_median_of_the_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several runs are made, and what is saved can be read again."""
    assert measure(tmp_path, "--save-baseline") == report.RUNS > 1
    kept = report.baseline("x", tmp_path)
    assert kept.figures == {"a": 2.0}
    assert kept.spread == {"a": (1.0, 3.0)}
    assert kept.origin["other load"] == "at most 0.01 cores"
    assert "1.00..3.00" in capsys.readouterr().out
    assert json.loads((tmp_path / "baseline" / "x.json").read_text())["figures"] == {"a": 2.0}


def test_no_baseline_is_taken_on_a_busy_machine(tmp_path: Path) -> None:
    """The refusal comes before the first run, and says what keeps the machine busy."""
    with pytest.raises(
        SystemExit, match=r"busy before the first run: .*1\.60 cores \(cc1 1\.50, make 0\.10\)"
    ):
        measure(tmp_path, "--save-baseline", load=meters(before=BUSY))
    assert not list(tmp_path.rglob("*.json"))


def test_no_baseline_is_saved_if_the_machine_became_busy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figures are shown and kept, but not as the baseline."""
    with pytest.raises(SystemExit, match=r"no baseline saved: the machine was busy during the runs: .*cc1 1"):
        measure(tmp_path, "--save-baseline", load=meters(during=BUSY))
    assert not (tmp_path / "baseline").exists()
    assert len(list((tmp_path / "results").iterdir())) == 1
    assert "The machine was busy" in capsys.readouterr().out


def test_a_busy_machine_may_be_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a baseline to save, a busy machine is only reported."""
    assert measure(tmp_path, "--runs", "1", load=meters(BUSY, BUSY)) == 1
    assert "The machine was busy: other processes use 1.60 cores" in capsys.readouterr().out
    assert not (tmp_path / "baseline").exists()


def test_a_figure_is_shown_with_its_goal_and_whether_it_is_met() -> None:
    """A reader need not compare numbers, and what was not measured has no row."""
    figures = {"slow": 7.0, "quick": 1234.5, "plain": 1.0}
    named = {"quick": "how quick", "slow": "how slow", "plain": "just so", "missing": "not taken"}
    result = report.Result(figures, {"machine": "mine"}, {"plain": (0.5, 2.0)})
    text = report.markdown(result, {"slow": ("≤", 5.0), "quick": ("≥", 3.0)}, named)
    assert text.splitlines()[0] == "<sub>machine: mine</sub>"
    assert text.splitlines()[4:] == [
        "| how quick | 1,234.50 | ≥ 3 | met |",
        "| how slow | 7 | ≤ 5 | not met |",
        "| just so | 1 (0.50 to 2) |  |  |",
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
    sizes = Sizes()
    page = report.markdown(report.baseline("nodeset"), goals(sizes), words(sizes))
    report.into_page(copy, "nodeset", page)
    assert copy.read_text(encoding="utf-8") == report.PAGE.read_text(encoding="utf-8"), (
        "run python -m bench.nodeset --page"
    )
