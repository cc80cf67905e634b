"""What `make` would do, without doing it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILDS = ("-m kubebox build", "-m kubebox slurm build", "scripts/images.py")


def dry(*arguments: str) -> str:
    """Return the commands that make would run."""
    # Where make has started these tests it would speak to that make.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    command = ["make", "--dry-run", "--directory", str(ROOT), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


@pytest.mark.parametrize(
    "arguments",
    ["tests/unit", "tests/unit/test_cli.py -k help", "tests/integration/api tests/unit/api"],
)
def test_tests_without_servers_build_nothing(arguments: str) -> None:
    """Unit tests build neither Kubernetes nor Slurm nor images, and run no tests of charts."""
    said = dry("test", f"PYTEST_ARGS={arguments}")
    assert "-m pytest -o" in said
    assert arguments in said
    assert not [build for build in (*BUILDS, "charts.py") if build in said]


@pytest.mark.parametrize("arguments", ["", "-k drain", "tests/e2e", "tests/unit tests/integration/kubebox"])
def test_other_tests_build_all(arguments: str) -> None:
    """Whatever may need servers has all of them built first."""
    said = dry("test", f"PYTEST_ARGS={arguments}")
    assert all(build in said for build in BUILDS)
    assert ("charts.py test" in said) == ("scripts/suite.py" in said) == (not arguments)
