"""The process that owns a Kubernetes box: etcd, kube-apiserver and what else was asked for.

How it lives, answers and ends is in keeper.py; here is only what makes a control plane of it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kubebox import components, pki
from kubebox.api import Api, admin_context, answers
from kubebox.components import Component, Plan
from kubebox.keeper import Keeper, Report, report, write_private
from kubebox.launch import Launch
from kubebox.nodes import NodeProvider, node_providers
from kubebox.ports import LOOPBACK, HeldPort
from kubebox.procs import ProcessId, spawn
from kubebox.state import Record

if TYPE_CHECKING:
    import ssl
    import subprocess
    from pathlib import Path


class Supervisor(Keeper[Component]):
    """The keeper of one control plane."""

    def __init__(self, launch: Launch, tell: Report) -> None:
        super().__init__(launch.folder, launch.owner, launch.spec.ready_timeout, tell)
        self._launch = launch
        self._ports: dict[str, HeldPort] = {}
        self._version = ""
        self._providers = node_providers(launch.spec)
        self._plan: Plan
        self._tls: ssl.SSLContext

    def bring_up(self) -> None:
        """Start the control plane and its nodes."""
        self._prepare()
        core = [components.etcd(self._plan), components.api_server(self._plan)]
        # Started together: the API server waits for etcd by itself.
        self.run_all(core)
        self._version = self._server_version()
        self.step(f"kube-apiserver {self._version} ready at {self._plan.server}")
        rest = components.controllers(self._plan)
        for provider in self._providers:
            rest += provider.components(self._plan, self._launch.tools)
        if rest:
            self.run_all(rest)
            self.step(f"{', '.join(component.name for component in rest)} ready")
        for provider in self._providers:
            self._join(provider)
        if self._launch.spec.controller_manager:
            self.until(self._default_account_exists, "service account default/default", self.children)

    def _prepare(self) -> None:
        spec, layout = self._launch.spec, self.layout
        for folder in (layout.pki, layout.folder / "log", layout.bin):
            folder.mkdir(mode=0o700, exist_ok=True)
        self.listen()
        wanted = [provider.prepare(layout, self._launch.tools) for provider in self._providers]
        address = next(filter(None, wanted), LOOPBACK)
        for name in components.port_names(spec):
            self._ports[name] = HeldPort(address if name == components.API_SERVER else LOOPBACK)
        ports = {name: held.port for name, held in self._ports.items()}
        self._plan = Plan(layout, spec, ports, address)
        pki.write_pki(layout.pki, [address] if address != LOOPBACK else [])
        for path, content in components.config_files(self._plan).items():
            write_private(path, components.dump(content).encode())
        for name, program in self._launch.tools.items():
            (layout.bin / name).symlink_to(program)
        self._tls = admin_context(layout.pki)
        self.record()
        self.step("certificates and configuration written")

    def _join(self, provider: NodeProvider) -> None:
        with Api(self._plan.server, self._tls) as api:
            provider.join(api)
            self.until(lambda: provider.ready(api), "nodes", self.children)
        self.step("nodes ready")

    def _server_version(self) -> str:
        with Api(self._plan.server, self._tls) as api:
            return str(api.request("GET", "/version").json()["gitVersion"])

    def _default_account_exists(self) -> bool:
        with Api(self._plan.server, self._tls) as api:
            return api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default").ok

    def launch(self, component: Component) -> subprocess.Popen[bytes]:
        """Start a component as a plain process."""
        return spawn(
            [str(self.layout.bin / component.program), *component.arguments],
            log=self.layout.log(component.name),
            env={**_environment(self.layout.folder), **component.env},
            cwd=self.layout.folder,
        )

    def healthy(self, component: Component) -> bool | None:
        """Ask a component's health endpoint, where it has one."""
        if component.health is None:
            return None
        return answers(component.health, self._tls if component.health.startswith("https:") else None)

    def release(self) -> None:
        """Let the providers of nodes clear away what the kernel does not."""
        for provider in self._providers:
            provider.close()

    def describe(self, supervisor: ProcessId) -> Record:
        """Describe the control plane and its processes."""
        return Record(
            name=self.layout.name,
            server=self._plan.server,
            etcd=self._plan.etcd,
            version=self._version,
            ready=self.ready,
            created=self.created,
            spec=self._launch.spec.to_json(),
            supervisor=supervisor,
            owner=self.owner,
            processes=self.pids,
            ports=self._plan.ports,
        )


def _environment(home: Path) -> dict[str, str]:
    # The caller's KUBECONFIG or proxy settings must not leak into a server.
    return {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8"}


def main() -> None:
    """Run the supervisor of the box that standard input describes."""
    Supervisor(Launch.from_json(sys.stdin.read()), report).run()


if __name__ == "__main__":
    main()
