from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubebox.state import claim, state_root

ROOT = Path(__file__).resolve().parents[3]


def kubebox(home: Path, *arguments: str, **variables: Path) -> subprocess.CompletedProcess[str]:
    places = {"KUBEBOX_STATE_HOME": home, "XDG_CACHE_HOME": home / "cache", **variables}
    return subprocess.run(
        [sys.executable, "-m", "kubebox", *arguments],
        cwd=ROOT,
        env={**os.environ, **{name: str(path) for name, path in places.items()}},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required: COMMAND"),
        (["sideways"], "invalid choice"),
        (["up", "--fake-nodes", "many"], "--fake-nodes: invalid int"),
        (["up", "--fake-nodes", "-1"], "fake_nodes: -1 is not between"),
        (["up", "Bad Name"], "name: 'Bad Name' is no box name"),
        (["up", "--apiserver-arg=v"], "apiserver_args: 'v' is no flag"),
        (["env", "../x"], "name: '../x' is no box name"),
    ],
)
def test_wrong_arguments_are_explained(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    """A wrong argument gives one sentence on standard error and exit status 2, and starts nothing."""
    result = kubebox(tmp_path, *arguments)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_environment_of_a_missing_box_is_an_error(tmp_path: Path) -> None:
    """`eval "$(kubebox env)"` without a box changes nothing: the sentence goes to standard error."""
    result = kubebox(tmp_path, "env", "nobody")
    assert (result.returncode, result.stdout) == (1, "")
    assert "no box 'nobody' is up" in result.stderr


@pytest.mark.parametrize("arguments", [["status"], ["down"], ["down", "--all"]])
def test_nothing_to_do_is_no_error(tmp_path: Path, arguments: list[str]) -> None:
    """Looking at and taking down what is not there succeeds and says so."""
    result = kubebox(tmp_path, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert "is up" in result.stdout


def test_down_goes_on_after_a_box_it_cannot_end(tmp_path: Path) -> None:
    """`down --all` asks every box, names each that is still up, and says so with its exit status."""
    root = state_root({"KUBEBOX_STATE_HOME": str(tmp_path)})
    locks = [claim(root, name)[1] for name in ("one", "two")]
    result = kubebox(tmp_path, "down", "--all")
    assert result.returncode == 1
    for name in ("one", "two"):
        assert f"box {name} is still up" in result.stderr
    assert result.stderr.count("\n") == 1
    for lock in locks:
        os.close(lock)


def test_missing_program_is_one_sentence(tmp_path: Path) -> None:
    """A box whose programs are missing is refused with what to do, before anything is left on disk."""
    result = kubebox(tmp_path, "up", KUBEBUILDER_ASSETS=tmp_path / "none")
    assert result.returncode == 1
    assert result.stderr.startswith("kubebox: etcd is in none of the folders")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "variable", "complaint"),
    [
        (["up"], "XDG_CACHE_HOME", "kubebox: cannot write to the cache"),
        (["build"], "XDG_CACHE_HOME", "kubebox: cannot write to the cache"),
        (["status"], "KUBEBOX_STATE_HOME", "kubebox: cannot make the folder"),
        (["down", "--all"], "KUBEBOX_STATE_HOME", "kubebox: cannot make the folder"),
    ],
)
def test_unusable_place_is_one_sentence(
    tmp_path: Path, arguments: list[str], variable: str, complaint: str
) -> None:
    """A variable that points at something other than a folder is named, without a traceback."""
    file = tmp_path / "file"
    file.touch()
    result = kubebox(tmp_path, *arguments, **{variable: file})
    assert result.returncode == 1
    assert result.stderr.startswith(complaint)
    assert variable in result.stderr
    assert result.stderr.count("\n") == 1
