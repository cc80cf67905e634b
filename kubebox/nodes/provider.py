"""What a provider of nodes has to do, and what all of them ask the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kubebox.errors import BoxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kubebox.api import Api
    from kubebox.components import Component, Plan
    from kubebox.state import Layout

_NOT_READY = "node.kubernetes.io/not-ready"
_CONFLICT = 409


class NodeProvider(Protocol):
    """Something that puts nodes into a box."""

    def tools(self) -> Sequence[str]:
        """Name the programs and files it needs."""
        ...

    def prepare(self, layout: Layout, tools: Mapping[str, Path]) -> str | None:
        """Prepare the ground; return the address where its nodes will look for the API server, if any."""
        ...

    def components(self, plan: Plan, tools: Mapping[str, Path]) -> Sequence[Component]:
        """Describe what the supervisor runs for it, and write the files that needs."""
        ...

    def join(self, api: Api) -> None:
        """Make its nodes known to the API server, with what they need there."""
        ...

    def ready(self, api: Api) -> bool:
        """Say whether all its nodes can take pods."""
        ...

    def close(self) -> None:
        """Give back what the kernel does not clear away when all processes of the box have ended."""
        ...


def create(api: Api, path: str, body: Mapping[str, Any]) -> None:
    """Create an object, unless it is there."""
    reply = api.request("POST", path, body)
    if not reply.ok and reply.status != _CONFLICT:
        name = body["metadata"]["name"]
        raise BoxError(f"cannot create {body['kind']} {name}: HTTP {reply.status}: {reply.text()}")


def usable(node: Mapping[str, Any], *, untainted: bool) -> bool:
    """Say whether a node is Ready and, if that matters, without the not-ready taint."""
    conditions = node.get("status", {}).get("conditions", [])
    taints = node.get("spec", {}).get("taints", [])
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return ready and not (untainted and any(taint["key"] == _NOT_READY for taint in taints))
