"""Which tests run in which process."""

from __future__ import annotations

from pathlib import Path

from scripts.again import PARTS
from scripts.suite import PATHS, commands

ROOT = Path(__file__).parents[2]
FILES = sorted(path.relative_to(ROOT) for path in ROOT.glob("tests/**/test_*.py"))


def runs(command: list[str], path: Path) -> bool:
    """Return whether pytest, called like this, runs the tests of a file."""
    words = command[1:]
    ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    given = [word for word in words if not word.startswith("-")] or ["tests"]
    return any(map(path.is_relative_to, given)) and not any(map(path.is_relative_to, ignored))


def test_every_test_belongs_to_one_part() -> None:
    """What one part is given, the others leave out, and it exists."""
    parts = commands(["pytest"], "kept")
    assert tuple(parts) == PARTS
    assert PATHS.keys() == set(PARTS)
    for given in (path for paths in PATHS.values() for path in paths):
        assert (ROOT / given).exists()
    for path in FILES:
        assert len([part for part, command in parts.items() if runs(command, path)]) == 1, path


def test_no_part_is_empty() -> None:
    """A part without tests would fail: pytest counts that as an error."""
    for part, command in commands(["pytest"], "kept").items():
        assert any(runs(command, path) for path in FILES), part


def test_each_part_has_a_report_of_its_own() -> None:
    """A second chance needs to know what failed in which part."""
    for part, command in commands(["pytest"], "kept").items():
        assert f"--junitxml=kept/tests-{part}.xml" in command
