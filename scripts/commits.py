#!/usr/bin/env python3
"""Check the messages of new commits: `commits.py`, or `commits.py FILE` as git's commit-msg hook.

A subject has at most 72 characters, begins with a capital letter and a verb in the imperative, and ends
without a period. An empty line follows it. A commit that changes more than `TRIVIAL` lines has a body that
says why. Merge commits are left out, and so is all that `BASE` contains, which is older than this rule. A
checkout without git or without `BASE`, a shallow clone for example, has nothing to check. Only the standard
library is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
BASE: Final = "3c6493f2956d6e2e98ca6afe28d572381ce51d0c"
LONGEST: Final = 72
TRIVIAL: Final = 100
# In the imperative these end otherwise.
NOT_IMPERATIVE: Final = re.compile(
    r"(?:Add|Allow|Change|Check|Document|Fix|Implement|Improve|Mak|Mov|Refactor|Remov|Renam|Support|Test|Updat|Us)"
    r"(?:s|es|ed|ing)\b"
)
PROVISIONAL: Final = re.compile(r"(?:fixup!|squash!|amend!|wip\b)", re.IGNORECASE)


@dataclass(frozen=True)
class Commit:
    """A commit: its name, its whole message, and how many lines it adds and removes."""

    name: str
    message: str
    lines: int


def faults(message: str, lines: int = 0) -> Iterator[str]:
    """Yield what is wrong with a message."""
    subject, _, rest = message.strip("\n").partition("\n")
    if not subject:
        yield "it is empty"
        return
    if len(subject) > LONGEST:
        yield f"the subject has {len(subject)} characters, and may have {LONGEST}"
    if not subject[0].isupper():
        yield "the subject does not begin with a capital letter"
    if subject.endswith("."):
        yield "the subject ends with a period"
    if NOT_IMPERATIVE.match(subject):
        yield f"the subject is not in the imperative: {subject.split()[0]}"
    if PROVISIONAL.match(subject):
        yield "the commit is provisional"
    if rest and not rest.startswith("\n"):
        yield "the second line is not empty"
    if not rest.strip() and lines > TRIVIAL:
        yield f"it changes {lines} lines, and no body says why"


def new_commits(root: Path, base: str) -> list[Commit] | None:
    """Return the commits since the base, newest first, merges left out; None where they are unknown."""
    if _git(root, "merge-base", "--is-ancestor", base, "HEAD") is None:
        return None
    listed = _git(root, "log", "--no-merges", "--numstat", "--format=%x00%H%x01%B%x01", f"{base}..HEAD")
    return None if listed is None else [_commit(text) for text in listed.split("\0")[1:]]


def _commit(text: str) -> Commit:
    name, message, stat = text.split("\1")
    # A binary file has dashes for its numbers.
    lines = sum(
        int(number) for line in stat.splitlines() for number in line.split("\t")[:2] if number.isdigit()
    )
    return Commit(name, message, lines)


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git prints; None if it fails."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def main(arguments: Sequence[str]) -> int:
    """Check a message that is about to be used, or all new commits; return 1 if something is wrong."""
    if arguments:
        text = Path(arguments[0]).read_text(encoding="utf-8")
        # What git shows while it is edited is not part of the message.
        kept = [line for line in text.splitlines() if not line.startswith("#")]
        if kept and kept[0].startswith("Merge "):
            return 0
        commits = [Commit("this commit", "\n".join(kept), 0)]
    else:
        found = new_commits(ROOT, BASE)
        if found is None:
            print(f"no commits are checked: {BASE[:9]} is not in the history of this checkout")
            return 0
        commits = found
    wrong = [(one, fault) for one in commits for fault in faults(one.message, one.lines)]
    for commit, fault in wrong:
        print(f"{commit.name[:11]} {commit.message.strip().partition(chr(10))[0]!r}: {fault}")
    print(f"{len(commits)} commits checked, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
