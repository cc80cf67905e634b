"""How figures are taken: several runs, their medians and spread, where they were taken, where they are kept.

A goal is met if the median meets it. Medians become the committed baseline only if the machine was quiet,
before and during all runs.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench import processor

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "project" / "performance.md"
Figures = dict[str, float]
Origin = dict[str, str]
Goals = dict[str, tuple[str, float]]
RUNS = 3
_PROBE_SECONDS = 5.0


@dataclass(frozen=True)
class Result:
    """The medians of some runs, where they were taken, and the least and the most of each figure."""

    figures: Figures
    origin: Origin
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)


class WorstLoad(Protocol):
    """The most that other processes used at a time."""

    @property
    def worst(self) -> processor.OtherLoad:
        """Return it; final when the block has ended."""
        ...


@dataclass(frozen=True)
class LoadMeters:
    """What others use of the processors, before the runs and during them."""

    before: Callable[[], processor.OtherLoad] = lambda: processor.load_now(_PROBE_SECONDS)
    during: Callable[[], AbstractContextManager[WorstLoad]] = processor.LoadWatch


THIS_MACHINE = LoadMeters()


def summarize(runs: Sequence[Figures], origin: Origin) -> Result:
    """Return the medians and the spread of some runs; a figure that a run lacks is that of the others."""
    names = dict.fromkeys(name for figures in runs for name in figures)
    values = {name: [figures[name] for figures in runs if name in figures] for name in names}
    return Result(
        {name: statistics.median(found) for name, found in values.items()},
        {**origin, "runs": str(len(runs))},
        {name: (min(found), max(found)) for name, found in values.items() if len(found) > 1},
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all benchmarks have."""
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"runs to take the medians of (default {RUNS})"
    )
    parser.add_argument(
        "--save-baseline",
        action="store_true",
        help="replace the committed baseline and its table in docs/project/performance.md by these medians; "
        "refused on a busy machine",
    )


def measure(
    name: str,
    options: argparse.Namespace,
    take: Callable[[], tuple[Figures, Origin]],
    goals: Goals,
    words: dict[str, str] | None = None,
    *,
    meters: LoadMeters = THIS_MACHINE,
    folder: Path = HERE,
) -> None:
    """Take the figures several times; print and keep the medians, and save them as the baseline if asked.

    With `words`, a table in docs/project/performance.md belongs to the baseline.
    """
    load = meters.before()
    if options.save_baseline and load.busy:
        raise SystemExit(refusal(name, load, "before the first run"))
    runs: list[Figures] = []
    origin: Origin = {}
    with meters.during() as watch:
        for number in range(1, options.runs + 1):
            print(f"bench.{name}: run {number} of {options.runs}", file=sys.stderr, flush=True)
            figures, origin = take()
            runs.append(figures)
    worst = max(load, watch.worst, key=lambda found: found.cores)
    result = summarize(runs, {**origin, "other load": f"at most {worst.cores:.2f} cores"})
    print(table(result, baseline(name, folder).figures, goals))
    if worst.busy:
        print(f"The machine was busy: {worst}. Seconds may be too high.")
    keep(name, result, folder, as_baseline=options.save_baseline and not worst.busy)
    if options.save_baseline and worst.busy:
        raise SystemExit(refusal(name, worst, "during the runs"))
    if options.save_baseline and words is not None:
        into_page(PAGE, name, markdown(result, goals, words))


def refusal(name: str, load: processor.OtherLoad, when: str) -> str:
    """Return why no baseline is saved, and what to do."""
    return (
        f"bench.{name}: no baseline saved: the machine was busy {when}: {load}; "
        f"at most {processor.BUSY_CORES:g} cores are allowed. Stop the other processes and run it again"
    )


def provenance(**versions: str) -> Origin:
    """Say where and on what the figures were taken."""
    rows = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((row.split(":")[1].strip() for row in rows if "model name" in row), "?")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - the user's own git
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "machine": f"{os.cpu_count()} x {cpu}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        **versions,
    }


def baseline(name: str, folder: Path = HERE) -> Result:
    """Return the committed medians of a benchmark; none before the first were saved."""
    file = folder / "baseline" / f"{name}.json"
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    spread = {figure: (least, most) for figure, (least, most) in kept.get("spread", {}).items()}
    return Result(dict(kept.get("figures", {})), dict(kept.get("provenance", {})), spread)


def table(result: Result, before: Figures, goals: Goals) -> str:
    """Lay the medians out beside their spread, the committed baseline and their goals."""
    width = max((len(name) for name in result.figures), default=0)
    rows = [f"{'figure':{width}} {'median':>12} {'min..max':>21} {'baseline':>12}  goal"]
    for name, value in result.figures.items():
        sign, bound = goals.get(name, ("", 0.0))
        goal = f"{sign} {bound:g}  {'met' if _met(value, sign, bound) else 'MISSED'}" if sign else ""
        least, most = result.spread.get(name, (None, None))
        between = "-" if least is None else f"{least:.2f}..{most:.2f}"
        old = f"{before[name]:12.2f}" if name in before else f"{'-':>12}"
        rows.append(f"{name:{width}} {value:12.2f} {between:>21} {old}  {goal}".rstrip())
    return "\n".join(rows)


def markdown(result: Result, goals: Goals, words: dict[str, str]) -> str:
    """Lay the medians out as a table in Markdown, with their spread and where they were taken."""
    origin = "; ".join(f"{key}: {value}" for key, value in result.origin.items())
    rows = [f"<sub>{origin}</sub>", "", "| figure | measured | goal | |", "|---|---:|---:|---|"]
    for name, text in words.items():
        if name not in result.figures:
            continue
        value = result.figures[name]
        sign, bound = goals.get(name, ("", 0.0))
        goal, verdict = (f"{sign} {bound:g}", "met" if _met(value, sign, bound) else "not met")
        shown = _number(value)
        if name in result.spread:
            shown += " ({} to {})".format(*map(_number, result.spread[name]))
        rows.append(f"| {text} | {shown} | {goal if sign else ''} | {verdict if sign else ''} |")
    return "\n".join(rows)


def _number(value: float) -> str:
    return f"{value:,.2f}".removesuffix(".00")


def into_page(page: Path, name: str, text: str) -> None:
    """Put a table into a page, between the two comments that mark its place there."""
    begin, end = f"<!-- bench.{name}: written by --save-baseline -->", f"<!-- bench.{name}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} has no place for these figures: it needs {begin!r} and {end!r}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def _met(value: float, sign: str, bound: float) -> bool:
    return value >= bound if sign == "≥" else value <= bound


def keep(name: str, result: Result, folder: Path, *, as_baseline: bool) -> None:
    """Write the figures to a file of their own, and as the committed baseline if they are to be that."""
    kept = {"provenance": result.origin, "figures": result.figures, "spread": result.spread}
    text = json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
    files = [folder / "results" / f"{name}-{result.origin['date'].replace(':', '')}.json"]
    if as_baseline:
        files.append(folder / "baseline" / f"{name}.json")
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
