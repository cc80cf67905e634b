"""Nodes for a box: who provides them is open.

A provider names the programs it needs, prepares the ground before the API server starts, describes the
components that the supervisor runs for it afterwards, and knows how its nodes are made and when they can take
pods. Fake nodes, played by kwok, are one provider (fake.py); real ones with kubelet and containers are the
other (real.py). A further kind is added to `PROVIDERS` in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubebox.nodes.fake import FakeNodes, fake_node
from kubebox.nodes.provider import NodeProvider
from kubebox.nodes.real import RealNodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox.spec import BoxSpec

__all__ = ["PROVIDERS", "FakeNodes", "NodeProvider", "RealNodes", "fake_node", "node_providers"]


def _fake_nodes(spec: BoxSpec) -> NodeProvider | None:
    if not spec.fake_nodes:
        return None
    return FakeNodes(spec.fake_nodes, untainted=spec.controller_manager)


def _real_nodes(spec: BoxSpec) -> NodeProvider | None:
    return RealNodes(spec.nodes, gpus=spec.gpus, pulls=spec.pulls) if spec.nodes else None


PROVIDERS: list[Callable[[BoxSpec], NodeProvider | None]] = [_fake_nodes, _real_nodes]


def node_providers(spec: BoxSpec) -> list[NodeProvider]:
    """Return the providers that this spec asks for."""
    return [provider for make in PROVIDERS if (provider := make(spec)) is not None]
