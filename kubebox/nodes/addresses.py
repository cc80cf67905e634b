"""Who has which address in a box with real nodes. Pure.

A box has one block, 10.B.0.0/16, that no other box and no route of the machine uses:

    10.B.0.1             the machine itself, where the API server listens
    10.B.0.10 …          the nodes
    10.B.128.0/24 …      the pods of each node

Every node has routes to the pods of the others, and the machine has them, too, because the API server calls
webhooks at pod addresses. None has a default route: what is not in the block cannot be reached, so pods send
nothing off the machine.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Network = ipaddress.IPv4Network

MAX_NODES = 100
_BLOCKS = range(200, 250)
_FIRST_NODE, _FIRST_PODS = 10, 128


@dataclass(frozen=True)
class Block:
    """The addresses of one box."""

    number: int

    @property
    def link(self) -> str:
        """The name of the machine's network link to the box."""
        return f"kbox{self.number}"

    @property
    def gateway(self) -> str:
        """The machine's address in the box."""
        return f"10.{self.number}.0.1"

    @property
    def pods(self) -> str:
        """The range of all pods."""
        return f"10.{self.number}.{_FIRST_PODS}.0/17"

    def node(self, index: int) -> str:
        """Return the address of a node."""
        return f"10.{self.number}.0.{_FIRST_NODE + index}"

    def node_pods(self, index: int) -> str:
        """Return the range of the pods of a node."""
        return f"10.{self.number}.{_FIRST_PODS + index}.0/24"

    def routes(self, count: int, *, but: int | None = None) -> list[tuple[str, str]]:
        """Return the way to the pods of each node but one: a range and the address it is reached through."""
        return [(self.node_pods(index), self.node(index)) for index in range(count) if index != but]


def node_name(index: int) -> str:
    """Return the name of a node."""
    return f"node-{index}"


def free_blocks(taken: Iterable[str]) -> Sequence[Block]:
    """Return the blocks that overlap with none of the destinations in the machine's routing table."""
    used = [ipaddress.ip_network(target, strict=False) for target in taken if target != "default"]
    return [
        Block(number)
        for number in _BLOCKS
        if not any(ipaddress.ip_network(f"10.{number}.0.0/16").overlaps(network) for network in used)
    ]
