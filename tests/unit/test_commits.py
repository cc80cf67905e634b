"""The check of commit messages."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from scripts.commits import LONGEST, TRIVIAL, faults, main, new_commits

if TYPE_CHECKING:
    from pathlib import Path

USER = ("-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false")


@pytest.mark.parametrize(
    "message",
    ["Keep busy workers\n", "Keep busy workers\n\nThey run jobs.\n", "Address reviews", "A" * LONGEST],
)
def test_good_messages_pass(message: str) -> None:
    """A short imperative subject is enough for a small change."""
    assert not [*faults(message, TRIVIAL)]


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("\n", "empty"),
        ("A" * (LONGEST + 1), "73 characters"),
        ("keep busy workers", "capital"),
        ("Keep busy workers.", "period"),
        ("Added a rule", "imperative: Added"),
        ("Fixes a rule", "imperative: Fixes"),
        ("WIP keep busy workers", "provisional"),
        ("fixup! Keep busy workers", "provisional"),
        ("Keep busy workers\nThey run jobs.", "second line"),
    ],
)
def test_each_fault_is_named(message: str, fault: str) -> None:
    """The message of the check says what to change."""
    assert any(fault in found for found in faults(message))


def test_large_change_says_why() -> None:
    """More lines than a trivial change has need a body."""
    assert [*faults("Keep busy workers", TRIVIAL + 1)] == ["it changes 101 lines, and no body says why"]
    assert not [*faults("Keep busy workers\n\nThey run jobs.", TRIVIAL + 1)]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *USER, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, file: str, message: str) -> str:
    """Commit a file of two lines, and return the name of the commit."""
    (folder / file).write_text("a\nb\n")
    git(folder, "add", ".")
    git(folder, "commit", f"--message={message}")
    return git(folder, "rev-parse", "HEAD")


def test_commits_since_the_base_are_checked_but_merges(tmp_path: Path) -> None:
    """What the base contains is not looked at, nor are merges; without the base there is nothing to check."""
    work = tmp_path / "work"
    work.mkdir()
    assert new_commits(work, "HEAD") is None
    git(work, "init", "--initial-branch=main")
    base = commit(work, "one", "older than the rule.")
    assert new_commits(work, base) == []
    git(work, "switch", "--create", "side")
    side = commit(work, "two", "Add two\n\nWhy.")
    git(work, "switch", "main")
    own = commit(work, "three", "Add three")
    git(work, "merge", "--no-ff", "--message=merge side.", "side")
    found = new_commits(work, base) or []
    assert {(one.name, one.message.strip(), one.lines) for one in found} == {
        (side, "Add two\n\nWhy.", 2),
        (own, "Add three", 2),
    }
    git(tmp_path, "clone", "--depth=1", f"file://{work}", "shallow")
    assert new_commits(tmp_path / "shallow", base) is None


def test_hook_reads_the_message_that_git_is_about_to_use(tmp_path: Path) -> None:
    """As a hook it refuses a bad message, and comments and merges pass."""
    file = tmp_path / "COMMIT_EDITMSG"
    for text, code in (("Keep it\n# comment.\n", 0), ("keep it\n", 1), ("Merge branch 'x'\n", 0)):
        file.write_text(text)
        assert main([str(file)]) == code
