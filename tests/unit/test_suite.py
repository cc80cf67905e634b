"""How all tests are divided between two processes."""

from __future__ import annotations

from pathlib import Path

from scripts.again import PARTS
from scripts.suite import WAITING, commands

ROOT = Path(__file__).parents[2]


def test_every_test_belongs_to_one_part() -> None:
    """What one part is given, the other leaves out, and it exists."""
    both = commands(["pytest"], None)
    assert tuple(both) == PARTS
    for folder in WAITING:
        assert (ROOT / folder).is_dir()
        assert folder in both["waiting"]
        assert f"--ignore={folder}" in both["rest"]
    assert not [word for word in both["rest"][1:] if not word.startswith("--ignore=")]


def test_each_part_has_a_report_of_its_own() -> None:
    """A second chance needs to know what failed in which part."""
    for part, command in commands(["pytest"], "kept").items():
        assert f"--junitxml=kept/tests-{part}.xml" in command
