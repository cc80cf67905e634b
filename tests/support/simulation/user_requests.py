"""What people ask of the NodeSet in a history, and what its status says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import wellknown
from tests.support.simulation.kubernetes import make_nodeset

if TYPE_CHECKING:
    from datetime import datetime

    from slurm_operator.api.nodeset import NodeSet

_TEMPLATES = ({"metadata": {"name": "scratch"}, "spec": {}},)


class Spec:
    """The spec, the metadata and the status of the NodeSet."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.least = 0
        self.most: int | None = None
        """The bounds of autoscaling; None while it is off."""
        self.mode = "StatefulSet"
        self.strategy = "RollingUpdate"
        self.max_unavailable: int | str = 1
        self.min_ready = 0
        self.pin = False
        self.prune = "Never"
        self.when_scaled = self.when_deleted = "Retain"
        self.window: datetime | None = None
        self.flags: tuple[str, ...] = ()
        self.revision = 1
        self.finalizers: tuple[str, ...] = ()
        self.deleting = False
        self.skip_drain = False
        self.status: dict[str, Any] = {}
        self._shown: tuple[object, NodeSet] | None = None
        self._spec: object = None
        self._generation = 0

    def nodeset(self) -> NodeSet:
        """Return the NodeSet as the API server has it."""
        state = {key: value for key, value in vars(self).items() if key in _SHOWN}
        if self._shown is None or self._shown[0] != state:
            spec = {key: value for key, value in state.items() if key not in _NO_SPEC}
            self._generation += spec != self._spec
            self._spec = spec
            self._shown = (state, self._make())
        return self._shown[1]

    def _make(self) -> NodeSet:
        strategy: dict[str, Any] = {
            "type": self.strategy,
            "rollingUpdate": {"maxUnavailable": self.max_unavailable},
        }
        if self.window is not None:
            start = f"{self.window:%Y-%m-%dT%H:%M:%SZ}"
            strategy["scheduledUpdate"] = {"startTime": start, "duration": "10m", "flags": self.flags}
        scaling = {} if self.most is None else {"minReplicas": self.least, "maxReplicas": self.most}
        return make_nodeset(
            replicas=self.replicas,
            **({"autoscaling": scaling} if scaling else {}),
            scalingMode=self.mode,
            updateStrategy=strategy,
            minReadySeconds=self.min_ready,
            pinToNode=self.pin,
            pruneSlurmNodeRecords=self.prune,
            volumeClaimTemplates=_TEMPLATES,
            persistentVolumeClaimRetentionPolicy={
                "whenScaled": self.when_scaled,
                "whenDeleted": self.when_deleted,
            },
            generation=self._generation,
            finalizers=self.finalizers,
            deleting=self.deleting,
            annotations={wellknown.ANNOTATION_SKIP_DRAIN: "true"} if self.skip_drain else {},
            status=self.status,
        )


_NO_SPEC = frozenset({"finalizers", "deleting", "skip_drain", "status"})
_SHOWN = frozenset(vars(Spec(0))) - {"_shown", "_spec", "_generation"}
