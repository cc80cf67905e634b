"""NodeSet: what autoscaling by Slurm needs, and what does not go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.api.nodeset import PruneRecords, ScalingMode
from slurm_operator.api.updates import UpdateStrategyType
from slurm_operator.objects.slurmd_records import record_shape
from slurm_operator.webhook.rules.findings import CauseType

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.webhook.rules.findings import Findings

_PATH: Final = "spec.autoscaling"
_DEFAULT_REPLICAS: Final = 1


def check(nodeset: NodeSet, findings: Findings) -> None:
    """Validate the autoscaling of a NodeSet, if it has any."""
    spec, scaling = nodeset.spec, nodeset.spec.autoscaling
    if scaling is None:
        return
    if spec.scaling_mode != ScalingMode.STATEFUL_SET:
        findings.deny(
            _PATH,
            "not allowed with scalingMode DaemonSet; remove it, or set scalingMode to StatefulSet",
            CauseType.FORBIDDEN,
        )
        return
    if scaling.min_replicas > scaling.max_replicas:
        findings.deny(
            f"{_PATH}.minReplicas",
            f"{scaling.min_replicas} exceeds maxReplicas, {scaling.max_replicas}; use at most that",
        )
    if spec.template.spec.get("hostNetwork"):
        findings.deny(
            _PATH,
            "not allowed with hostNetwork, where a worker has the name of its Kubernetes node; remove one",
            CauseType.FORBIDDEN,
        )
    if spec.update_strategy.type == UpdateStrategyType.SCHEDULED_UPDATE:
        findings.deny(
            _PATH,
            "not allowed with the update strategy ScheduledUpdate; use RollingUpdate or OnDelete: a worker "
            "that Slurm powers up has the newest revision",
            CauseType.FORBIDDEN,
        )
    if spec.replicas != _DEFAULT_REPLICAS:
        findings.warn("spec.replicas", f"{spec.replicas} has no effect while {_PATH} is set; remove it")
    if spec.prune_slurm_node_records != PruneRecords.NEVER:
        findings.warn(
            "spec.pruneSlurmNodeRecords",
            f"has no effect while {_PATH} is set: Slurm keeps a record for each of maxReplicas workers",
        )
    findings.attempt(lambda: record_shape(nodeset))
