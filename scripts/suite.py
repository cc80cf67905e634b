"""All tests, in several processes side by side: `suite.py [--reports FOLDER] [--only PARTS] PYTEST...`.

Most tests wait for servers, daemons, pods and nodes: one process after the other leaves most of two cores
idle. So the tests are divided into parts, each of them one pytest with its own servers, and `LANES` parts run
at a time, in the order of `PARTS`. What a part prints is shown when it has ended. FOLDER gets the output, the
report and the exit code of each part: `tests-<part>.log`, `.xml` and `.code`. The exit code is 0 if all
passed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.again import PARTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LANES: Final = 3
# What each part runs, less what is another part's. A part that names nothing runs all the others leave.
PATHS: Final[dict[str, tuple[str, ...]]] = {
    "e2e": ("tests/e2e",),
    "failures": tuple(f"tests/e2e/test_{name}.py" for name in ("failover", "kubelet", "nodes", "protection")),
    "controllers": ("tests/integration/controllers",),
    "nodesets": ("tests/integration/controllers/nodeset",),
    "charts": ("tests/integration/charts",),
    "kube": ("tests/integration/kube",),
    "slurm": ("tests/integration/slurm", "tests/integration/objects"),
    "kubebox": ("tests/integration/kubebox",),
    "faults": ("tests/integration/faultlab",),
    "takeover": ("tests/e2e/test_takeover.py",),
    "unit": ("tests/unit",),
    "unit-clients": ("tests/unit/kube", "tests/unit/slurm", "tests/unit/webhook"),
    "rest": (),
}
# What a part has printed must be there if it is killed, and in the order in which it was printed.
UNBUFFERED: Final = {"PYTHONUNBUFFERED": "1"}
_PAUSE: Final = 0.2


def commands(pytest: Sequence[str], folder: str) -> dict[str, list[str]]:
    """Return the command of each part: together they run every test once."""
    return {part: [*pytest, *PATHS[part], *_ignored(part), *_kept(part, folder)] for part in PARTS}


def _ignored(part: str) -> list[str]:
    """Return the options that leave other parts what is theirs."""
    mine = PATHS[part] or ("tests",)
    others = (path for other, paths in PATHS.items() if other != part for path in paths)
    return [f"--ignore={path}" for path in others if any(Path(path).is_relative_to(one) for one in mine)]


def _kept(part: str, folder: str) -> list[str]:
    """Return the options that name what a part writes; parts share no file, as they run at the same time."""
    return [
        f"--junitxml={folder}/tests-{part}.xml",
        "--override-ini=junit_family=xunit1",
        f"--override-ini=cache_dir={folder}/cache-{part}",
        "--durations=25",
    ]


@dataclass(frozen=True)
class Running:
    """A part that runs, since when, and the file that gets what it prints."""

    part: str
    process: subprocess.Popen[bytes]
    output: Path
    since: float

    def show(self, result: str) -> None:
        """Print what the part has printed."""
        seconds = time.monotonic() - self.since
        print(f"==> part {self.part}: {result} after {seconds:.0f} s", flush=True)
        sys.stdout.buffer.write(self.output.read_bytes())
        sys.stdout.flush()


def start(part: str, command: Sequence[str], folder: Path) -> Running:
    """Start a part."""
    output = folder / f"tests-{part}.log"
    print(f"    part {part} begins", flush=True)
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | UNBUFFERED
        )
    return Running(part, process, output, time.monotonic())


def run(pytest: Sequence[str], reports: str | None, only: Collection[str] = PARTS) -> int:
    """Run all parts, or only some; return 0 if all passed."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(reports or scratch).absolute()
        left = [(part, command) for part, command in commands(pytest, str(folder)).items() if part in only]
        running: list[Running] = []
        codes: list[int] = []
        try:
            while left or running:
                while left and len(running) < LANES:
                    running.append(start(*left.pop(0), folder))
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    codes.append(one.process.returncode)
                    (folder / f"tests-{one.part}.code").write_text(f"{codes[-1]}\n", encoding="utf-8")
                    one.show("FAILED" if codes[-1] else "passed")
                time.sleep(_PAUSE)
        except BaseException as stopped:
            for one in running:
                # The terminal has told them of its interrupt as well. Clusters end with what started them.
                if not isinstance(stopped, KeyboardInterrupt):
                    one.process.terminate()
                one.process.wait()
                one.show("stopped")
            raise
    return next((code for code in codes if code), 0)


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reports", help="the folder for pytest's reports")
    parser.add_argument("--only", help="the parts to run, with commas between them: all by default")
    parser.add_argument("pytest", nargs=argparse.REMAINDER, help="how to call pytest")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    only = PARTS if options.only is None else options.only.split(",")
    if unknown := set(only) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    try:
        return run(options.pytest, options.reports, only)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    raise SystemExit(main())
