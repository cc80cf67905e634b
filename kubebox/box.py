"""A running control plane, as its user sees it.

    with Box.up(BoxSpec(controller_manager=True)) as box:
        box.kubectl("get", "namespaces")

`Box` starts nothing itself: it hands the spec to a supervisor (see supervisor.py), reads its progress, and
later asks it over the control socket to stop, start, pause or end things. All methods may be called from any
thread; they block, so asynchronous tests use `asyncio.to_thread`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import kubebox
from kubebox import namespaces, state
from kubebox.api import Api, admin_context
from kubebox.binaries import provide
from kubebox.components import programs
from kubebox.errors import BoxError, ToolError
from kubebox.launch import Launch
from kubebox.nodes import node_providers
from kubebox.procs import ProcessId, python_module, tail
from kubebox.spec import BoxSpec, check_name
from kubebox.state import Layout, Record

if TYPE_CHECKING:
    from types import TracebackType

Progress = Callable[[str], None]
_CONTROL_SECONDS = 60.0
_STATUS_SECONDS = 20.0
_DOWN_SECONDS = 30.0
_ALREADY_COMPACTED = "has been compacted"


def tools_for(spec: BoxSpec) -> list[str]:
    """Name the programs that a box of this spec needs, kubectl for its user among them."""
    wanted = [*programs(spec), "kubectl"]
    for provider in node_providers(spec):
        wanted += provider.tools()
    return wanted


def _silent(_line: str) -> None:
    return None


class Box:
    """One control plane on this machine: use `Box.up` or `Box.attach` to get one."""

    def __init__(self, layout: Layout, supervisor: subprocess.Popen[str] | None = None) -> None:
        self._layout = layout
        self._supervisor = supervisor
        record = self.record()
        self.name = layout.name
        self.server = record.server
        self.etcd_url = record.etcd
        self.version = record.version
        self.state: Path = layout.folder
        self.kubeconfig: Path = layout.kubeconfig("admin")
        self.ca_file: Path = layout.pki / "ca.crt"
        self.cert_file: Path = layout.pki / "admin.crt"
        self.key_file: Path = layout.pki / "admin.key"
        self.audit_log: Path = layout.audit_log
        self._patience = BoxSpec.from_json(record.spec).ready_timeout + _CONTROL_SECONDS

    @classmethod
    def up(
        cls, spec: BoxSpec | None = None, *, detach: bool = False, progress: Progress | None = None
    ) -> Box:
        """Start a control plane and return it ready; it ends with this process, unless detached."""
        if sys.platform != "linux":
            raise ToolError(
                f"kubebox needs Linux: it watches processes through /proc, which {sys.platform} lacks"
            )
        spec, progress = spec or BoxSpec(), progress or _silent
        tools = provide(tools_for(spec), progress)
        layout, lock = state.claim(state.state_root(), spec.name)
        try:
            owner = None if detach else ProcessId.of(os.getpid())
            supervisor = _launch(Launch(layout.folder, spec, tools, owner), lock)
        finally:
            os.close(lock)
        try:
            _follow(supervisor, layout, progress)
            return cls(layout, supervisor)
        except BaseException:
            supervisor.terminate()
            supervisor.wait()
            raise
        finally:
            if supervisor.stdout is not None:
                supervisor.stdout.close()

    @classmethod
    def attach(cls, name: str) -> Box:
        """Return a box that runs already."""
        layout = Layout(state.state_root() / check_name(name))
        if not state.is_live(layout):
            raise BoxError(f"no box {name!r} is up: `python -m kubebox status` lists those that are")
        return cls(layout)

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

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which kubectl and helm find this box."""
        # kubectl keeps what it discovers by server address, and ports are used again by other boxes.
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.state / "kubectl-cache"),
            "PATH": f"{self._layout.bin}:{os.environ.get('PATH', os.defpath)}",
        }

    def link(self, tools: Mapping[str, Path]) -> None:
        """Add programs to the box's folder for PATH."""
        for name, program in tools.items():
            (self._layout.bin / name).symlink_to(program)

    # ----------------------------------------------------------------------------------------------- using it

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """Run kubectl as the administrator and return what it prints; BoxError carries its complaint."""
        result = subprocess.run(
            [self._layout.bin / "kubectl", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL if stdin is None else None,
        )
        if result.returncode != 0:
            raise BoxError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def api(self, *, timeout: float = 10.0) -> Api:
        """Return a connection to the API server as the administrator; use it in a `with`."""
        return Api(self.server, admin_context(self._layout.pki), timeout=timeout)

    def log(self, component: str) -> str:
        """Return the whole log of one component."""
        return self._layout.log(component).read_text(encoding="utf-8", errors="replace")

    @contextlib.contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """Make a namespace of a new name, and remove it with all it holds at the end."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        with self.api() as api:
            namespaces.create(api, name)
        try:
            yield name
        finally:
            with self.api() as api:
                namespaces.remove(api, name)

    # ------------------------------------------------------------------------------------------- breaking it

    def stop(self, component: str, *, kill: bool = False) -> None:
        """End a component and wait until it is gone: SIGTERM and five seconds to obey, or SIGKILL."""
        self._ask("kill" if kill else "stop", component)

    def start(self, component: str) -> None:
        """Start a component that ended, on the same port and data, and wait until it is ready."""
        self._ask("start", component)

    def restart(self, component: str, *, kill: bool = False) -> None:
        """Stop a component and start it again."""
        self.stop(component, kill=kill)
        self.start(component)

    def pause(self, component: str) -> None:
        """Freeze a component: its connections stay open and nothing answers."""
        self._ask("pause", component)

    def resume(self, component: str) -> None:
        """Let a frozen component go on."""
        self._ask("resume", component)

    def status(self) -> dict[str, dict[str, Any]]:
        """Return pid, port and health of each component."""
        components: dict[str, dict[str, Any]] = self._ask("status", timeout=_STATUS_SECONDS)["components"]
        return components

    def compact_etcd(self) -> int:
        """Make etcd forget everything before now and return the revision it now starts at.

        The API server keeps recent events in memory: only after a restart of kube-apiserver is an older
        resourceVersion answered with 410 Gone.
        """
        with Api(self.etcd_url) as etcd:
            # Any key will do: the answer's header carries the newest revision. The API wants bytes as base64.
            found = etcd.request("POST", "/v3/kv/range", {"key": "AA==", "keys_only": True})
            if not found.ok:
                raise BoxError(f"etcd does not tell its revision: HTTP {found.status}: {found.text()}")
            revision = int(found.json()["header"]["revision"])
            done = etcd.request("POST", "/v3/kv/compaction", {"revision": revision, "physical": True})
            if not done.ok and _ALREADY_COMPACTED not in done.text():
                raise BoxError(f"etcd does not compact: HTTP {done.status}: {done.text()}")
        return revision

    def down(self) -> None:
        """End every process of the box and remove its folder; harmless when that has happened already."""
        with contextlib.suppress(BoxError):
            supervisor = self.record().supervisor
            try:
                self._ask("down", timeout=_DOWN_SECONDS)
            except BoxError:
                # Hung or gone: its children die with it, and the sweep below takes care of the rest.
                supervisor.signal(signal.SIGKILL)
            _await_end(supervisor)
        if self._supervisor is not None:
            self._supervisor.wait()
        if self._layout.folder.exists():
            state.sweep(self._layout.folder.parent)

    def _ask(self, action: str, component: str = "", *, timeout: float | None = None) -> dict[str, Any]:
        request = json.dumps({"do": action, "component": component}).encode() + b"\n"
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


def _launch(launch: Launch, lock: int) -> subprocess.Popen[str]:
    """Start the supervisor, hand it the lock on its folder and tell it what to do."""
    package_parent = str(Path(kubebox.__file__).resolve().parents[1])
    search_path = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")]))
    with (launch.folder / "supervisor.log").open("ab") as log:
        supervisor = subprocess.Popen(
            python_module("kubebox.supervisor"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            pass_fds=(lock,),
            cwd=launch.folder,
            env={**os.environ, "PYTHONPATH": search_path},
            # Ctrl-C in the terminal is for the caller; it decides what becomes of the box.
            start_new_session=True,
        )
    if supervisor.stdin is None:
        raise BoxError("the supervisor has no standard input")
    with contextlib.suppress(BrokenPipeError), supervisor.stdin as stream:
        stream.write(launch.to_json())
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
