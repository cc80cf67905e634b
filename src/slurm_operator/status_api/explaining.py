"""What happens next with a blocked action, or what a person can do about it: one sentence for each reason.

The reason and the message come from the plan, unchanged. The sentence here adds what the plan need not know:
that it goes on by itself, or the command to type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import RemovalCause
from slurm_operator.slurm.model.jobs import UNLIMITED_SECONDS
from slurm_operator.status_api.moments import as_time
from slurm_operator.status_rows import BlockedRow, WaitRow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from slurm_operator.controllers.nodeset.decide.actions import Blocked, Defer

_BY_ITSELF: Final = "No action needed: the operator continues"
_SLURM_AGAIN: Final = f"{_BY_ITSELF} as soon as Slurm responds."
# `{pod}`, `{node}`, `{done}` and `{by}` are filled in.
_NEXT: Final[Mapping[Reason, str]] = {
    Reason.NO_CONNECTION: ("Check the Controller and its RestApi or Cluster: kubectl describe controller."),
    Reason.NO_VIEW: _SLURM_AGAIN,
    Reason.VIEW_STALE: f"{_SLURM_AGAIN} If this lasts, check the pods of slurmrestd and their logs.",
    Reason.SLURM_UNREACHABLE: (
        f"{_SLURM_AGAIN} If this lasts, check the pods, Service and NetworkPolicies of slurmrestd."
    ),
    Reason.SLURMCTLD_DOWN: f"{_SLURM_AGAIN} If this lasts, check the pod of slurmctld and its log.",
    Reason.TOKEN_REFUSED: (
        "Compare the JWT key of the Controller, or the token of the Cluster, with the key of slurmctld."
    ),
    Reason.SLURM_REFUSED: ("Make the user of the operator's token a Slurm administrator."),
    Reason.REPLY_UNREADABLE: (
        "Check that the server is slurmrestd in a supported version: see the log of the operator."
    ),
    Reason.REPLY_TOO_LARGE: ("Lower the number of nodes or jobs that Slurm keeps, such as by MinJobAge."),
    Reason.LIST_SUSPICIOUS: (f"{_BY_ITSELF} when several lists of nodes agree, after about two minutes."),
    Reason.CLUSTER_NAME_MISMATCH: (
        "Correct the server of the Cluster, or the clusterName of the Controller: they "
        "belong to different Slurm clusters."
    ),
    Reason.NODE_MISSING: f"{_BY_ITSELF} when enough lists of nodes agree.",
    Reason.CONTROLLER_JUST_STARTED: f"{_BY_ITSELF} about a minute after the start of slurmctld.",
    Reason.STATE_UNKNOWN: "Check the state of the node: scontrol show node {node}.",
    Reason.JOBS_UNKNOWN: f"{_BY_ITSELF} when Slurm has listed its jobs.",
    Reason.DRAIN_PENDING: f"{_BY_ITSELF} when Slurm lists the node as drained.",
    Reason.JOBS_RUNNING: (
        "It is {done} when its jobs have ended{by}. To cancel them now: scancel -w {node}."
    ),
    Reason.JOBS_COMPLETING: (
        "It is {done} when the job has left the node. If this lasts, look for a hanging "
        "epilog or process in pod {pod}."
    ),
    Reason.NODE_FAILING: "Drain or resume the node: scontrol update nodename={node} state=resume.",
    Reason.NODE_ABSENT: f"{_BY_ITSELF} after two minutes without the node, or when it registers.",
    Reason.NEVER_REGISTERED: (
        "Read the log of slurmd (kubectl logs {pod} -c slurmd), and delete the pod to start it again."
    ),
    Reason.LOST_WHILE_BUSY: (
        "When you are certain that no job runs in pod {pod}: kubectl annotate pod {pod} "
        "nodeset.slinky.slurm.net/allow-deletion=true, then delete it."
    ),
    Reason.FOREIGN_DRAIN: ("When the node may work again: scontrol update nodename={node} state=resume."),
    Reason.NAME_TAKEN: "Rename one of the workers: two have the same name in Slurm.",
    Reason.CLAIM_CONFLICT: "Decide which object owns the PVC: kubectl get pvc -o yaml.",
    Reason.BUDGET_MISSING: (
        "Let the operator create its PodDisruptionBudget: the condition Degraded reports what blocks it."
    ),
    Reason.CONTROLLER_GONE: (
        "Create the Controller again, or skip the drain: kubectl annotate nodeset NAME "
        "nodeset.slinky.slurm.net/skip-drain=true."
    ),
    Reason.NOT_READY: f"{_BY_ITSELF} when the pod is ready.",
    Reason.BACKING_OFF: ("See the logs of the pod: its pods keep ending. The next one is created later."),
    Reason.CLAIMS_PENDING: f"{_BY_ITSELF} when its PVCs have their owner.",
    Reason.NAME_IN_USE: f"{_BY_ITSELF} when the pod of that name is deleted.",
    Reason.MAX_UNAVAILABLE: f"{_BY_ITSELF} when other workers are available again.",
    Reason.CACHE_BEHIND: f"{_BY_ITSELF} in a moment.",
    Reason.POWERING_UP: f"{_BY_ITSELF} when Slurm has powered {{node}} up.",
    Reason.RECORD_PENDING: f"{_BY_ITSELF} when Slurm has deleted the records of power saving.",
    Reason.RECORD_SHAPE: f"{_BY_ITSELF} when the Controller of the NodeSet exists.",
    Reason.AUTOSCALING_UNSUPPORTED: "Remove spec.autoscaling, or fix what the message reports.",
}
_NO_LIMIT: Final = " (at least one has no time limit)"


def blocked(one: Blocked, jobs_end: float | None, since: datetime | None) -> BlockedRow:
    """Return a blocked action with the plan's own reason and message, and what comes next.

    `jobs_end` is when the last job on the node ends at the latest, in seconds since 1970.
    """
    undrain = one.cause is None
    return BlockedRow(
        action="undrain" if undrain else "delete",
        cause="" if one.cause is None else one.cause.value,
        reason=one.wait.reason.value,
        message=one.wait.message,
        next=_next(one.wait.reason, one.pod, one.slurm_name, one.cause, jobs_end),
        since=since,
    )


def waiting(wait: Defer) -> WaitRow:
    """Return what a NodeSet as a whole waits for."""
    return WaitRow(
        reason=wait.reason.value, message=wait.message, next=_next(wait.reason, "POD", "NODE", None, None)
    )


# These only take no new jobs; the pod stays when the jobs have ended.
_KEPT: Final = frozenset({RemovalCause.NODE_TAINT, RemovalCause.NODE_CORDON, RemovalCause.POD_CORDON})


def _next(reason: Reason, pod: str, node: str, cause: RemovalCause | None, jobs_end: float | None) -> str:
    done = "drained" if cause in _KEPT else "deleted"
    return _NEXT[reason].format(pod=pod, node=node, done=done, by=_by(jobs_end))


def _by(jobs_end: float | None) -> str:
    if jobs_end is None:
        return ""
    when = as_time(jobs_end) if jobs_end < UNLIMITED_SECONDS else None
    return _NO_LIMIT if when is None else f", at the latest at {when:%Y-%m-%dT%H:%M:%SZ}"
