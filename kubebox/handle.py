"""A running box as its caller holds it: how it is started, asked, broken and ended.

The handle starts nothing itself: it hands an order to a supervisor (see keeper.py), reads its progress, and
later asks it over the control socket. All methods may be called from any thread; they block.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import kubebox
from kubebox import state
from kubebox.errors import BoxError
from kubebox.procs import ProcessId, python_module, tail
from kubebox.state import Layout, Record

if TYPE_CHECKING:
    from types import TracebackType

Progress = Callable[[str], None]
CONTROL_SECONDS = 60.0
_STATUS_SECONDS = 20.0
_DOWN_SECONDS = 30.0


def silent(_line: str) -> None:
    """Tell nobody."""


class Handle:
    """What every kind of box can do."""

    def __init__(
        self, layout: Layout, patience: float, supervisor: subprocess.Popen[str] | None = None
    ) -> None:
        self._layout = layout
        self._patience = patience + CONTROL_SECONDS
        self._supervisor = supervisor
        self.name = layout.name
        self.state: Path = layout.folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def record(self) -> Record:
        """Return what the box says about itself on disk."""
        return Record.read(self._layout.record)

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the running components, by name."""
        return {name: process.pid for name, process in self.record().processes.items()}

    @property
    def supervisor_pid(self) -> int:
        """The pid of the process that owns all others of the box."""
        return self.record().supervisor.pid

    def log(self, component: str) -> str:
        """Return the whole log of one component."""
        with self.present():
            return self._layout.log(component).read_text(encoding="utf-8", errors="replace")

    @contextlib.contextmanager
    def present(self) -> Iterator[None]:
        """Say of a file of ours that cannot be used which box it is missing from."""
        try:
            yield
        except OSError as error:
            raise BoxError(
                f"box {self.name}: {error.strerror}: {error.filename} (of a box that is down nothing is left)"
            ) from error

    def stop(self, component: str, *, kill: bool = False) -> None:
        """End a component and wait until it is gone: SIGTERM and five seconds to obey, or SIGKILL."""
        self.ask("kill" if kill else "stop", component=component)

    def start(self, component: str) -> None:
        """Start a component that ended, on the same port and data, and wait until it is ready."""
        self.ask("start", component=component)

    def restart(self, component: str, *, kill: bool = False) -> None:
        """Stop a component and start it again."""
        self.stop(component, kill=kill)
        self.start(component)

    def pause(self, component: str) -> None:
        """Freeze a component: its connections stay open and nothing answers."""
        self.ask("pause", component=component)

    def resume(self, component: str) -> None:
        """Let a frozen component go on."""
        self.ask("resume", component=component)

    def status(self) -> dict[str, dict[str, Any]]:
        """Return pid, port and health of each component."""
        components: dict[str, dict[str, Any]] = self.ask("status", timeout=_STATUS_SECONDS)["components"]
        return components

    def down(self) -> None:
        """End every process of the box and remove its folder; harmless when that has happened already."""
        with contextlib.suppress(BoxError):
            supervisor = self.record().supervisor
            try:
                self.ask("down", timeout=_DOWN_SECONDS)
            except BoxError:
                # Hung or gone: its children die with it, and the sweep below takes care of the rest.
                supervisor.signal(signal.SIGKILL)
            _await_end(supervisor)
        if self._supervisor is not None:
            self._supervisor.wait()
        if self._layout.folder.exists():
            state.sweep(self._layout.folder.parent)

    def ask(self, action: str, *, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request to the supervisor and return its answer; BoxError carries its complaint."""
        request = json.dumps({"do": action, **fields}).encode() + b"\n"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(timeout or self._patience)
            try:
                control.connect(str(self._layout.socket))
                control.sendall(request)
                with control.makefile("rb") as stream:
                    line = stream.readline()
            except OSError as error:
                raise BoxError(f"the supervisor of box {self.name} does not answer: {error}") from error
        if not line:
            raise BoxError(f"the supervisor of box {self.name} ended without an answer")
        reply: dict[str, Any] = json.loads(line)
        if not reply["ok"]:
            raise BoxError(reply["error"])
        return reply


def launch(
    module: str, root: Path, name: str | None, order: Callable[[Path], str], progress: Progress
) -> tuple[Layout, subprocess.Popen[str]]:
    """Claim a folder under `root`, run a supervisor on it, and return when it says that the box is ready.

    `order` is given the folder and returns the supervisor's standard input.
    """
    layout, lock = state.claim(root, name)
    try:
        supervisor = _start(module, layout.folder, order(layout.folder), lock)
    finally:
        os.close(lock)
    try:
        _follow(supervisor, layout, progress)
    except BaseException:
        supervisor.terminate()
        supervisor.wait()
        raise
    finally:
        if supervisor.stdout is not None:
            supervisor.stdout.close()
    return layout, supervisor


def _start(module: str, folder: Path, order: str, lock: int) -> subprocess.Popen[str]:
    """Start the supervisor, hand it the lock on its folder and tell it what to do."""
    package_parent = str(Path(kubebox.__file__).resolve().parents[1])
    search_path = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")]))
    with (folder / "supervisor.log").open("ab") as log:
        supervisor = subprocess.Popen(
            python_module(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            pass_fds=(lock,),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": search_path},
            # Ctrl-C in the terminal is for the caller; it decides what becomes of the box.
            start_new_session=True,
        )
    if supervisor.stdin is None:
        raise BoxError("the supervisor has no standard input")
    with contextlib.suppress(BrokenPipeError), supervisor.stdin as stream:
        stream.write(order)
    return supervisor


def _follow(supervisor: subprocess.Popen[str], layout: Layout, progress: Progress) -> None:
    """Pass on the supervisor's progress until the box is ready."""
    for line in supervisor.stdout or ():
        message: Mapping[str, Any] = json.loads(line)
        if "error" in message:
            raise BoxError(f"box {layout.name}: {message['error']}")
        if message.get("ready"):
            return
        progress(message["step"])
    raise BoxError(
        f"the supervisor of box {layout.name} ended early: {tail(layout.folder / 'supervisor.log')}"
    )


def _await_end(process: ProcessId) -> None:
    deadline = time.monotonic() + _DOWN_SECONDS
    while process.alive():
        if time.monotonic() > deadline:
            raise BoxError(f"process {process.pid} does not end, even after SIGKILL")
        time.sleep(0.01)
