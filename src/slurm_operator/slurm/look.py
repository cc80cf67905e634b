"""A list of nodes that was asked for a moment before a write, beside the view of the watch.

The view tells what may be believed at all: while it is stale or suspicious, and for a node that it cannot
speak of, the answer is *unknown*, whatever one more list shows. The look tells how the nodes are now. It says
nothing about jobs, and whether a node is gone is for the view to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_operator.slurm.answers import Answer, Known, Reason, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.slurm.model import Node
    from slurm_operator.slurm.view import ClusterView


@dataclass(frozen=True, slots=True)
class Look:
    """The nodes as of `taken`, for those of which the view says anything."""

    view: ClusterView
    nodes: Mapping[str, Node]
    taken: float

    def node(self, name: str, now: float) -> Answer:
        """Say what is known about a node."""
        answer = self.view.node(name, now)
        if isinstance(answer, Unknown):
            return answer
        if name in self.nodes:
            return Known(self.nodes[name], self.taken)
        if isinstance(answer, Known):
            return Unknown(Reason.NODE_MISSING, f"{name} is not in the newest list of nodes")
        return answer
