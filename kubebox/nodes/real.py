"""Real nodes: namespaces with containerd, kubelet and kube-proxy, and a network between them.

Everything of a node is a process below the supervisor, or belongs to a namespace of one, or is a file in the
box's folder; only control groups remain when all processes have ended, and those are removed by name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import kubebox
from kubebox import cgroups, pki
from kubebox.cache import hold
from kubebox.components import SERVICE_RANGE, Component, Plan, dump, kubeconfig
from kubebox.images import template
from kubebox.keeper import write_private
from kubebox.nodes import cluster, files
from kubebox.nodes.addresses import node_name
from kubebox.nodes.machine import Machine
from kubebox.nodes.network import Switch
from kubebox.nodes.provider import create, usable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubebox.api import Api
    from kubebox.state import Layout

NODE_ROOT, NODE_IMAGES = "node-root", "node-images"
_PROXY = "kube-proxy"
_STEWARD = "steward"


class RealNodes:
    """Nodes that run containers; `gpus` is how many of `nvidia.com/gpu` each claims to have."""

    def __init__(self, count: int, *, gpus: int = 0, pulls: bool = False) -> None:
        self.count = count
        self.gpus = gpus
        self.pulls = pulls
        self._folder: Path | None = None
        self._switch: Switch | None = None
        self._cgroup = ""

    def tools(self) -> Sequence[str]:
        """Name the programs of a node, and those that its first images are made of."""
        return ("kubelet", _PROXY, "coredns", "pause")

    def prepare(self, layout: Layout, tools: Mapping[str, Path]) -> str | None:
        """Make the network and the control groups; the API server listens on the machine's address there."""
        self._folder = layout.folder
        # Its layers are used in place, by all nodes and until the end.
        hold(tools[NODE_IMAGES].parent)
        self._cgroup = cgroups.make(layout.folder, [node_name(index) for index in range(self.count)])
        self._switch = Switch(tools[NODE_ROOT], self.count)
        return self._switch.block.gateway

    def components(self, plan: Plan, tools: Mapping[str, Path]) -> Sequence[Component]:
        """Describe each node, and the steward who provides storage."""
        authority = pki.load_authority(plan.layout.pki, "ca")
        pki.write_pair(plan.layout.pki, _PROXY, *pki.issue(authority, f"system:{_PROXY}"))
        volumes = plan.layout.folder / "volumes"
        volumes.mkdir()
        steward = (str(plan.layout.folder), plan.server, str(self.gpus))
        return [
            *(self._node(index, plan, tools, authority) for index in range(self.count)),
            _python(_STEWARD, "kubebox.nodes.steward", *steward),
        ]

    def _node(self, index: int, plan: Plan, tools: Mapping[str, Path], authority: pki.Authority) -> Component:
        if self._switch is None:
            raise AssertionError("prepare comes before components")
        name, block, layout = node_name(index), self._switch.block, plan.layout
        address, folder = block.node(index), layout.folder / "nodes" / name
        etc = folder / "etc"
        (etc / "cni").mkdir(parents=True)
        for part in ("kubelet", "containerd", "log"):
            (folder / part).mkdir()
        pair = f"kubelet-{name}"
        pki.write_pair(
            layout.pki, pair, *pki.issue(authority, f"system:node:{name}", organization="system:nodes")
        )
        pki.write_pair(etc, "serving", *pki.issue(authority, name, names=[name], addresses=[address]))
        write_private(etc / "ca.crt", (layout.pki / "ca.crt").read_bytes())
        for path, content in {
            "kubelet.json": files.kubelet(address, f"/{self._cgroup}/{name}"),
            "kube-proxy.json": files.kube_proxy(name, address, block),
            "cni/10-kubebox.conflist": files.cni(block, index),
            "kubelet.kubeconfig": kubeconfig(plan, pair),
            "kube-proxy.kubeconfig": kubeconfig(plan, _PROXY),
        }.items():
            write_private(etc / path, dump(content).encode())
        write_private(etc / "containerd.toml", files.containerd().encode())
        images = tools[NODE_IMAGES]
        template.copy_databases(images, folder / "containerd")
        daemons = {**files.DAEMONS, "kubelet": files.kubelet_command(name, address)}
        machine = Machine(
            name=name,
            folder=str(folder),
            rootfs=str(tools[NODE_ROOT]),
            cgroup=f"{self._cgroup}/{name}",
            programs={program: str(tools[program].resolve()) for program in ("kubelet", _PROXY)},
            shows={
                "etc/kubebox": str(etc),
                "var/lib/kubelet": str(folder / "kubelet"),
                "var/lib/containerd": str(folder / "containerd"),
                "var/log": str(folder / "log"),
                "var/lib/kubebox/volumes": str(layout.folder / "volumes"),
            },
            shows_read_only={
                f"var/lib/containerd/{part}": str(images / part)
                for part in template.shared(images, pulls=self.pulls)
            },
            logs={daemon: str(layout.log(f"{name}.{daemon}")) for daemon in daemons},
            daemons=daemons,
            switch=str(self._switch.namespace),
            port=f"port-{index}",
            address=address,
            # A process of the node itself that calls a service has to have a way there before it is changed.
            routes=[*block.routes(self.count, but=index), (SERVICE_RANGE, block.gateway)],
        )
        description = folder / "machine.json"
        description.write_text(machine.to_json(), encoding="utf-8")
        return _python(name, "kubebox.nodes.boot", str(description))

    def join(self, api: Api) -> None:
        """Create what pods on the nodes need; the nodes themselves are created by their kubelets."""
        for path, manifest in cluster.manifests():
            create(api, path, manifest)

    def ready(self, api: Api) -> bool:
        """Say whether all nodes take pods and names are resolved."""
        nodes, dns = api.request("GET", "/api/v1/nodes"), api.request("GET", cluster.dns_path())
        if not (nodes.ok and dns.ok) or not dns.json().get("status", {}).get("availableReplicas"):
            return False
        names = {item["metadata"]["name"] for item in nodes.json()["items"] if usable(item, untainted=True)}
        return names >= {node_name(index) for index in range(self.count)}

    def close(self) -> None:
        """Remove the network and the control groups."""
        if self._switch is not None:
            self._switch.close()
        if self._folder is not None:
            cgroups.remove(self._folder)


def _python(name: str, module: str, *arguments: str) -> Component:
    """Describe a component that is a program of this package."""
    search_path = str(Path(kubebox.__file__).resolve().parents[1])
    # -P keeps the working directory off sys.path: a stray file there must not shadow a module.
    return Component(name, sys.executable, ("-P", "-m", module, *arguments), env={"PYTHONPATH": search_path})
