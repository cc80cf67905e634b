"""The one process that owns a box: starts its components, answers its owner, and ends everything with itself.

    caller ──stdin: what to run──▶ supervisor ──▶ etcd, kube-apiserver, …   (die with it: PR_SET_PDEATHSIG)
           ◀─stdout: progress────
           ──control.sock: stop, start, pause, resume, status, down──▶

Why a process of its own: a test process may be killed at any moment and cannot clean up then. The supervisor
watches the process it was started for and takes the box down when that is gone; if the supervisor itself is
killed, the kernel kills its children. Nothing has to work for a box to end, which is the point.

It has one thread on purpose: the kernel sends the death signal when the *thread* that started the child
ends, and a single loop needs no locks. While it waits for a component it serves nobody else, but keeps
watching its owner.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from kubebox import components, pki
from kubebox.api import Api, admin_context, answers
from kubebox.components import Component, Plan
from kubebox.errors import BoxError, KubeboxError
from kubebox.launch import Launch
from kubebox.nodes import NodeProvider, node_providers
from kubebox.ports import HeldPort
from kubebox.procs import ProcessId, frozen, spawn, tail
from kubebox.state import Layout, Record, discard

if TYPE_CHECKING:
    import ssl
    import subprocess
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path
    from types import FrameType

_TICK = 0.1
# An API server with open watches takes up to a minute to say goodbye, and no test wants to wait for that.
_GRACE_SECONDS = 5.0
_KILL_SECONDS = 30.0
_CLIENT_SECONDS = 5.0


class _Finish(Exception):  # noqa: N818 - a way out, not an error
    """The box is to be taken down."""


class Supervisor:
    """The loop that owns one box."""

    def __init__(self, launch: Launch, report: Callable[[Mapping[str, Any]], None]) -> None:
        self._launch = launch
        self._layout = Layout(launch.folder)
        self._report = report
        self._created = time.time()
        self._ports: dict[str, HeldPort] = {}
        self._components: dict[str, Component] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._pids: dict[str, ProcessId] = {}
        self._version = ""
        self._ready = False
        self._told_to_end = False
        self._plan: Plan
        self._tls: ssl.SSLContext
        self._socket: socket.socket

    def run(self) -> None:
        """Bring the box up, serve until told to end, and leave nothing behind."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        asked: socket.socket | None = None
        try:
            self._bring_up()
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

    # ---------------------------------------------------------------------------------------------- coming up

    def _bring_up(self) -> None:
        self._prepare()
        core = [components.etcd(self._plan), components.api_server(self._plan)]
        # Started together: the API server waits for etcd by itself.
        self._run_all(core)
        self._version = self._server_version()
        self._step(f"kube-apiserver {self._version} ready at {self._plan.server}")
        providers = node_providers(self._launch.spec)
        rest = components.controllers(self._plan)
        for provider in providers:
            rest += provider.components(self._plan, self._launch.tools)
        if rest:
            self._run_all(rest)
            self._step(f"{', '.join(component.name for component in rest)} ready")
        for provider in providers:
            self._join(provider)
        if self._launch.spec.controller_manager:
            self._await(self._default_account_exists, "service account default/default", self._children)
        self._ready = True
        self._record()

    def _prepare(self) -> None:
        spec, layout = self._launch.spec, self._layout
        for folder in (layout.pki, layout.folder / "log", layout.bin):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._listen()
        for name in components.port_names(spec):
            self._ports[name] = HeldPort()
        self._plan = Plan(layout, spec, {name: held.port for name, held in self._ports.items()})
        pki.write_pki(layout.pki)
        for path, content in components.config_files(self._plan).items():
            _write_private(path, components.dump(content))
        for name, program in self._launch.tools.items():
            (layout.bin / name).symlink_to(program)
        self._tls = admin_context(layout.pki)
        self._record()
        self._step("certificates and configuration written")

    def _run_all(self, started: Collection[Component]) -> None:
        for component in started:
            self._spawn(component)
        for component in started:
            self._await_ready(component, self._children)

    def _join(self, provider: NodeProvider) -> None:
        with Api(self._plan.server, self._tls) as api:
            provider.join(api)
            self._await(lambda: provider.ready(api), "nodes", self._children)
        self._step("nodes ready")

    def _server_version(self) -> str:
        with Api(self._plan.server, self._tls) as api:
            return str(api.request("GET", "/version").json()["gitVersion"])

    def _default_account_exists(self) -> bool:
        with Api(self._plan.server, self._tls) as api:
            return api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default").ok

    # --------------------------------------------------------------------------------------------- components

    def _spawn(self, component: Component) -> None:
        program = self._layout.bin / component.program
        child = spawn(
            [str(program), *component.arguments],
            log=self._layout.log(component.name),
            env=_environment(self._layout.folder),
            cwd=self._layout.folder,
        )
        self._components[component.name] = component
        self._children[component.name] = child
        if (identity := ProcessId.of(child.pid)) is not None:
            self._pids[component.name] = identity
        self._record()

    def _await_ready(self, component: Component, watched: Collection[str]) -> None:
        if component.health is not None:
            self._await(lambda: self._healthy(component), component.name, watched)

    def _healthy(self, component: Component) -> bool:
        url = component.health or ""
        return answers(url, self._tls if url.startswith("https:") else None)

    def _await(self, condition: Callable[[], bool], what: str, watched: Collection[str]) -> None:
        """Wait for a condition; the deadline or the death of a watched component is an error with its log."""
        deadline = time.monotonic() + self._launch.spec.ready_timeout
        while True:
            self._check_owner()
            with contextlib.suppress(OSError, http.client.HTTPException):
                if condition():
                    return
            for name in watched:
                if (code := self._children[name].poll()) is not None:
                    raise BoxError(f"{name} ended with {_exit_text(code)}; {self._log_text(name)}")
            if time.monotonic() > deadline:
                logs = "\n".join(self._log_text(name) for name in watched)
                raise BoxError(f"{what} not ready after {self._launch.spec.ready_timeout:g} s; {logs}")
            time.sleep(_TICK)

    def _log_text(self, name: str) -> str:
        return f"last lines of {self._layout.log(name)}:\n{tail(self._layout.log(name))}"

    # ------------------------------------------------------------------------------------------------ serving

    def _listen(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(self._layout.socket))
        except OSError as error:
            raise BoxError(
                f"cannot make the control socket {self._layout.socket} ({error}): "
                "set KUBEBOX_STATE_HOME to a folder with a shorter path"
            ) from error
        self._socket.listen()
        self._socket.settimeout(_TICK)

    def _serve(self) -> socket.socket:
        """Answer requests until one asks for the end; that one's connection is returned, still unanswered."""
        while True:
            self._check_owner()
            for name in [name for name in self._pids if self._children[name].poll() is not None]:
                self._forget(name)
            try:
                client, _ = self._socket.accept()
            except TimeoutError:
                continue
            action, name = _read_request(client)
            if action == "down":
                return client
            _answer(client, self._handle(action, name))

    def _handle(self, action: str, name: str) -> dict[str, Any]:
        actions: dict[str, Callable[[str], None]] = {
            "start": self._start,
            "stop": self._stop,
            "kill": self._kill,
            "pause": self._pause,
            "resume": lambda name: self._signal(name, signal.SIGCONT),
        }
        if action == "status":
            return {"ok": True, "components": self._status()}
        if action not in actions:
            return {"ok": False, "error": f"the supervisor knows no action {action!r}"}
        if name not in self._components:
            known = ", ".join(self._components)
            return {"ok": False, "error": f"box {self._layout.name} has no {name!r}: it has {known}"}
        try:
            actions[action](name)
        except (BoxError, OSError) as error:
            return {"ok": False, "error": str(error)}
        return {"ok": True}

    def _status(self) -> dict[str, Any]:
        found = {}
        for name, component in self._components.items():
            code = self._children[name].poll()
            if code is not None:
                health = f"ended with {_exit_text(code)}"
            elif component.health is None:
                health = "running"
            else:
                health = "healthy" if self._healthy(component) else "running, not ready"
            found[name] = {"pid": self._children[name].pid, "health": health, "port": component.port}
        return found

    def _start(self, name: str) -> None:
        if self._children[name].poll() is None:
            raise BoxError(f"{name} runs already")
        self._spawn(self._components[name])
        self._await_ready(self._components[name], [name])

    def _stop(self, name: str) -> None:
        # A paused process would keep the request to end pending for ever.
        self._signal(name, signal.SIGTERM)
        self._signal(name, signal.SIGCONT)
        if self._ended(name, _GRACE_SECONDS):
            self._forget(name)
        else:
            self._kill(name)

    def _kill(self, name: str) -> None:
        self._signal(name, signal.SIGKILL)
        if not self._ended(name, _KILL_SECONDS):
            raise BoxError(f"{name} does not end, even after SIGKILL")
        self._forget(name)

    def _pause(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)
        # The signal reaches a program's threads one by one: a busy one may still answer after it was sent.
        self._await(lambda: frozen(self._children[name].pid), f"pause of {name}", [name])

    def _signal(self, name: str, number: signal.Signals) -> None:
        # Our own child: its pid cannot be reused before we have reaped it.
        self._children[name].send_signal(number)

    def _ended(self, name: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._children[name].poll() is None:
            self._check_owner()
            if time.monotonic() > deadline:
                return False
            time.sleep(_TICK / 10)
        return True

    def _forget(self, name: str) -> None:
        self._pids.pop(name, None)
        self._record()

    # ------------------------------------------------------------------------------------------------ ending

    def _check_owner(self) -> None:
        owner = self._launch.owner
        abandoned = owner is not None and not owner.alive()
        # Without its folder nobody could find the box any more to take it down.
        if self._told_to_end or abandoned or not self._layout.lock.exists():
            raise _Finish

    def _tear_down(self) -> None:
        # No farewell: nothing in the box is kept, and a graceful end of an API server takes seconds.
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait()
        discard(self._layout.folder)

    # ------------------------------------------------------------------------------------------------ telling

    def _step(self, text: str) -> None:
        self._report({"step": text})

    def _record(self) -> None:
        supervisor = ProcessId.of(os.getpid())
        if supervisor is None:
            raise BoxError("/proc does not show this process: kubebox needs a mounted /proc")
        Record(
            name=self._layout.name,
            server=self._plan.server,
            etcd=self._plan.etcd,
            version=self._version,
            ready=self._ready,
            created=self._created,
            spec=self._launch.spec.to_json(),
            supervisor=supervisor,
            owner=self._launch.owner,
            processes=self._pids,
            ports=self._plan.ports,
        ).write(self._layout.record)


def _exit_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _read_request(client: socket.socket) -> tuple[str, str]:
    """Return the action and the component that a client asks for, empty when it makes no sense."""
    client.settimeout(_CLIENT_SECONDS)
    try:
        with client.makefile("rb") as stream:
            request = json.loads(stream.readline())
        return str(request["do"]), str(request["component"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""


def _answer(client: socket.socket, reply: Mapping[str, Any]) -> None:
    with client, contextlib.suppress(OSError):
        client.sendall(json.dumps(reply).encode() + b"\n")


def _environment(home: Path) -> dict[str, str]:
    # The caller's KUBECONFIG or proxy settings must not leak into a server.
    return {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8"}


def _write_private(path: Path, content: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)


def _report(message: Mapping[str, Any]) -> None:
    # A caller that has gone away reads nothing; the owner check takes care of it.
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Run the supervisor of the box that standard input describes."""
    Supervisor(Launch.from_json(sys.stdin.read()), _report).run()


if __name__ == "__main__":
    main()
