"""Observations for tests, in few words: pods by their name, nodes of Slurm by their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.controllers.nodeset.observation import Observation, Revision, read_worker
from slurm_operator.controllers.nodeset.sight import Sight
from tests.unit.nodeset.clustermodel import SimPod, make_nodeset, moment
from tests.unit.slurm.views import NOW, view

if TYPE_CHECKING:
    from slurm_operator.api.nodeset import NodeSet
    from slurm_operator.controllers.nodeset.observation import Worker
    from slurm_operator.slurm.model import Node

# When the pods of a test became ready, long before now.
READY = NOW - 900


def pod(number: int, /, **fields: Any) -> SimPod:
    """Return a pod that runs and serves."""
    settled: dict[str, Any] = {
        "name": f"gpu-{number}",
        "uid": f"uid-{number}",
        "mode": "StatefulSet",
        "index": str(number),
        "hostname": f"gpu-{number}",
        "revision": "r1",
        "created": READY,
        "node": f"node-{number}",
        "phase": "Running",
        "started": True,
        "ready_since": READY,
    }
    return SimPod(**(settled | fields))


def worker(number: int = 0, /, **fields: Any) -> Worker:
    """Return a worker that runs and serves."""
    return read_worker(make_nodeset(), pod(number, **fields).show())


def observe(
    *pods: SimPod, slurm: tuple[Node, ...] = (), nodeset: NodeSet | None = None, **fields: Any
) -> Observation:
    """Return what one reconcile sees."""
    chosen = nodeset or make_nodeset(replicas=len(pods), finalizers=("nodeset.slinky.slurm.net/drain",))
    seen: dict[str, Any] = {
        "nodeset": chosen,
        "workers": tuple(read_worker(chosen, one.show()) for one in pods),
        "revision": Revision("r1", frozenset({"r1"})),
        "wall": moment(NOW),
        "now": NOW,
        "view": view(*slurm),
    }
    return Observation(**(seen | fields))


def sight(*slurm: Node, **fields: Any) -> Sight:
    """Return what Slurm says when it has these nodes."""
    return Sight(observe(view=view(*slurm, **fields)))
