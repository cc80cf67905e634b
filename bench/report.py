"""Where figures were taken, how they are shown, and where they are kept."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "project" / "performance.md"
Goals = dict[str, tuple[str, float]]


def provenance(**versions: str) -> dict[str, str]:
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


def baseline(name: str) -> dict[str, float]:
    """Return the committed figures of a benchmark; none before the first were saved."""
    return baseline_with_origin(name)[0]


def baseline_with_origin(name: str) -> tuple[dict[str, float], dict[str, str]]:
    """Return the committed figures of a benchmark, and where they were taken."""
    file = HERE / "baseline" / f"{name}.json"
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return dict(kept.get("figures", {})), dict(kept.get("provenance", {}))


def table(figures: dict[str, float], before: dict[str, float], goals: Goals) -> str:
    """Lay the figures out beside their goals and the committed baseline."""
    rows = [f"{'figure':28} {'this run':>12} {'baseline':>12}  goal"]
    for name, value in figures.items():
        sign, bound = goals.get(name, ("", 0.0))
        goal = f"{sign} {bound:g}  {'met' if _met(value, sign, bound) else 'MISSED'}" if sign else ""
        old = f"{before[name]:12.2f}" if name in before else f"{'-':>12}"
        rows.append(f"{name:28} {value:12.2f} {old}  {goal}".rstrip())
    return "\n".join(rows)


def markdown(figures: dict[str, float], where: dict[str, str], goals: Goals, words: dict[str, str]) -> str:
    """Lay the figures out as a table for people, and say where they were taken."""
    taken = "; ".join(f"{key}: {value}" for key, value in where.items())
    rows = [f"<sub>{taken}</sub>", "", "| figure | measured | goal | |", "|---|---:|---:|---|"]
    for name, text in words.items():
        if name not in figures:
            continue
        sign, bound = goals.get(name, ("", 0.0))
        goal, verdict = (f"{sign} {bound:g}", "met" if _met(figures[name], sign, bound) else "not met")
        shown = f"{figures[name]:,.2f}".removesuffix(".00")
        rows.append(f"| {text} | {shown} | {goal if sign else ''} | {verdict if sign else ''} |")
    return "\n".join(rows)


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


def keep(name: str, figures: dict[str, float], where: dict[str, str], *, as_baseline: bool) -> None:
    """Write the figures down, and as the committed baseline if they are to be that."""
    text = json.dumps({"provenance": where, "figures": figures}, indent=2, ensure_ascii=False) + "\n"
    files = [HERE / "results" / f"{name}-{where['date'].replace(':', '')}.json"]
    if as_baseline:
        files.append(HERE / "baseline" / f"{name}.json")
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
