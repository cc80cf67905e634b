"""The status page keeps to its own policy: nothing inline, nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.images import PACKAGED
from slurm_operator.status_api.page import _FILES, _POLICY, asset, page_routes

TEXTS = {name: asset(name).decode() for name, _ in _FILES.values()}
SUMMARIES = {
    *("idle", "busy", "draining", "drained", "down", "starting", "unknown", "terminating", "powered-down"),
}


def test_nothing_is_inline() -> None:
    """The page has neither scripts nor styles nor handlers of its own, so the policy can forbid them all."""
    page = TEXTS["index.html"]
    assert re.findall(r"<script(?![^>]* src=)[^>]*>", page) == []
    assert "<style" not in page
    assert re.findall(r"\s(?:style|on\w+)=", page) == []
    assert "unsafe" not in _POLICY


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    """No file names another server, and every link is relative, so that a prefix changes nothing."""
    text = TEXTS[name].replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert re.findall(r"https?://|//[a-z]+\.[a-z]", text) == []
    assert re.findall(r"""(?:href|src)=["']/""", text) == []
    assert re.findall(r"""fetch\(["'`]/|EventSource\(["'`]/""", text) == []


def test_texts_never_become_markup() -> None:
    """What comes from Slurm or Kubernetes is only ever set as text."""
    script = TEXTS["status.js"]
    for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert risky not in script


def test_jobs_of_a_worker_that_is_not_known_are_not_called_none() -> None:
    """The page says that a worker has no jobs only while Slurm's state of it is known."""
    (told,) = re.findall(r'fact\("Jobs", (.*)\);', TEXTS["status.js"])
    assert told.endswith('row.known === "unknown" ? "unknown" : "none"')


def test_every_state_has_a_colour_and_a_pattern() -> None:
    """The words of the API are those of the page, each with a look of its own."""
    (listed,) = re.findall(r"const STATES = \[(.*?)\]", TEXTS["status.js"])
    assert set(re.findall(r'"([\w-]+)"', listed)) == SUMMARIES
    looks = dict(re.findall(r"^\.s-([\w-]+) \{(.*?)\}", TEXTS["status.css"], re.MULTILINE | re.DOTALL))
    assert set(looks) == SUMMARIES
    assert len(set(looks.values())) == len(SUMMARIES)


def test_both_themes_have_every_colour() -> None:
    """The dark theme, chosen by the system or by hand, defines what the light one does."""
    blocks = re.findall(r"\{([^{}]*--bg:[^{}]*)\}", TEXTS["status.css"])
    names = [set(re.findall(r"--([\w-]+):", block)) - {"mono"} for block in blocks]
    assert len(names) == 3
    assert names[0] == names[1] == names[2]


def test_the_page_is_part_of_the_image() -> None:
    """Every file of the page is of a kind that is copied into the operator's image."""
    assert {Path(name).suffix for name in TEXTS} <= PACKAGED


def test_the_page_is_served_at_the_root() -> None:
    """A browser needs four files."""
    assert {path for path, _ in page_routes()} == {
        "/",
        "/assets/icon.svg",
        "/assets/status.css",
        "/assets/status.js",
    }
