"""A second chance for tests that failed in a run of all, once, and said aloud: `again.py FOLDER`.

A run of all tests takes half an hour on a machine that is full of clusters, and one test that was too
impatient there would cost all of it. So CI runs what failed once more, alone: a few tests, none of them of
pure code, where nothing can be late, and none that saw a job disturbed: that must not happen even once. Tests
that pass then are named as FLAKY at the end of the run. Each of them is a defect to be fixed, of the test or
of the product.

FOLDER holds what CI keeps of one run. `tests-*`, pytest's reports of its parts and how each ended
(`suite.py`), are read; `again.xml` and `verdict.txt`, what is to be said at the end of the run, are written.
The exit code is 0 if everything passed now. To be started where the Makefile is; only the standard library is
needed.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# What suite.py divides all tests into, in the order in which it starts them: long ones first.
PARTS = (
    "rest",
    "e2e",
    "failures",
    "controllers",
    "nodesets",
    "slurm",
    "faults",
    "charts",
    "kubebox",
    "kube",
    "unit-clients",
    "unit",
    "takeover",
)
MOST = 5
PURE = "tests/unit/"
# What tests/support/job_killed.py writes into a message; a traceback may quote the name in a line of source.
NEVER = "JobKilled: "


@dataclass(frozen=True)
class Failure:
    """A test that failed, and everything its report says about why."""

    test: str
    why: str


@dataclass(frozen=True)
class Ended:
    """How a part of the tests ended: pytest's exit code, and what failed."""

    part: str
    code: int
    failed: tuple[Failure, ...]


def failures(report: str) -> tuple[Failure, ...]:
    """Return what failed according to pytest's XML report, each test once."""
    found: dict[str, str] = {}
    # Written by the pytest that ran a moment ago.
    for case in ET.fromstring(report).iter("testcase"):  # noqa: S314
        wrong = [*case.iterfind("failure"), *case.iterfind("error")]
        if wrong:
            # What fails while it is collected has no name of its own, only that of its module.
            where, name = case.get("file", ""), case.get("name", "")
            test = f"{where}::{name}" if where else name
            said = "\n".join(f"{one.get('message', '')}\n{one.text or ''}" for one in wrong)
            found[test] = found.get(test, "") + said
    return tuple(Failure(test, why) for test, why in found.items())


def unclear(part: Ended) -> str:
    """Return why the result of a part is unknown; nothing if what failed explains how it ended."""
    if part.code == int(bool(part.failed)):
        return ""
    return f"pytest ended the part {part.part!r} with code {part.code} and {len(part.failed)} failed tests"


def objection(failed: Sequence[Failure]) -> str:
    """Say why these tests get no second chance; nothing if they get one."""
    if not failed:
        return "no test failed, so something else did"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed, which is more than {MOST}"
    for one in failed:
        if NEVER in one.why:
            return f"a job was disturbed in {one.test}, which must not happen even once"
        if one.test.startswith(PURE):
            return f"{one.test} is pure code, which fails again"
        if not one.test.startswith("tests/"):
            return f"{one.test} was not even begun"
    return ""


def verdict(first: Sequence[Failure], again: Iterable[str] | None) -> tuple[str, ...]:
    """Return the lines that tell both results; `again` has the tests that failed twice, None all of them."""
    twice = {one.test for one in first} if again is None else {*again}
    return tuple(
        f"FAILED TWICE: {one.test} failed, and failed again alone"
        if one.test in twice
        else f"FLAKY: {one.test} failed once, passed alone; fix it"
        for one in first
    )


def run_again(failed: Sequence[Failure], report: Path) -> Iterable[str] | None:
    """Run these tests the way all are run; return those that failed again, None if that cannot be told."""
    arguments = shlex.join([f"--junitxml={report}", "--override-ini=junit_family=xunit1"])
    tests = shlex.join(one.test for one in failed)
    # make takes a dollar for one of its own variables.
    command = ["make", "test", f"PYTEST_ARGS={arguments} {tests}".replace("$", "$$")]
    code = subprocess.run(command, check=False).returncode
    try:
        once_more = failures(report.read_text(encoding="utf-8"))
    except (OSError, ET.ParseError):
        return None
    # A run that failed without a failed test did not run them.
    return None if code and not once_more else [one.test for one in once_more]


def _ended(folder: Path, part: str) -> Ended:
    code = int((folder / f"tests-{part}.code").read_text(encoding="utf-8"))
    return Ended(part, code, failures((folder / f"tests-{part}.xml").read_text(encoding="utf-8")))


def main(folder: Path) -> int:
    """Run again what failed, if it may be, and leave the verdict in the folder."""
    failed: tuple[Failure, ...] = ()
    try:
        parts = [_ended(folder, part) for part in PARTS]
    except (OSError, ValueError, ET.ParseError) as error:
        refused = f"a part of the tests ended without its report: {error}"
    else:
        failed = tuple(one for part in parts for one in part.failed)
        refused = next(filter(None, map(unclear, parts)), "") or objection(failed)
    lines: tuple[str, ...] = (f"NO SECOND CHANCE: {refused}",)
    passed = False
    if not refused:
        print(f"==> once more, alone: {len(failed)} tests that failed", flush=True)
        twice = run_again(failed, folder / "again.xml")
        lines, passed = verdict(failed, twice), twice is not None and not [*twice]
    print("\n".join(lines), flush=True)
    (folder / "verdict.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
