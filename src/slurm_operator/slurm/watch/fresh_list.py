"""A list of nodes that was asked for a moment before a write, in addition to the view of the watch.

The view tells what may be trusted at all: while it is stale or suspicious, and for a node that it cannot
speak of, the answer is *unknown*, whatever one more list shows. This list tells how the nodes are now. It
says nothing about jobs, and whether a node is gone is for the view to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_operator.slurm.model.answers import Answer, AnswerReason, Known, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.slurm.model.records import Node
    from slurm_operator.slurm.model.view import ClusterView


@dataclass(frozen=True, slots=True)
class FreshNodes:
    """The nodes as of `listed_at`, for those of which the view says anything."""

    view: ClusterView
    nodes: Mapping[str, Node]
    listed_at: float

    def node(self, name: str, now: float) -> Answer:
        """Say what is known about a node."""
        answer = self.view.node(name, now)
        if isinstance(answer, Unknown):
            return answer
        if name in self.nodes:
            return Known(self.nodes[name], self.listed_at)
        if isinstance(answer, Known):
            return Unknown(AnswerReason.NODE_MISSING, f"{name} is not in the newest list of nodes")
        return answer
