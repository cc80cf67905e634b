"""Fake nodes: objects in the API server whose life, and that of their pods, kwok plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubebox.components import Component, Plan, dump
from kubebox.nodes.provider import create, usable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kubebox.api import Api
    from kubebox.state import Layout

KWOK, KWOK_STAGES = "kwok", "kwok-stages"
FAKE_NODE = "fake"
# kwok takes a node with this annotation for its own.
_MANAGED = "kwok.x-k8s.io/node"
# Renewed four times in that span; long enough that a machine busy with tests does not miss it.
_LEASE_SECONDS = 40
# One address per pod on all fake nodes together: 2^18 of them.
_POD_RANGE = "10.0.0.1/14"


@dataclass(frozen=True)
class FakeNodes:
    """Nodes that exist only in the API server; kwok keeps them alive and plays the life of their pods."""

    count: int
    # The controller manager takes the not-ready taint off a node; without one the taint stays.
    untainted: bool

    def tools(self) -> Sequence[str]:
        """Name kwok and the stages it plays."""
        return (KWOK, KWOK_STAGES)

    def prepare(self, layout: Layout, tools: Mapping[str, Path]) -> str | None:  # noqa: ARG002 - as the seam has it
        """Need nothing: kwok talks to the API server on loopback."""
        return None

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
            create(api, "/api/v1/nodes", fake_node(f"fake-{number}"))

    def ready(self, api: Api) -> bool:
        """Count the fake nodes that are Ready and, with a controller manager, without the not-ready taint."""
        reply = api.request("GET", f"/api/v1/nodes?labelSelector=type%3D{FAKE_NODE}&resourceVersion=0")
        if not reply.ok:
            return False
        able = [node for node in reply.json()["items"] if usable(node, untainted=self.untainted)]
        return len(able) >= self.count

    def close(self) -> None:
        """Have nothing to give back."""


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
