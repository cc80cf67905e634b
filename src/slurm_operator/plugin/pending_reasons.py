"""Why a job is pending, in plain sentences: Slurm's reason codes, what each means and what to do.

The codes are those that `squeue` prints in its column REASON and slurmrestd returns as `state_reason`. Slurm
adds codes between releases, so an unknown one is shown as it is. `topic` says which facts of the operator
belong beside the reason (`explain_job`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Topic(Enum):
    """What a pending job waits for, as far as it decides which facts of the operator are of interest."""

    NODES = "nodes"
    """Nodes with room: NodeSets, workers that start, drains."""
    PRIORITY = "priority"
    """Other jobs that come first."""
    WINDOW = "window"
    """A reservation or a maintenance window."""
    USER = "user"
    """The user: the job itself asks to wait, or asks for something impossible."""
    LIMIT = "limit"
    """A limit of an association, a QOS or a partition."""
    ADMINISTRATOR = "administrator"
    """An administrator: a hold, a partition that is down, accounting."""
    SLURM = "slurm"
    """Slurm itself, for a moment or after a failure."""


@dataclass(frozen=True, slots=True)
class PendingReason:
    """The meaning of one reason code, and what to do about it."""

    meaning: str
    advice: str
    topic: Topic


def _nodes(meaning: str, advice: str) -> PendingReason:
    return PendingReason(meaning, advice, Topic.NODES)


def _user(meaning: str, advice: str) -> PendingReason:
    return PendingReason(meaning, advice, Topic.USER)


def _limit(meaning: str, advice: str = "") -> PendingReason:
    told = advice or "Wait for running jobs to end, or ask an administrator to raise the limit."
    return PendingReason(meaning, told, Topic.LIMIT)


def _administrator(meaning: str, advice: str) -> PendingReason:
    return PendingReason(meaning, advice, Topic.ADMINISTRATOR)


def _slurm(meaning: str, advice: str) -> PendingReason:
    return PendingReason(meaning, advice, Topic.SLURM)


REASONS: Final[dict[str, PendingReason]] = {
    # ------------------------------------------------------------------------------------ nodes and resources
    "Resources": _nodes(
        "The job is next in line and waits until enough CPUs, memory or GPUs are free.",
        "Wait for running jobs to end, or add workers.",
    ),
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": _nodes(
        "Nodes that the job needs are down, drained or kept free for partitions with a higher priority.",
        "Look at the nodes with `kubectl slurm nodes`, or choose another partition.",
    ),
    "ReqNodeNotAvail": _nodes(
        "A node that the job asks for by name is down, drained, reserved or does not respond.",
        "Look at that node, or submit without --nodelist.",
    ),
    "NodeDown": _nodes("A node that the job needs is down.", "Look at the node; Slurm tries again."),
    "BadConstraints": _nodes(
        "No node in the partition fulfils the features or resources that the job asks for.",
        "Check --constraint, --gres, --mem and --cpus-per-task against `scontrol show node`.",
    ),
    "PartitionNodeLimit": _nodes(
        "The job asks for more nodes than its partition has or allows, or for nodes that are down.",
        "Ask for fewer nodes, or add workers to the NodeSets of the partition.",
    ),
    "PartitionConfig": _nodes(
        "The partition has fewer nodes, CPUs or memory than the job asks for.",
        "Ask for less, or add workers to the NodeSets of the partition.",
    ),
    "Licenses": _nodes(
        "The licenses that the job asks for are in use by other jobs.",
        "Wait, or look at `scontrol show licenses`.",
    ),
    # ----------------------------------------------------------------------------------------------- priority
    "Priority": PendingReason(
        "Jobs with a higher priority in the same partition come first.",
        "Wait; `sprio` shows how the priority is made up.",
        Topic.PRIORITY,
    ),
    # --------------------------------------------------------------------------- reservations and maintenance
    "Reservation": PendingReason(
        "The job waits for its reservation to start.",
        "Look at the start with `scontrol show reservation`.",
        Topic.WINDOW,
    ),
    "ReqNodeNotAvail,_May_be_reserved_for_other_job": PendingReason(
        "The nodes are reserved, for a maintenance window or for other jobs, before the job could end.",
        "Submit with a shorter --time, or wait until the reservation is over.",
        Topic.WINDOW,
    ),
    "ReservationDeleted": PendingReason(
        "The reservation that the job asks for has been deleted, so the job is held.",
        "Change it with `scontrol update jobid=JOB reservation=`, then `scontrol release JOB`.",
        Topic.WINDOW,
    ),
    "ReservationInvalid": PendingReason(
        "The reservation that the job asks for does not exist, or the user may not use it.",
        "Submit without --reservation, or look at `scontrol show reservation`.",
        Topic.WINDOW,
    ),
    # ---------------------------------------------------------------------------------- what the job asks for
    "BeginTime": _user(
        "The job asks to start later (--begin), or was requeued and may start again in a moment.",
        "Wait until then.",
    ),
    "Dependency": _user(
        "The job waits for another job (--dependency).", "Look at that job with `scontrol show job`."
    ),
    "DependencyNeverSatisfied": _user(
        "The job depends on another one that ended in a way that can never fulfil the dependency.",
        "Cancel the job with scancel, or change --dependency.",
    ),
    "JobHeldUser": _user(
        "The user, or the owner of the job, has held it.", "Release it: `scontrol release JOB`."
    ),
    "JobArrayTaskLimit": _user(
        "As many tasks of this job array run as the array itself allows (the % in --array).", "Wait."
    ),
    "DeadLine": _user("The job can no longer end before its --deadline.", "Submit it with another deadline."),
    "TimeLimit": _user(
        "The job asks for more time than its partition or the next reservation leaves.",
        "Submit with a shorter --time.",
    ),
    "PartitionTimeLimit": _user(
        "The job asks for more time than its partition allows.",
        "Submit with a shorter --time, or choose another partition.",
    ),
    "InvalidAccount": _user(
        "The account of the job does not exist, or the user may not use it.",
        "Submit with another --account; `sacctmgr show associations` lists yours.",
    ),
    "InvalidQOS": _user(
        "The QOS of the job does not exist, or the user may not use it.", "Submit with another --qos."
    ),
    "AccountNotAllowed": _user(
        "The partition does not accept jobs of this account.", "Choose another partition or account."
    ),
    "QOSNotAllowed": _user(
        "The partition does not accept jobs with this QOS.", "Choose another partition or QOS."
    ),
    "Cleaning": _slurm(
        "The job was requeued, and its previous run is still being cleaned up.",
        "Wait; if it stays, look at the epilog on its nodes.",
    ),
    "Prolog": _slurm("The prolog of the job is still running.", "Wait; if it stays, look at the prolog."),
    "JobHoldMaxRequeue": _administrator(
        "The job has been requeued so often that Slurm holds it (MAX_BATCH_REQUEUE).",
        "Find out why its nodes or its start fail, then `scontrol release JOB`.",
    ),
    "JobHeldAdmin": _administrator(
        "An administrator has held the job.", "Ask an administrator to release it."
    ),
    "launch_failed_requeued_held": _administrator(
        "The job could not be started on its nodes, was requeued and is held.",
        "Look at slurmd's log on these nodes, then `scontrol release JOB`.",
    ),
    "job_requeued_in_held_state": _administrator(
        "The job was requeued and is held.", "Release it: `scontrol release JOB`."
    ),
    "PartitionDown": _administrator(
        "The partition accepts jobs but starts none (state DOWN).",
        "An administrator sets it to UP: `scontrol update partitionname=P state=up`.",
    ),
    "PartitionInactive": _administrator(
        "The partition neither accepts nor starts jobs (state INACTIVE).",
        "An administrator sets it to UP: `scontrol update partitionname=P state=up`.",
    ),
    "AccountingPolicy": _limit("A limit in accounting does not allow the job to start now."),
    "NonZeroExitCode": _slurm("The job ended with an exit code other than 0.", "Look at its output."),
    "RaisedSignal": _slurm("The job was ended by a signal.", "Look at its output."),
    "SystemFailure": _slurm(
        "Slurm, the file system or the network failed while the job was started.", "Look at slurmctld's log."
    ),
    "JobLaunchFailure": _slurm(
        "The job could not be started, for example because its working directory or program is missing.",
        "Look at slurmd's log on its nodes.",
    ),
    "OutOfMemory": _slurm("The job used more memory than it asked for.", "Submit with a larger --mem."),
    "BurstBufferResources": _slurm("Storage of the burst buffer is in use by other jobs.", "Wait."),
    "BurstBufferStageIn": _slurm("Data of the job is being copied to the burst buffer.", "Wait."),
    "SchedDefer": _slurm(
        "The scheduler is set to start jobs only in its regular rounds, not on submission (defer).", "Wait."
    ),
    "None": _slurm("The scheduler has not looked at the job yet.", "Wait a few seconds."),
    # ------------------------------------------------------------------------------------------------- limits
    "AssociationJobLimit": _limit("The account runs as many jobs as it may."),
    "AssocMaxJobsLimit": _limit("The account of the user runs as many jobs as it may."),
    "AssocGrpJobsLimit": _limit("The account and those below it run as many jobs as they may."),
    "AssocGrpCpuLimit": _limit("The account and those below it use as many CPUs as they may."),
    "AssocGrpMemLimit": _limit("The account and those below it use as much memory as they may."),
    "AssocGrpNodeLimit": _limit("The account and those below it use as many nodes as they may."),
    "AssocGrpGRES": _limit("The account and those below it use as many GPUs (GRES) as they may."),
    "AssocGrpBilling": _limit("The account and those below it use as much billing (TRES) as they may."),
    "AssocMaxCpuPerJobLimit": _limit(
        "The job asks for more CPUs than the account allows for one job.", "Ask for fewer CPUs."
    ),
    "AssocMaxNodePerJobLimit": _limit(
        "The job asks for more nodes than the account allows for one job.", "Ask for fewer nodes."
    ),
    "AssocMaxGRESPerJob": _limit(
        "The job asks for more GPUs (GRES) than the account allows for one job.", "Ask for fewer."
    ),
    "AssociationTimeLimit": _limit(
        "The account has used up its time, or the job asks for more than it allows.", "Shorten --time."
    ),
    "AssocMaxWallDurationPerJobLimit": _limit(
        "The job asks for more time than the account allows for one job.", "Submit with a shorter --time."
    ),
    "AssocGrpCPUMinutesLimit": _limit("The account and those below it have used up their CPU minutes."),
    "QOSJobLimit": _limit("As many jobs run with this QOS as it allows."),
    "QOSResourceLimit": _limit("Jobs with this QOS use as many resources as it allows."),
    "QOSTimeLimit": _limit("The QOS has used up its time."),
    "QOSUsageThreshold": _limit("The usage of the account is above the threshold of this QOS."),
    "QOSGrpCpuLimit": _limit("Jobs with this QOS use as many CPUs as it allows in total."),
    "QOSGrpMemLimit": _limit("Jobs with this QOS use as much memory as it allows in total."),
    "QOSGrpNodeLimit": _limit("Jobs with this QOS use as many nodes as it allows in total."),
    "QOSGrpGRES": _limit("Jobs with this QOS use as many GPUs (GRES) as it allows in total."),
    "QOSGrpJobsLimit": _limit("As many jobs run with this QOS as it allows in total."),
    "QOSMaxCpuPerJobLimit": _limit(
        "The job asks for more CPUs than its QOS allows for one job.", "Ask for fewer CPUs."
    ),
    "QOSMaxNodePerJobLimit": _limit(
        "The job asks for more nodes than its QOS allows for one job.", "Ask for fewer nodes."
    ),
    "QOSMaxGRESPerUser": _limit("The user has as many GPUs (GRES) with this QOS as one user may."),
    "QOSMaxCpuPerUserLimit": _limit("The user has as many CPUs with this QOS as one user may."),
    "QOSMaxMemoryPerUser": _limit("The user has as much memory with this QOS as one user may."),
    "QOSMaxNodePerUserLimit": _limit("The user has as many nodes with this QOS as one user may."),
    "QOSMaxJobsPerUserLimit": _limit("The user runs as many jobs with this QOS as one user may."),
    "QOSMaxWallDurationPerJobLimit": _limit(
        "The job asks for more time than its QOS allows for one job.", "Submit with a shorter --time."
    ),
    "QOSMinCpuNotSatisfied": _limit(
        "The job asks for fewer CPUs than its QOS requires.", "Ask for more CPUs, or use another QOS."
    ),
}

# The texts that slurmctld builds begin with a code and go on with names: of nodes, of a reservation.
_SEPARATORS: Final = (",", ":", "(")


def pending_reason(code: str) -> PendingReason | None:
    """Return what a reason code means, also where Slurm has added names to it; None if it is unknown."""
    plain = code.strip().strip("()").replace(" ", "_")
    if (found := REASONS.get(plain)) is not None:
        return found
    # The longest code that the text begins with, at a word's end.
    starts = [
        known
        for known in REASONS
        if plain.startswith(known) and plain[len(known) : len(known) + 1] in _SEPARATORS
    ]
    return REASONS[max(starts, key=len)] if starts else None
