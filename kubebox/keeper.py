"""The loop of the process that owns a box, whatever runs in it.

    caller ──stdin: what to run──▶ keeper ──▶ components   (the kernel ends them with it)
           ◀─stdout: progress────
           ──control.sock: stop, start, pause, resume, status, down──▶

Why a process of its own: a test process may be killed at any moment and cannot clean up then. The keeper
watches the process it was started for and takes the box down when that is gone; if the keeper itself is
killed, the kernel ends what it started. Nothing has to work for a box to end, which is the point.

It has one thread on purpose: the kernel sends the death signal when the *thread* that started the child
ends, and a single loop needs no locks. While it waits for a component it serves nobody else, but keeps
watching its owner.

A kind of box is a subclass: it brings its components up, says how one is started and how one is seen ready.
"""

from __future__ import annotations

import abc
import contextlib
import http.client
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kubebox.errors import BoxError, KubeboxError
from kubebox.procs import ProcessId, frozen, tail
from kubebox.state import Layout, Record, discard

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path
    from types import FrameType

TICK = 0.1
# An API server with open watches takes up to a minute to say goodbye, and no test wants to wait for that.
_GRACE_SECONDS = 5.0
_KILL_SECONDS = 30.0
_CLIENT_SECONDS = 5.0

Report = Callable[[Mapping[str, Any]], None]
Action = Callable[[Mapping[str, Any]], None]


class _Finish(Exception):  # noqa: N818 - a way out, not an error
    """The box is to be taken down."""


class Runnable(Protocol):
    """What the keeper has to know of a component."""

    @property
    def name(self) -> str:
        """The component's name, unique in its box."""

    @property
    def port(self) -> int | None:
        """The port it listens on."""


C = TypeVar("C", bound=Runnable)


class Keeper(abc.ABC, Generic[C]):
    """Own one box: start its components, answer its owner, and end everything with itself."""

    def __init__(self, folder: Path, owner: ProcessId | None, patience: float, report: Report) -> None:
        self.layout = Layout(folder)
        self.owner = owner
        self.created = time.time()
        self.components: dict[str, C] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.pids: dict[str, ProcessId] = {}
        self.ready = False
        self._patience = patience
        self._report = report
        self._told_to_end = False
        self._socket: socket.socket

    # ------------------------------------------------------------------------------- what a kind of box adds

    @abc.abstractmethod
    def bring_up(self) -> None:
        """Start everything the box was asked to have, and return when it is ready."""

    @abc.abstractmethod
    def launch(self, component: C) -> subprocess.Popen[bytes]:
        """Start the process of a component."""

    @abc.abstractmethod
    def healthy(self, component: C) -> bool | None:
        """Say whether a component is at work, None where it cannot be asked."""

    @abc.abstractmethod
    def describe(self, supervisor: ProcessId) -> Record:
        """Return what the box says about itself on disk."""

    def ended(self, name: str) -> None:
        """Clear away what a component that was ended leaves; by default nothing does."""

    def actions(self) -> dict[str, Action]:
        """Return further requests that this kind of box serves, by name."""
        return {}

    def release(self) -> None:
        """Give back what is neither a component nor a file in the folder, before the folder goes."""

    # --------------------------------------------------------------------------------------------- its life

    def run(self) -> None:
        """Bring the box up, serve until told to end, and leave nothing behind."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        asked: socket.socket | None = None
        try:
            self.bring_up()
            self.ready = True
            self.record()
            self._report({"ready": True})
            asked = self._serve()
        except _Finish:
            pass
        except KubeboxError as error:
            self._report({"error": str(error)})
        except Exception as error:  # noqa: BLE001 - the caller is told, whatever it was
            self._report({"error": f"{type(error).__name__} in the supervisor: {error}"})
        finally:
            self._tear_down()
            if asked is not None:
                _answer(asked, {"ok": True})

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # Only a note: an exception from here could strike in the middle of the tear-down.
        self._told_to_end = True

    def check_owner(self) -> None:
        """Leave the loop when the box is to end."""
        abandoned = self.owner is not None and not self.owner.alive()
        # Without its folder nobody could find the box any more to take it down.
        if self._told_to_end or abandoned or not self.layout.lock.exists():
            raise _Finish

    def _tear_down(self) -> None:
        # No farewell: nothing in the box is kept, and a graceful end of an API server takes seconds.
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
        self.release()
        discard(self.layout.folder)

    def step(self, text: str) -> None:
        """Tell the caller how far the box has come."""
        self._report({"step": text})

    def record(self) -> None:
        """Write down what the box is now."""
        supervisor = ProcessId.of(os.getpid())
        if supervisor is None:
            raise BoxError("/proc does not show this process: kubebox needs a mounted /proc")
        self.describe(supervisor).write(self.layout.record)

    # --------------------------------------------------------------------------------------------- components

    def run_all(self, started: Collection[C]) -> None:
        """Start components together and wait until each is ready."""
        for component in started:
            self.spawn(component)
        for component in started:
            self.await_ready(component, self.children)

    def spawn(self, component: C) -> None:
        """Start a component and remember its process."""
        child = self.launch(component)
        self.components[component.name] = component
        self.children[component.name] = child
        if (identity := ProcessId.of(child.pid)) is not None:
            self.pids[component.name] = identity
        self.record()

    def await_ready(self, component: C, watched: Collection[str]) -> None:
        """Wait until a component is at work; one that cannot be asked is taken to be."""
        self.until(lambda: self.healthy(component) is not False, component.name, watched)

    def until(self, condition: Callable[[], bool], what: str, watched: Collection[str]) -> None:
        """Wait for a condition; the deadline or the death of a watched component is an error with its log."""
        deadline = time.monotonic() + self._patience
        while True:
            self.check_owner()
            with contextlib.suppress(OSError, http.client.HTTPException):
                if condition():
                    return
            for name in watched:
                if (code := self.children[name].poll()) is not None:
                    raise BoxError(f"{name} ended with {_exit_text(code)}; {self._log_text(name)}")
            if time.monotonic() > deadline:
                logs = "\n".join(self._log_text(name) for name in watched)
                raise BoxError(f"{what} not ready after {self._patience:g} s; {logs}")
            time.sleep(TICK)

    def _log_text(self, name: str) -> str:
        return f"last lines of {self.layout.log(name)}:\n{tail(self.layout.log(name))}"

    # ------------------------------------------------------------------------------------------------ serving

    def listen(self) -> None:
        """Open the control socket."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(self.layout.socket))
        except OSError as error:
            raise BoxError(
                f"cannot make the control socket {self.layout.socket} ({error}): "
                "set KUBEBOX_STATE_HOME to a folder with a shorter path"
            ) from error
        self._socket.listen()
        self._socket.settimeout(TICK)

    def _serve(self) -> socket.socket:
        """Answer requests until one asks for the end; that one's connection is returned, still unanswered."""
        while True:
            self.check_owner()
            for name in [name for name in self.pids if self.children[name].poll() is not None]:
                self._forget(name)
            try:
                client, _ = self._socket.accept()
            except TimeoutError:
                continue
            request = _read_request(client)
            if request.get("do") == "down":
                return client
            _answer(client, self._handle(request))

    def _handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        on_component: dict[str, Callable[[str], None]] = {
            "start": self._start,
            "stop": self.stop,
            "kill": self.kill,
            "pause": self._pause,
            "resume": lambda name: self._signal(name, signal.SIGCONT),
        }
        action, name = request.get("do"), str(request.get("component"))
        try:
            if action == "status":
                return {"ok": True, "components": self._status()}
            if action in (further := self.actions()):
                further[action](request)
            elif action not in on_component:
                raise BoxError(f"the supervisor knows no action {action!r}")
            else:
                self.known(name)
                on_component[action](name)
        except (KubeboxError, OSError) as error:
            return {"ok": False, "error": str(error)}
        return {"ok": True}

    def known(self, name: str) -> C:
        """Return a component of the box, or say what there is."""
        if name not in self.components:
            raise BoxError(f"box {self.layout.name} has no {name!r}: it has {', '.join(self.components)}")
        return self.components[name]

    def _status(self) -> dict[str, Any]:
        found = {}
        for name, component in self.components.items():
            code = self.children[name].poll()
            if code is not None:
                health = f"ended with {_exit_text(code)}"
            else:
                health = {None: "running", True: "healthy", False: "running, not ready"}[
                    self.healthy(component)
                ]
            found[name] = {"pid": self.children[name].pid, "health": health, "port": component.port}
        return found

    def _start(self, name: str) -> None:
        if self.children[name].poll() is None:
            raise BoxError(f"{name} runs already")
        self.spawn(self.components[name])
        self.await_ready(self.components[name], [name])

    def stop(self, name: str) -> None:
        """Ask a component to end, and insist after a few seconds."""
        # A paused process would keep the request to end pending for ever.
        self._signal(name, signal.SIGTERM)
        self._signal(name, signal.SIGCONT)
        if self._has_ended(name, _GRACE_SECONDS):
            self._forget(name)
        else:
            self.kill(name)

    def kill(self, name: str) -> None:
        """End a component at once."""
        self._signal(name, signal.SIGKILL)
        if not self._has_ended(name, _KILL_SECONDS):
            raise BoxError(f"{name} does not end, even after SIGKILL")
        self._forget(name)

    def _pause(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)
        # The signal reaches a program's threads one by one: a busy one may still answer after it was sent.
        self.until(lambda: frozen(self.children[name].pid), f"pause of {name}", [name])

    def _signal(self, name: str, number: signal.Signals) -> None:
        # Our own child: its pid cannot be reused before we have reaped it.
        self.children[name].send_signal(number)

    def _has_ended(self, name: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.children[name].poll() is None:
            self.check_owner()
            if time.monotonic() > deadline:
                return False
            time.sleep(TICK / 10)
        return True

    def _forget(self, name: str) -> None:
        self.pids.pop(name, None)
        self.ended(name)
        self.record()


def _exit_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _read_request(client: socket.socket) -> dict[str, Any]:
    """Return what a client asks for, empty when it makes no sense."""
    client.settimeout(_CLIENT_SECONDS)
    try:
        with client.makefile("rb") as stream:
            request = json.loads(stream.readline())
    except (OSError, ValueError):
        return {}
    return request if isinstance(request, dict) else {}


def _answer(client: socket.socket, reply: Mapping[str, Any]) -> None:
    with client, contextlib.suppress(OSError):
        client.sendall(json.dumps(reply).encode() + b"\n")


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def report(message: Mapping[str, Any]) -> None:
    """Tell the caller something on standard output."""
    # A caller that has gone away reads nothing; the owner check takes care of it.
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
