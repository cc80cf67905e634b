from __future__ import annotations

from datetime import timedelta

import pytest

from slurm_operator.plugin.rendering import render_jobs, render_status
from slurm_operator.plugin.text_tables import (
    Cell,
    Palette,
    age,
    counted,
    duration,
    listed,
    shortened,
    table,
    visible,
)
from slurm_operator.status_rows import JobReply, Overview, StateCounts
from tests.support.plugin.sample_rows import NOW, cluster, job, jobs
from tests.support.plugin.states import STATES


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (45.9, "45s"),
        (119, "119s"),
        (120, "2m"),
        (545, "9m5s"),
        (3600, "60m"),
        (7260, "2h1m"),
        (30_000, "8h"),
        (200_000, "2d7h"),
        (864_000, "10d"),
    ],
)
def test_durations_are_written_as_kubectl_writes_them(seconds: float, text: str) -> None:
    """A length of time has one or two units, as in `kubectl get`."""
    assert duration(seconds) == text


def test_an_unknown_age_is_empty() -> None:
    """Without a time there is no age."""
    assert age(None, NOW) == age(NOW, None) == ""
    assert age(NOW - timedelta(seconds=3), NOW) == "3s"


def test_a_table_is_aligned_and_has_no_trailing_space() -> None:
    """Columns start at the same place, colours do not count, and an empty cell is a dash."""
    lines = table(["A", "LONG"], [["xxxx", Cell("", "red")], ["y", Cell("z", "red")]], Palette(on=True))
    assert lines == ["A      LONG", "xxxx   \x1b[31m-\x1b[0m", "y      \x1b[31mz\x1b[0m"]
    assert table(["A", "B"], []) == ["A   B"]


def test_counts_are_grammatical() -> None:
    """One pod, two pods, one entry, two entries; zero counts are left out of lists."""
    assert (counted(1, "pod"), counted(2, "pod"), counted(2, "entry", "entries")) == (
        "1 pod",
        "2 pods",
        "2 entries",
    )
    assert listed({"IDLE": 1, "DOWN": 0, "MIXED": 3}) == "3 MIXED, 1 IDLE"


def test_control_sequences_never_reach_a_terminal() -> None:
    """Names and reasons are written by any user of Slurm, so what steers a terminal is replaced."""
    evil = "a\x1b]0;owned\x07\x9b31m\nb"
    assert visible(evil) == "a?]0;owned??31m b"
    assert shortened("x" * 50, 10) == f"{'x' * 9}…"
    text = render_jobs(JobReply(at=NOW, items=(jobs(job(1, name=evil, user=evil, state_reason=evil)),)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\x9b" not in text
    counts = jobs(job(1), total=1, by_state={evil: 1})
    assert "\x1b" not in render_jobs(JobReply(at=NOW, items=(counts,)), wide=True)
    view = Overview(at=NOW, clusters=(cluster(jobs=StateCounts(total=1, by_state={evil: 1})),))
    assert "\x1b" not in render_status(view)


def test_colours_only_where_they_are_wanted() -> None:
    """The same text comes with colours or without, and differs in nothing else."""
    state = STATES["scaling-in-with-jobs"]
    view = Overview(at=NOW, clusters=state.clusters, nodesets=state.nodesets, blocked=state.workers[2:])
    plain, coloured = render_status(view), render_status(view, Palette(on=True))
    assert "\x1b" not in plain
    assert "\x1b[33m" in coloured
    for code in ("0", "1", "2", "31", "32", "33", "36"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == plain
