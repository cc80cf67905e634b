"""What a reconcile of an autoscaled NodeSet sees, and the power states of Slurm's nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.objects.slurmd_records import RecordShape
from tests.support.simulation.kubernetes import SimPod, make_nodeset
from tests.support.simulation.observations import observe
from tests.support.slurm.views import node

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.slurm.model.records import Node

CLOUD = ("CLOUD", "DYNAMIC_NORM")
DOWN = ("IDLE", *CLOUD, "POWERED_DOWN")
SUSPENDING = ("IDLE", *CLOUD, "POWERING_DOWN")
RESUMING = ("MIXED", *CLOUD, "NOT_RESPONDING", "POWERING_UP")
UP = ("IDLE", *CLOUD)
FINALIZER = ("nodeset.slinky.slurm.net/drain",)
SHAPE = RecordShape(2, 1000, frozenset({"gpu"}), frozenset(), 300, "CPUs=2 Features=gpu RealMemory=1000")


def record(index: int, *state: str, **fields: Any) -> Node:
    """Return the record of a worker as Slurm lists it."""
    shape: dict[str, Any] = {"cpus": 2, "real_memory": 1000, "features": ("gpu",)}
    return node(f"gpu-{index}", *state, **(shape | fields))


def scaled(
    *pods: SimPod, slurm: tuple[Node, ...] = (), low: int = 0, high: int = 2, **fields: Any
) -> Observation:
    """Return what one reconcile of an autoscaled NodeSet sees."""
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    nodeset = make_nodeset(
        replicas=5,
        status=fields.pop("status", said),
        finalizers=FINALIZER,
        autoscaling={"minReplicas": low, "maxReplicas": high},
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
        **fields.pop("spec", {}),
    )
    return observe(*pods, slurm=slurm, nodeset=nodeset, **({"record": SHAPE} | fields))


def some(seen: Observation, kind: type[Any]) -> list[Any]:
    """Return the planned actions of a kind."""
    return [one for one in plan(seen).actions if isinstance(one, kind)]
