"""Kubernetes nodes that come and go within one test, in a pool that no other test uses."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from kubebox.nodes import fake_node
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.kinds import Node
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client

POOL = "test/pool"


class NodePool:
    """The Kubernetes nodes of one test; they are removed at its end."""

    def __init__(self, client: Client, pool: str) -> None:
        self._client = client
        self._names: set[str] = set()
        self.pool = pool

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in self._names:
            await self.remove(name)

    @property
    def selector(self) -> dict[str, str]:
        """Return the node selector of the pool."""
        return {POOL: self.pool}

    def name(self, number: int) -> str:
        """Return the name of a Kubernetes node."""
        return f"{self.pool}-{number}"

    async def add(self, name: str, *, annotations: dict[str, str] | None = None, **labels: str) -> str:
        """Add a Kubernetes node that can take pods; return its name."""
        body = fake_node(name)
        body["metadata"]["labels"] |= {POOL: self.pool, **labels}
        body["metadata"]["annotations"] |= annotations or {}
        self._names.add(name)
        await self._client.create(Node, body)
        await eventually(lambda: self._usable(name), f"node {name} takes pods")
        return name

    async def patch(self, name: str, body: dict[str, Any]) -> None:
        """Change a Kubernetes node, as a person does."""
        await self._client.patch(Node, name, "", body, type=PatchType.MERGE, field_manager="kubectl-edit")

    async def remove(self, name: str) -> None:
        """Remove a Kubernetes node."""
        with contextlib.suppress(NotFound):
            await self._client.delete(Node, name)

    async def _usable(self, name: str) -> bool:
        node = await self._client.get(Node, name)
        return node.ready and not node.spec.taints
