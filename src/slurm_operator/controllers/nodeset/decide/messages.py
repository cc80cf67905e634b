"""What the NodeSet controller says in conditions, Events and logs: a function or constant per sentence.

A message says what happened, on what, and what to do next. It contains nothing that changes by itself, such
as an age: at rest nothing may be written. Tests render all of them into `tests/fixtures/messages.txt`; other
tests assert reasons. Sentences about Slurm as a whole are in `slurm_state`, those of drains in `actions`,
those of the maintenance window in `reservation`, next steps in `status_api.explaining`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import RemovalCause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from slurm_operator.api.reasons import Reason


def count(number: int, noun: str) -> str:
    """Return a number of things: `1 pod`, `3 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(number: int, noun: str, first: str) -> str:
    """Return a number of things and the name of the first: `1 pod (a)`, `3 pods (a, …)`."""
    return f"{count(number, noun)} ({first if number == 1 else f'{first}, …'})"


def similar(first: str, cases: int) -> str:
    """Return the message of the first of several cases of one problem."""
    return first if cases == 1 else f"{first} (and {count(cases - 1, 'similar case')})"


def moment(when: datetime) -> str:
    """Return a time as Kubernetes writes it."""
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


# ----------------------------------------------------------------------------------------- Ready, Progressing
CACHE_BEHIND: Final = "Waiting for the pod cache to show the last writes"
NOTHING_PENDING: Final = "No changes pending"
NO_PROBLEMS: Final = "No problems found"
NO_WINDOW: Final = "No maintenance window exists"
DELETING_RECORDS: Final = "Deleting the Slurm node records of power saving"
NO_WORKERS: Final = "No workers requested"

_CAUSES: Final[Mapping[RemovalCause, str]] = {
    RemovalCause.DELETION: "Deleting the NodeSet",
    RemovalCause.SCALING_MODE: "Changing the scaling mode",
    RemovalCause.FINISHED: "Replacing finished pods",
    RemovalCause.NODE_UNFIT: "Leaving Kubernetes nodes that do not match",
    RemovalCause.HOSTNAME: "Renaming Slurm nodes",
    RemovalCause.DUPLICATE: "Removing duplicate pods",
    RemovalCause.SCALE_IN: "Scaling in",
    RemovalCause.UPDATE: "Updating",
    RemovalCause.REGISTRATION: "Registering with Slurm again",
    RemovalCause.REQUESTED: "Removing on request",
    RemovalCause.NODE_TAINT: "Leaving tainted Kubernetes nodes",
    RemovalCause.NODE_CORDON: "Leaving cordoned Kubernetes nodes",
    RemovalCause.POD_CORDON: "Removing cordoned pods",
    RemovalCause.AUTOSCALING: "Replacing Slurm node records for autoscaling",
    RemovalCause.POWERED_DOWN: "Removing pods of powered-down nodes",
}


def pods_remain(pods: int) -> str:
    """Say how many pods a NodeSet that is being deleted still has."""
    return f"{count(pods, 'pod')} left to delete"


def available(workers: int, wanted: int) -> str:
    """Say how many of the wanted workers are in service."""
    return f"{workers} of {count(wanted, 'worker')} available"


def updated(workers: int, wanted: int) -> str:
    """Say how many of the wanted workers have the current revision."""
    return f"{workers} of {count(wanted, 'worker')} updated to the current revision"


def removing(workers: int, wanted: int) -> str:
    """Say how many workers are pending removal, although enough are available."""
    return f"{count(workers, 'worker')} pending removal, {wanted} wanted"


def all_available(workers: int) -> str:
    """Say that all wanted workers are in service."""
    return f"{count(workers, 'worker')} available"


def creating(pods: int) -> str:
    """Say that pods are being created."""
    return f"Creating {count(pods, 'pod')}"


def removing_for(cause: RemovalCause, pods: int) -> str:
    """Say why pods are pending removal."""
    return f"{_CAUSES[cause]}: {count(pods, 'pod')}"


def waiting(reasons: Mapping[Reason, int]) -> str:
    """Say what is waited for, each reason with a number."""
    listed = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    return f"Waiting: {listed}"


def drained_by_others(nodes: Sequence[str]) -> str:
    """Say how many nodes stay drained, given the message about each."""
    return f"{count(len(nodes), 'node')} drained by others: {nodes[0]}"


# --------------------------------------------------------------------------------------------------- Degraded
def blocked(workers: int, message: str) -> str:
    """Say what blocks workers, given the message about the first."""
    return f"{count(workers, 'worker')} blocked: {message}"


def pods_failed(pods: int, first: str) -> str:
    """Say that pods have failed."""
    return f"Failed: {some(pods, 'pod', first)}. See the events and logs of the pod"


def pods_not_running(pods: int, first: str, why: str) -> str:
    """Say that pods do not run although they should by now."""
    return f"Not running: {some(pods, 'pod', first)}: {why}"


def nodes_down(workers: int, first: str) -> str:
    """Say that Slurm has nodes down whose pods run."""
    return (
        f"Slurm reports {some(workers, 'running worker', first)} as DOWN: see the reason with "
        f"scontrol show node {first}"
    )


def nodes_refused(workers: int, first: str, reason: str) -> str:
    """Say that Slurm rejects the registration of nodes whose pods run."""
    why = f"with the reason {reason!r}" if reason else "without a reason"
    return (
        f"Slurm rejects the registration of {some(workers, 'running worker', first)} {why}: compare "
        "extraConf, resources.limits and gres.conf"
    )


def more_problems(number: int) -> str:
    """Say how many problems a condition leaves out."""
    return f"and {count(number, 'more problem')}"


# ---------------------------------------------------------------------------------------------- scale, update
def creating_to_reach(pods: int, wanted: int) -> str:
    """Announce pods with numbers."""
    return f"Creating {count(pods, 'pod')} to reach {wanted}"


def creating_on_nodes(pods: int) -> str:
    """Announce pods of Kubernetes nodes."""
    return f"Creating {count(pods, 'pod')} on matching Kubernetes nodes"


def removing_to_reach(pods: int, wanted: int) -> str:
    """Announce a scale-in."""
    return f"Removing {count(pods, 'pod')} to reach {wanted}"


def replacing_old(pods: int) -> str:
    """Announce an update."""
    return f"Replacing {count(pods, 'pod')} of an older revision"


def replacing_ended(pod: str, node: str, *, succeeded: bool) -> str:
    """Announce the replacement of the pod of a Kubernetes node."""
    ended = "succeeded" if succeeded else "failed"
    return f"Replacing pod {pod} on Kubernetes node {node}, which has {ended}"


def replacing_unregistered(pod: str, node: str) -> str:
    """Announce the replacement of a pod that Slurm does not have."""
    return f"Replacing pod {pod}: its node {node} is not registered in Slurm"


def no_more_unavailable(node: str) -> str:
    """Say that a pod that Slurm does not have is not replaced yet."""
    return f"Node {node} is not registered in Slurm, but maxUnavailable allows no more workers out of service"


def backing_off(pod: str, times: int, due: datetime) -> str:
    """Say when a pod that keeps ending is replaced; the time comes last, by which these are compared."""
    often = "once" if times == 1 else f"{times} times in a row"
    return f"Pod {pod} has ended {often} and is replaced at {moment(due)}"


def name_in_use(name: str, pod: str) -> str:
    """Say that a worker waits for the name of another."""
    return f"Slurm node name {name} is in use until pod {pod} is deleted"


def same_name(name: str, first: str, second: str) -> str:
    """Say that two Kubernetes nodes have one name in Slurm."""
    return (
        f"Kubernetes nodes {first} and {second} have the same Slurm node name {name!r}: annotate one of them "
        f"with {wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE}"
    )


def renaming(pod: str, name: str, wanted: str) -> str:
    """Announce the replacement of a pod under another name."""
    return f"Replacing pod {pod}: its Slurm node name is {name}, expected {wanted}"


def name_used_by(name: str, nodeset: str, field: str) -> str:
    """Say that another NodeSet has a worker of a name."""
    return f"Slurm node name {name!r} is in use by NodeSet {nodeset}: {_change(field)}"


def name_of_older(name: str, nodeset: str, field: str) -> str:
    """Say that an older NodeSet asks for a name."""
    return f"Slurm node name {name!r} belongs to older NodeSet {nodeset}: {_change(field)}"


def name_conflict(name: str, nodeset: str, field: str) -> str:
    """Say that an older NodeSet has a worker of a name that one of this NodeSet has, too."""
    return (
        f"Slurm node name {name!r} conflicts with older NodeSet {nodeset}: {_change(field)}, and delete this "
        "NodeSet's pod when no job runs in it"
    )


def _change(field: str) -> str:
    return f"change spec.template.spec.{field} of one of the two"


# ------------------------------------------------------------------------------------------- drain and cordon
UNDRAINING: Final = "The operator drained the node, and the cause no longer exists"
NOT_DRAINING: Final = "The node is not draining"


def undrained_when(node: str, *, healthy: bool) -> str:
    """Say what an undrain waits for."""
    return f"Node {node} is undrained when its pod is {'protected' if healthy else 'ready'}"


def foreign_drain(node: str, reason: str, *, rejected: bool) -> str:
    """Say that a node stays drained."""
    who = "Slurm, which rejects its registration," if rejected else "another client"
    why = f"with the reason {reason!r}" if reason else "without a reason"
    return f"Node {node} was drained by {who} {why} and stays drained until a user resumes it"


def failing(node: str) -> str:
    """Say that a node cannot be drained because it is marked FAIL."""
    return f"Node {node} is marked FAIL, which a drain would clear: drain or resume it with scontrol"


def powering_up(node: str) -> str:
    """Say that a drain waits."""
    return f"Node {node} is powering up and is drained afterwards"


def awaited(node: str) -> str:
    """Say that a deletion waits."""
    return f"Node {node} is powering up, and a job may wait for the pod"


def node_cordoned(node: str, pod: str) -> str:
    """Announce a cordon that follows that of the Kubernetes node."""
    return f"Kubernetes node {node} is cordoned: pod {pod} takes no new jobs"


def removal_requested(pod: str, by: str) -> str:
    """Announce a drain for a request that was refused."""
    requester = f" ({by})" if by else ""
    return f"Removal of pod {pod} was requested{requester}: it is drained, and removed when it is idle"


# --------------------------------------------------------------------------------------------------- deletion
UNVERIFIED: Final = "cannot verify that the node is idle"
NOT_CONNECTED: Final = f"Not connected to slurmrestd: {UNVERIFIED}"
NOT_STARTED: Final = "slurmd has never started in the pod, and Slurm does not list its node"
FINISHED: Final = "The pod has finished, and Slurm does not list its node"
LONG_ABSENT: Final = "Slurm has not listed the node for a long time"
LONG_ABSENT_RUNNING: Final = "The pod runs, but Slurm has not listed its node for a long time"
NEVER_SCHEDULED: Final = "The pod was never scheduled"
OUT_OF_SERVICE: Final = "The Kubernetes node is not ready and has the out-of-service taint"
LISTED: Final = "Slurm lists the node"
NOT_LISTED: Final = "Slurm does not list the node"
NOT_AVAILABLE: Final = "The pod is not available yet"
NO_JOB_LIST: Final = "Slurm lists neither the node nor its jobs"
OWNING_CLAIMS: Final = "Setting the owner of the pod's PVCs first"


def drained(node: str) -> str:
    """Say that a pod may be deleted."""
    return f"Node {node} is drained"


def powered_down(node: str) -> str:
    """Say that a pod may be deleted, without a drain."""
    return f"Node {node} is powered down"


def never_registered(node: str, pod: str) -> str:
    """Say that Slurm has never had a node."""
    return (
        f"Slurm has never listed node {node}: see the slurmd log of pod {pod}, and delete the pod to start "
        "it again"
    )


def lost_while_busy(node: str, until: datetime | None) -> str:
    """Say for how long the pod of a busy node that Slurm lost stays; None is until a user deletes it."""
    end = "until a user deletes it" if until is None else f"until {moment(until)}"
    return f"Slurm lost node {node} while jobs ran on it; they may still run, so the pod stays {end}"


def may_register(node: str) -> str:
    """Say that the slurmd of a node that Slurm does not list may still be starting."""
    return f"Slurm does not list node {node}, which may still register"


def list_incomplete(node: str) -> str:
    """Say that Slurm's list lacks a node that exists."""
    return f"Slurm does not list node {node}, but reports it by name: the list is incomplete"


def jobs_on_unlisted(node: str) -> str:
    """Say that Slurm has jobs on a node that it does not list."""
    return f"Slurm does not list node {node}, but lists jobs on it"


def jobs_unplaced(node: str) -> str:
    """Say that it is unknown where jobs run."""
    return f"Slurm lists jobs whose nodes cannot be read: one may run on node {node}"


def other_cluster(pod: str, there: str, here: str) -> str:
    """Say that a pod has joined the cluster of another Controller."""
    return (
        f"Pod {pod} belongs to Controller {there}; Controller {here} has no information about its jobs: "
        "delete the pod when no job runs in it"
    )


RECORD_SHAPE_UNKNOWN: Final = "The CPUs and memory of the workers are not known yet"
RECORDS_UNKNOWN: Final = "Waiting for a list of Slurm nodes that shows which records of power saving are left"


def records_first(records: int) -> str:
    """Say that pods wait for the deletion of records that have their names."""
    return f"Deleting {count(records, 'Slurm node record')} of power saving first"


def name_used_elsewhere(name: str) -> str:
    """Say that a record waits for a name that a pod of another NodeSet has."""
    return f"Slurm node name {name} is in use by a pod of another NodeSet"


def resuming(workers: int) -> str:
    """Announce pods for nodes that Slurm has powered up."""
    return f"Resuming {count(workers, 'worker')}: Slurm has powered up the nodes"


def removing_powered_down(workers: int) -> str:
    """Announce the removal of pods whose nodes Slurm has powered down."""
    return f"Removing {count(workers, 'worker')}: Slurm has powered down the nodes"


def not_up_in_time(nodes: int, first: str) -> str:
    """Say that nodes missed the ResumeTimeout."""
    return f"Did not come up in time: {some(nodes, 'Slurm node', first)}; Slurm may try again"


def record_deleted(node: str, pod: str) -> str:
    """Announce the deletion of the record of a worker that is gone."""
    return f"Deleting stale Slurm node record {node}: its pod {pod} no longer exists"


# ------------------------------------------------------------------------------------ PVCs, finalizer, budget
def claim_leaving(claim: str) -> str:
    """Say that a pod waits for the PVC of the one before."""
    return f"PVC {claim} of an earlier worker is still being deleted"


def claim_conflict(claim: str, owner: str) -> str:
    """Say that a PVC has another owner."""
    return f"PVC {claim} is controlled by {owner}, so it is kept when its worker is removed"


def still_protected(pod: str) -> str:
    """Say that Kubernetes could not delete a pod with its NodeSet."""
    return (
        f"Pod {pod} is still protected, so Kubernetes cannot delete it with the NodeSet: remove its label "
        f"{wellknown.LABEL_POD_PROTECT}"
    )


def controller_gone(controller: str, reservation: str = "") -> str:
    """Say that an external Slurm cannot be queried because its Controller is gone, and what that blocks."""
    unknown = (
        f"reservation {reservation!r} cannot be deleted"
        if reservation
        else "running jobs cannot be ruled out"
    )
    return (
        f"Controller {controller!r} is deleted and its external Slurm cannot be queried, so {unknown}: "
        "create the Controller and its RestApi or Cluster again, or annotate the NodeSet with "
        f"{wellknown.ANNOTATION_SKIP_DRAIN}=true to delete it with all jobs that run"
    )


def unlabelled_pods(pods: int, first: str) -> str:
    """Say that pods would be deleted with the NodeSet although they are not its workers."""
    return (
        f"Kubernetes would delete {some(pods, 'pod', first)} without the labels of a worker with the "
        "NodeSet, and jobs may run there: delete such pods, or remove their ownerReferences"
    )


def unreadable_pods(pods: int, first: str) -> str:
    """Say that pods might be deleted with the NodeSet."""
    return (
        f"Cannot read {some(pods, 'pod', first)}, which Kubernetes may delete with the NodeSet: fix or "
        "delete such pods"
    )


def budget_missing(name: str) -> str:
    """Say that workers could be evicted."""
    return (
        f"The operator's PodDisruptionBudget {name!r} is not in place, so Kubernetes could evict workers "
        "with running jobs: no worker is created, undrained or resumed until it is. Remove what blocks it "
        "(an object of that name, a quota, an admission webhook, missing permissions)"
    )
