"""The command line, as a person uses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubebox.state import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Eventually = Callable[[Callable[[], bool], str], None]
    Processes = Callable[[Path], list[str]]
    Command = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.usefixtures("kube_programs")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def command(state_home: Path) -> Iterator[Command]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kubebox", *arguments],
            cwd=ROOT,
            env={**os.environ, "KUBEBOX_STATE_HOME": str(state_home)},
            capture_output=True,
            text=True,
            check=False,
        )

    yield run
    run("down", "--all")


def test_detached_box_lives_until_down(command: Command, state_home: Path, processes_in: Processes) -> None:
    """`up` returns and the box stays; `env` and `status` find it; `down` ends it and leaves nothing."""
    up = command("up", "--fake-nodes", "2")
    assert (up.returncode, up.stderr) == (0, "")
    assert "box default is up" in up.stdout

    again = command("up")
    assert again.returncode == 1
    assert "is up already" in again.stderr

    script = f'eval "{command("env").stdout}"; kubectl get nodes -o name; helm version --short; helm ls'
    shell = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True)
    assert shell.stdout.startswith("node/fake-0\nnode/fake-1\nv3.")

    status = command("status").stdout
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert [line for line in status.splitlines() if name in line and line.endswith("healthy")], status
    assert "kwok" in status
    assert "detached" in status

    down = command("down")
    assert (down.returncode, down.stdout) == (0, "box default is down\n")
    assert processes_in(state_home) == []
    assert command("status").stdout == "no box is up\n"


def test_status_cleans_up_after_a_crash(
    command: Command, state_home: Path, eventually: Eventually, processes_in: Processes
) -> None:
    """A box whose supervisor was killed is recognised, named and removed by the next `status`."""
    assert command("up", "lost", "--no-scheduler", "--no-controller-manager").returncode == 0
    folder = state_home / f"kubebox-{os.getuid()}" / "lost"
    os.kill(Record.read(folder / "box.json").supervisor.pid, signal.SIGKILL)
    eventually(lambda: processes_in(folder) == [], "the components have died with the supervisor")
    status = command("status")
    assert "removed what was left of box lost" in status.stdout
    assert not folder.exists()


def run_tests(folder: Path, text: str, assets: Path) -> str:
    """Run pytest on a file of tests, with programs that the user brings, and return what it says."""
    tests = folder / "test_sample.py"
    tests.write_text(text)
    plugins = ("-p", "kubebox.pytest_plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, str(tests)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KUBEBUILDER_ASSETS": str(assets)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_missing_programs_fail_only_the_tests_that_need_them(tmp_path: Path) -> None:
    """Without programs a test that wants a box fails with the reason, and the others pass."""
    said = run_tests(tmp_path, "def test_box(kube_box): pass\ndef test_plain(): pass\n", tmp_path)
    assert "1 passed, 1 error" in said
    assert "kubebox: etcd is in none of the folders" in said
    assert "Traceback" not in said


def test_programs_of_envtest_suffice(tmp_path: Path, kube_programs: dict[str, Path]) -> None:
    """Of programs that the user brings those that are there are taken, by `build` and by the fixture."""
    given = ("etcd", "kube-apiserver", "kubectl")
    for name in given:
        (tmp_path / name).symlink_to(kube_programs[name])
    environ = {**os.environ, "KUBEBUILDER_ASSETS": str(tmp_path)}
    build = [sys.executable, "-m", "kubebox", "build"]
    built = subprocess.run(build, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    ours = ["kwok", "kwok-stages", "helm", "helm-unittest"]
    assert [line.split()[0] for line in built.stdout.splitlines()] == [*given, *ours]
    text = "def test_programs(kube_programs): assert 'kube-scheduler' not in kube_programs\n"
    assert "1 passed" in run_tests(tmp_path, text, tmp_path)
