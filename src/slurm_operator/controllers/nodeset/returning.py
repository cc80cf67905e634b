"""Nodes that are down although a new slurmd serves them.

A pod that ends takes its node down, and so does slurmctld with a node that falls silent. When a slurmd
registers, Slurm lifts that only with `ReturnToService=2`; its default is to leave it to a person, who in
Kubernetes would have to come after every update. So the node is resumed here, on three conditions: what took
it down was a pod of ours or slurmctld's own "Not responding"; its slurmd was started after that, by Slurm's
clock, so that a pod on its way out is never given work; and nobody wants the node to be drained. As always
before a node gets work, its pod must be protected.

A resume lifts a drain as well. It is sent instead of an undrain where both are due, since an undrain would
leave a reason that is younger than the slurmd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.sight import draining
from slurm_operator.slurm.wishes import downed_by_us

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from slurm_operator.controllers.nodeset.observation import Worker
    from slurm_operator.controllers.nodeset.sight import Sight
    from slurm_operator.slurm.model import Node


def returned(sight: Sight, workers: Iterable[Worker], unwanted: Container[str]) -> list[str]:
    """Return the nodes to resume; `unwanted` are those that must take no work."""
    found: dict[str, bool] = {}
    for worker in workers:
        name = worker.slurm_name
        node = sight.node(name)
        if node is None or "DOWN" not in node.state or name in unwanted:
            continue
        # Two pods may share a name for a while: only when each of them serves is it certain who registered.
        ready = worker.healthy and sight.safe(worker)
        found[name] = found.get(name, True) and ready and _lifts(node) and _newer_slurmd(node)
    return sorted(name for name, due in found.items() if due)


def _lifts(node: Node) -> bool:
    return (
        not {"FAIL", "NOT_RESPONDING", "INVALID_REG"} & set(node.state)
        and downed_by_us(node, wellknown.REASON_PREFIX)
        and (not draining(node) or node.reason.startswith(wellknown.REASON_PREFIX))
    )


def _newer_slurmd(node: Node) -> bool:
    started, downed = node.slurmd_start_time.value, node.reason_changed_at.value
    return started is not None and downed is not None and started > downed
