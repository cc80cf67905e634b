"""Observations for tests, in few words: pods by their name, nodes of Slurm by their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.observation import Observation, Revision, read_worker
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
from slurm_operator.controllers.nodeset.decide.status import Report, report
from slurm_operator.kube.models.meta import Condition
from tests.support.simulation.kubernetes import SimPod, make_nodeset, moment
from tests.support.slurm.views import NOW, view

if TYPE_CHECKING:
    from slurm_operator.api.nodeset import NodeSet
    from slurm_operator.controllers.nodeset.decide.observation import Worker
    from slurm_operator.slurm.model.records import Node

# When the pods of a test became ready, long before now.
READY = NOW - 900


def pod(number: int, /, *, protected: bool = True, **fields: Any) -> SimPod:
    """Return a pod that runs and serves, and is protected unless told otherwise."""
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
    label = {wellknown.LABEL_POD_PROTECT: "true"} if protected else {}
    fields["labels"] = label | fields.get("labels", {})
    return SimPod(**(settled | fields))


def shown(*states: str) -> dict[str, Condition]:
    """Return the conditions by which a pod says in which states Slurm has listed its node."""
    kinds = [f"{wellknown.POD_CONDITION_PREFIX}{state}" for state in states]
    return {kind: Condition(type=kind, status="True") for kind in kinds}


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


def slurm_state(*slurm: Node, **fields: Any) -> SlurmState:
    """Return what Slurm says when it has these nodes."""
    return SlurmState(observe(view=view(*slurm, **fields)))


def reported(seen: Observation) -> Report:
    """Return what the status of a NodeSet reports when this is observed."""
    return report(seen, plan(seen))
