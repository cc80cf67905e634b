from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubebox import ToolError, build, toolchain
from kubebox.cache import content_key
from kubebox.toolchain import parse_go_version, required_go

ROOT = Path(__file__).resolve().parents[3]
# Answers like a Go of a platform `this`; what it builds is a note of the platform that it built for.
GO = """#!/bin/sh
case "$*" in
"env GOVERSION") echo go1.99 ;;
"env GOHOSTOS GOHOSTARCH") printf 'linux\\nthis\\n' ;;
*) shift $(($# - 2)); echo "$GOOS $GOARCH" > "$1" ;;
esac
"""


ON_PATH = "print(*toolchain._go_on_path(build.KWOK.folder, (1, 26)), sep='|')"
FIND = "print(toolchain.find_go(build.KWOK.folder, Path(sys.argv[1]), print))"
COMPILE = "build.KWOK.compile(Path(sys.argv[1]), Path('/nowhere'), print)"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def python(script: str, argument: Path, *, path: Path, **variables: str) -> str:
    """Run a line of Python whose PATH begins with a folder of ours, and return what it prints."""
    script = f"import sys; from pathlib import Path; from kubebox import build, toolchain; {script}"
    result = subprocess.run(
        [sys.executable, "-c", script, str(argument)],
        cwd=ROOT,
        env={**os.environ, **variables, "PATH": f"{path}:{os.defpath}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go1.26.6", (1, 26, 6)),
        ("1.26.0", (1, 26, 0)),
        ("go1.27rc1", (1, 27)),
        ("devel +abc", None),
        ("", None),
    ],
)
def test_go_version_is_read(text: str, version: tuple[int, ...] | None) -> None:
    """Go's own spelling and go.mod's are both understood; a development build has no number."""
    assert parse_go_version(text) == version


@pytest.mark.parametrize("program", [build.HYPERKUBE, build.KWOK], ids=lambda program: program.name)
def test_committed_modules_name_their_go(program: build.GoProgram) -> None:
    """The Go that each module folder needs is the one its go.mod states."""
    assert required_go(program.folder) >= (1, 26)


def test_module_without_go_version_is_named(tmp_path: Path) -> None:
    """A go.mod that names no version is an error with its path."""
    (tmp_path / "go.mod").write_text("module x\n")
    with pytest.raises(ToolError, match=str(tmp_path)):
        required_go(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/sh\necho no such GOROOT >&2\nexit 2\n", "no such GOROOT"),
        ("no program at all\n", "Exec format error"),
        ("#!/nowhere/go\n", "No such file"),
        ("#!/bin/sh\nexit 3\n", "exit code 3"),
        ("#!/bin/sh\necho go1.2\n", "is go1.2"),
        ("#!/bin/sh\necho\n", "is of no known version"),
    ],
    ids=["complains", "no-program", "no-interpreter", "silent", "old", "nameless"],
)
def test_go_that_does_not_work_is_replaced(tmp_path: Path, text: str, reason: str) -> None:
    """A broken, old or odd Go on PATH is passed over for the one from PyPI, and the reason is told."""
    broken = program(tmp_path / "bin" / "go", text)
    found, lack = python(ON_PATH, tmp_path, path=broken.parent).split("|")
    assert found == "None"
    assert lack.startswith(f" ({broken} ")
    assert reason in lack
    requirements = Path(toolchain.__file__).parent / "requirements-go.txt"
    fetched = tmp_path / f"go-{content_key([requirements.read_bytes()])}" / "go" / "bin" / "go"
    program(fetched, GO)
    assert python(FIND, tmp_path, path=broken.parent) == f"{fetched}\n"


def test_go_on_path_that_works_is_used(tmp_path: Path) -> None:
    """A Go that is new enough is taken from PATH, and nothing is fetched."""
    go = program(tmp_path / "go", GO)
    assert python(FIND, Path("/nowhere"), path=tmp_path) == f"{go}\n"


def test_builds_are_for_this_machine(tmp_path: Path) -> None:
    """The platform that the user builds for by default does not reach what is run here."""
    program(tmp_path / "go", GO)
    python(COMPILE, tmp_path / "made", path=tmp_path, GOOS="windows", GOARCH="arm64")
    assert (tmp_path / "made").read_text() == "linux this\n"
