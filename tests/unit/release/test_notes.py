"""Release notes: what the changelog says since the release before."""

from __future__ import annotations

from pathlib import Path

import pytest

import slurm_operator
from scripts.release.notes import release_notes

CHANGELOG = (
    "# Changelog\n\nWords.\n\n## Unreleased\n\n- new\n\n## 0.2.0 - 2027-01-01\n\n- two\n\n## 0.1.0\n\n- one\n"
)


def test_notes_end_before_the_release_before() -> None:
    """The section of the version and what is above it are the notes; older ones are not."""
    notes = release_notes(CHANGELOG, "0.2.0")
    assert notes == "# slurm-operator 0.2.0\n\n## Unreleased\n\n- new\n\n## 0.2.0 - 2027-01-01\n\n- two\n"


def test_version_without_a_section_is_an_error() -> None:
    """A release without notes is not built."""
    with pytest.raises(ValueError, match=r"no section 0\.3\.0"):
        release_notes(CHANGELOG, "0.3.0")


def test_changelog_of_the_tree_has_the_version() -> None:
    """The changelog names the version of the program."""
    text = (Path(__file__).parents[3] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert release_notes(text, slurm_operator.__version__)
