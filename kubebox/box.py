"""A running control plane, as its user sees it.

    with Box.up(BoxSpec(controller_manager=True)) as box:
        box.kubectl("get", "namespaces")

What any kind of box can do is in handle.py; here is what makes it a Kubernetes. All methods may be called
from any thread; they block, so asynchronous tests use `asyncio.to_thread`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox import build, linux, namespaces, state
from kubebox.api import Api, admin_context
from kubebox.binaries import ALL_TOOLS, existing_folders, provide
from kubebox.components import programs
from kubebox.errors import BoxError, ToolError
from kubebox.handle import Handle, Progress, launch, silent
from kubebox.launch import Launch
from kubebox.nodes import files, node_providers
from kubebox.nodes.ground import provide_ground
from kubebox.procs import ProcessId, children, program_name
from kubebox.spec import BoxSpec, check_name
from kubebox.state import Layout, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ALREADY_COMPACTED = "has been compacted"


def tools_for(spec: BoxSpec) -> list[str]:
    """Name the programs that a box of this spec needs, kubectl for its user among them."""
    wanted = [*programs(spec), "kubectl"]
    for provider in node_providers(spec):
        wanted += provider.tools()
    return wanted


def available_tools(environ: Mapping[str, str] | None = None) -> list[str]:
    """Name every program that can be had: of the user's own Kubernetes, if one is to be used, what it has."""
    folders = existing_folders(os.environ if environ is None else environ)
    path = os.pathsep.join(folders)
    return [
        name
        for name in ALL_TOOLS
        if not folders or name not in build.PROGRAMS or shutil.which(name, path=path) is not None
    ]


class Box(Handle):
    """One control plane on this machine: use `Box.up` or `Box.attach` to get one."""

    def __init__(self, layout: Layout, supervisor: subprocess.Popen[str] | None = None) -> None:
        record = Record.read(layout.record)
        super().__init__(layout, BoxSpec.from_json(record.spec).ready_timeout, supervisor)
        self.server = record.server
        self.etcd_url = record.etcd
        self.version = record.version
        self.kubeconfig: Path = layout.kubeconfig("admin")
        self.ca_file: Path = layout.pki / "ca.crt"
        self.cert_file: Path = layout.pki / "admin.crt"
        self.key_file: Path = layout.pki / "admin.key"
        self.audit_log: Path = layout.audit_log
        self._pulls = BoxSpec.from_json(record.spec).pulls

    @classmethod
    def up(
        cls, spec: BoxSpec | None = None, *, detach: bool = False, progress: Progress | None = None
    ) -> Box:
        """Start a control plane and return it ready; it ends with this process, unless detached."""
        if sys.platform != "linux":
            raise ToolError(
                f"kubebox needs Linux: it watches processes through /proc, which {sys.platform} lacks"
            )
        spec, progress = spec or BoxSpec(), progress or silent
        tools = provide(tools_for(spec), progress)
        if spec.nodes:
            tools |= provide_ground(spec, tools, progress)
        owner = None if detach else ProcessId.of(os.getpid())
        layout, supervisor = launch(
            "kubebox.supervisor",
            state.state_root(),
            spec.name,
            lambda folder: Launch(folder, spec, tools, owner).to_json(),
            progress,
        )
        return cls(layout, supervisor)

    @classmethod
    def attach(cls, name: str) -> Box:
        """Return a box that runs already."""
        layout = Layout(state.state_root() / check_name(name))
        if not state.is_live(layout):
            raise BoxError(f"no box {name!r} is up: `python -m kubebox status` lists those that are")
        return cls(layout)

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
        with self.present():
            for name, program in tools.items():
                (self._layout.bin / name).symlink_to(program)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """Run kubectl as the administrator and return what it prints; BoxError carries its complaint."""
        command = f"kubectl {' '.join(arguments)}"
        try:
            with self.present():
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
        except subprocess.TimeoutExpired:
            raise BoxError(f"{command}: no answer within {timeout:g} s") from None
        if result.returncode != 0:
            raise BoxError(f"{command}: {result.stderr.strip()}")
        return result.stdout

    def pause(self, component: str) -> None:
        """Freeze a component, or one daemon of a node (`node-1.kubelet`), whose containers then run on."""
        if "." not in component:
            super().pause(component)
        elif not self._daemon(component).signal(signal.SIGSTOP):
            raise BoxError(f"box {self.name}: {component} has just ended")

    def resume(self, component: str) -> None:
        """Let a frozen component, or a frozen daemon of a node, go on."""
        if "." not in component:
            super().resume(component)
        elif not self._daemon(component).signal(signal.SIGCONT):
            raise BoxError(f"box {self.name}: {component} has just ended")

    def crash(self, daemon: str) -> None:
        """Kill a daemon of a node (`node-1.kubelet`); the node starts it again, and containers run on."""
        if not self._daemon(daemon).signal(signal.SIGKILL):
            raise BoxError(f"box {self.name}: {daemon} has just ended")

    def _daemon(self, component: str) -> ProcessId:
        """Return the process of a daemon of a node."""
        node, _, daemon = component.partition(".")
        first = children(self.pids[node]) if node in self.pids else []
        for pid in (pid for parent in first for pid in children(parent)):
            found = ProcessId.of(pid)
            if found is not None and program_name(pid) == daemon:
                return found
        raise BoxError(f"box {self.name}: there is no {component}")

    def set_hostname(self, node: str, hostname: str) -> None:
        """Give a node's kernel another host name; Kubernetes goes on to call the node by its own."""
        if node not in self.pids:
            raise BoxError(f"box {self.name}: there is no {node}")
        namespace = Path(f"/proc/{self.pids[node]}/ns/uts")
        # A thread has namespaces of its own, so this one enters that of the node and ends there.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(_set_hostname, namespace, hostname).result()

    def trust_registry(self, address: str) -> None:
        """Let real nodes pull images from a registry without TLS, named by HOST:PORT."""
        nodes = sorted((self.state / "nodes").glob("*/etc"))
        if not (nodes and self._pulls):
            raise BoxError(f"box {self.name}: its nodes pull no images: start it with nodes and pulls=True")
        for etc in nodes:
            folder = etc / Path(files.CERTS).name / address
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts.toml").write_text(files.registry_hosts(address), encoding="utf-8")

    def api(self, *, timeout: float = 10.0) -> Api:
        """Return a connection to the API server as the administrator; use it in a `with`."""
        return Api(self.server, admin_context(self._layout.pki), timeout=timeout)

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


def _set_hostname(namespace: Path, hostname: str) -> None:
    """Set the host name of a UTS namespace; the calling thread stays in there."""
    linux.enter(namespace, linux.CLONE_NEWUTS)
    socket.sethostname(hostname)
