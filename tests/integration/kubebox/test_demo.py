"""`make demo`, as far as a person cannot see it in its output: what it leaves behind.

With fake nodes; what it shows on real ones is what tests/e2e install, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Processes = Callable[[Path], list[str]]
    Demo = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.usefixtures("kube_programs")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def demo(state_home: Path) -> Iterator[Demo]:
    """Run the demo beside one that a person may have on this machine."""

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "demo.py"), *arguments],
            cwd=ROOT,
            env={**os.environ, "KUBEBOX_STATE_HOME": str(state_home), "PYTHONPATH": "src:."},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    yield start
    with start("--down") as last:
        last.communicate()


def test_kept_demo_runs_until_it_is_taken_down(demo: Demo, state_home: Path, processes_in: Processes) -> None:
    """After --keep the cluster and the operator in it run; --down ends both and leaves nothing."""
    with demo("--keep", "--fake") as shown:
        said, _ = shown.communicate()
    assert shown.returncode == 0, said
    assert "nodeset.slinky.slurm.net/worker" in said
    assert "make demo-down" in said
    assert [line for line in processes_in(state_home) if "slurm_operator" in line]
    with demo("--down") as removed:
        said, _ = removed.communicate()
    assert removed.returncode == 0, said
    assert processes_in(state_home) == []
    assert not (state_home / f"kubebox-{os.getuid()}" / "demo").exists()
    with demo("--down") as nothing:
        assert nothing.communicate()[0] == "no demo is running\n"
    assert nothing.returncode == 0


def test_ended_demo_leaves_nothing(demo: Demo, state_home: Path, processes_in: Processes) -> None:
    """A demo that is told to end in the middle takes everything down first."""
    with demo("--fake") as shown:
        assert shown.stdout is not None
        for line in shown.stdout:
            if line.startswith("==> starting the operator"):
                break
        else:
            pytest.fail("the demo ended before it started the operator")
        shown.send_signal(signal.SIGTERM)
        said, _ = shown.communicate()
    assert shown.returncode == 128 + signal.SIGTERM, said
    assert processes_in(state_home) == []


def test_cluster_of_somebody_needs_an_image(demo: Demo, tmp_path: Path) -> None:
    """On a cluster that is not ours nothing is installed before the demo knows an image that it can pull."""
    for path, complaint in (
        (tmp_path / "none", "there is no such file"),
        (tmp_path / "some", "OPERATOR_IMAGE="),
    ):
        (tmp_path / "some").touch()
        with demo("--kubeconfig", str(path)) as refused:
            said, _ = refused.communicate()
        assert refused.returncode == 1
        assert complaint in said
