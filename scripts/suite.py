"""All tests, in two processes side by side: `suite.py [--reports FOLDER] PYTEST...`.

Most tests with daemons, pods and nodes wait for them: one process after the other leaves half of two cores
idle. So those run beside the rest. What the rest prints is seen while it happens, what the others print when
both are done. FOLDER gets the report and the exit code of each, `tests-<part>.xml` and `tests-<part>.code`.
The exit code is 0 if both passed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.again import PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

WAITING = ("tests/e2e", "tests/integration/controllers/nodeset", "tests/integration/kubebox")
# What one part has printed must be there if it is killed, and in the order in which it was printed.
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}


def commands(pytest: Sequence[str], reports: str | None) -> dict[str, list[str]]:
    """Return the command of each part: together they run every test once."""
    chosen = {
        "rest": [f"--ignore={folder}" for folder in WAITING],
        "waiting": [*WAITING],
    }
    return {part: [*pytest, *chosen[part], *_report(part, reports)] for part in PARTS}


def _report(part: str, reports: str | None) -> list[str]:
    if reports is None:
        return []
    return [f"--junitxml={reports}/tests-{part}.xml", "--override-ini=junit_family=xunit1", "--durations=25"]


def run(pytest: Sequence[str], reports: str | None) -> int:
    """Run both parts; return 0 if both passed."""
    both = commands(pytest, reports)
    environment = os.environ | UNBUFFERED
    with tempfile.TemporaryFile() as output:
        print(f"    beside, shown at the end: {' '.join(WAITING)}", flush=True)
        waiting = subprocess.Popen(both["waiting"], stdout=output, stderr=subprocess.STDOUT, env=environment)
        rest = subprocess.Popen(both["rest"], env=environment)
        try:
            codes = [rest.wait(), waiting.wait()]
        except KeyboardInterrupt:
            # The terminal has told them as well, and they take their clusters down.
            codes = [rest.wait(), waiting.wait()]
        except SystemExit:
            # Clusters end with whoever started them.
            for process in (rest, waiting):
                process.terminate()
                process.wait()
            raise
        if reports is not None:
            for part, code in zip(PARTS, codes, strict=True):
                Path(reports, f"tests-{part}.code").write_text(f"{code}\n", encoding="utf-8")
        output.seek(0)
        print("==> what ran beside", flush=True)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return next((code for code in codes if code), 0)


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reports", help="the folder for pytest's reports")
    parser.add_argument("pytest", nargs=argparse.REMAINDER, help="how to call pytest")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return run(options.pytest, options.reports)


if __name__ == "__main__":
    raise SystemExit(main())
