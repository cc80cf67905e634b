"""Nodes for a box: who provides them is open.

A provider names the programs it needs, describes the components that the supervisor runs for it once the API
server is ready, and knows how its nodes are made and when they can take pods. Fake nodes, played by kwok,
are one provider; a provider that starts kubelets is added to `PROVIDERS` in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kubebox.components import Component, Plan, dump
from kubebox.errors import BoxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kubebox.api import Api
    from kubebox.spec import BoxSpec

KWOK, KWOK_STAGES = "kwok", "kwok-stages"
FAKE_NODE = "fake"
# kwok takes a node with this annotation for its own.
_MANAGED = "kwok.x-k8s.io/node"
_NOT_READY = "node.kubernetes.io/not-ready"
_CONFLICT = 409
# Renewed four times in that span; long enough that a machine busy with tests does not miss it.
_LEASE_SECONDS = 40
# One address per pod on all fake nodes together: 2^18 of them.
_POD_RANGE = "10.0.0.1/14"


class NodeProvider(Protocol):
    """Something that puts nodes into a box."""

    def tools(self) -> Sequence[str]:
        """Name the programs and files it needs."""
        ...

    def components(self, plan: Plan, tools: Mapping[str, Path]) -> Sequence[Component]:
        """Describe what the supervisor runs for it, and write the files that needs."""
        ...

    def join(self, api: Api) -> None:
        """Make its nodes known to the API server."""
        ...

    def ready(self, api: Api) -> bool:
        """Say whether all its nodes can take pods."""
        ...


@dataclass(frozen=True)
class FakeNodes:
    """Nodes that exist only in the API server; kwok keeps them alive and plays the life of their pods."""

    count: int
    # The controller manager takes the not-ready taint off a node; without one the taint stays.
    untainted: bool

    def tools(self) -> Sequence[str]:
        """Name kwok and the stages it plays."""
        return (KWOK, KWOK_STAGES)

    def components(self, plan: Plan, tools: Mapping[str, Path]) -> Sequence[Component]:
        """Describe the one kwok that plays all nodes."""
        options = plan.layout.folder / "kwok.yaml"
        options.write_text(
            dump(
                {
                    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
                    "kind": "KwokConfiguration",
                    "options": {
                        "podPlayStageParallelism": 4,
                        "nodePlayStageParallelism": 16,
                        "nodeLeaseParallelism": 4,
                    },
                }
            ),
            encoding="utf-8",
        )
        arguments = (
            f"--kubeconfig={plan.layout.kubeconfig('admin')}",
            f"--config={options}",
            f"--config={tools[KWOK_STAGES]}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={_MANAGED}={FAKE_NODE}",
            f"--cidr={_POD_RANGE}",
            "--node-ip=127.0.0.1",
            f"--node-lease-duration-seconds={_LEASE_SECONDS}",
        )
        return (Component(KWOK, KWOK, arguments),)

    def join(self, api: Api) -> None:
        """Create the node objects."""
        for number in range(self.count):
            reply = api.request("POST", "/api/v1/nodes", fake_node(f"fake-{number}"))
            if not reply.ok and reply.status != _CONFLICT:
                raise BoxError(f"cannot create node fake-{number}: HTTP {reply.status}: {reply.text()}")

    def ready(self, api: Api) -> bool:
        """Count the fake nodes that are Ready and, with a controller manager, without the not-ready taint."""
        reply = api.request("GET", f"/api/v1/nodes?labelSelector=type%3D{FAKE_NODE}&resourceVersion=0")
        if not reply.ok:
            return False
        usable = [node for node in reply.json()["items"] if _usable(node, untainted=self.untainted)]
        return len(usable) >= self.count


def fake_node(name: str) -> dict[str, Any]:
    """Return the node object that kwok takes for its own."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {_MANAGED: FAKE_NODE},
            "labels": {
                "type": FAKE_NODE,
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "status": {
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "250"},
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "250"},
        },
    }


def _usable(node: Mapping[str, Any], *, untainted: bool) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    taints = node.get("spec", {}).get("taints", [])
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return ready and not (untainted and any(taint["key"] == _NOT_READY for taint in taints))


def _fake_nodes(spec: BoxSpec) -> NodeProvider | None:
    if not spec.fake_nodes:
        return None
    return FakeNodes(spec.fake_nodes, untainted=spec.controller_manager)


PROVIDERS: list[Callable[[BoxSpec], NodeProvider | None]] = [_fake_nodes]


def node_providers(spec: BoxSpec) -> list[NodeProvider]:
    """Return the providers that this spec asks for."""
    return [provider for make in PROVIDERS if (provider := make(spec)) is not None]
