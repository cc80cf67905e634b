"""Why a job is pending: Slurm's reason in plain words, joined with what the operator knows; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from slurm_operator.plugin.explain_power import (
    POWERING_DOWN,
    POWERING_UP,
    UP,
    came_late,
    pending_step,
    set_bound,
    when_late,
)
from slurm_operator.plugin.explanations import CAUSES, Explanation
from slurm_operator.plugin.pending_reasons import Topic, pending_reason
from slurm_operator.plugin.text_tables import age, counted, listed, moment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from slurm_operator.status_rows import AutoscalingRow, ClusterRow, JobRow, NodeSetRow, WorkerRow

_SHOWN: Final = 3
# Topics for which the state of workers matters.
_REQUEUED: Final = "BeginTime"
_ABOUT_WORKERS: Final = (Topic.NODES, Topic.PRIORITY, Topic.WINDOW)
# A request for features that is only words and `&`: others (alternatives, counts) are not checked here.
_ALL_OF: Final = re.compile(r"[\w.:+/-]+(&[\w.:+/-]+)*")


def explain_job(
    job: JobRow,
    cluster: ClusterRow | None,
    nodesets: Sequence[NodeSetRow],
    workers: Sequence[WorkerRow],
    now: datetime | None,
) -> Explanation:
    """Explain a job; NodeSets and workers are those of its Slurm cluster."""
    pending = "PENDING" in job.state
    if "CONFIGURING" in job.state:
        return _explain_start(job, cluster, nodesets, workers, now)
    reason = pending_reason(job.state_reason) if pending else None
    topic = Topic.NODES if reason is None else reason.topic
    facts = _facts(job, cluster, nodesets, workers) if pending and topic in _ABOUT_WORKERS else ()
    if pending and job.state_reason == _REQUEUED:
        facts = tuple(_late(_in_partition(job, workers)))
    return Explanation(
        subject=_subject(job),
        state=_state(job, now),
        why=_why(job, pending=pending),
        waits_for=facts,
        since=_moment(job.submit_time, now) if pending else "",
        next=_next(job, now, pending=pending),
        commands=_commands(job, cluster, nodesets, workers, pending=pending, topic=topic),
    )


def _explain_start(
    job: JobRow,
    cluster: ClusterRow | None,
    nodesets: Sequence[NodeSetRow],
    workers: Sequence[WorkerRow],
    now: datetime | None,
) -> Explanation:
    """Explain a job that has its nodes and has not started on them."""
    own = [one for one in workers if job.id in one.jobs]
    rising = [one for one in own if one.power == POWERING_UP]
    scaling = next((one.autoscaling for one in nodesets if one.name in {row.nodeset for row in rising}), None)
    waits = [f"{one.slurm_node}: {pending_step(one)}" for one in rising[:_SHOWN]]
    waits += [f"{one.slurm_node}: {one.problem}" for one in rising[:_SHOWN] if one.problem]
    if len(rising) > _SHOWN:
        waits.append(f"{counted(len(rising) - _SHOWN, 'more node is', 'more nodes are')} powering up.")
    up = "POWER_UP_NODE" in job.state and bool(own) and not rising and all(one.power == UP for one in own)
    if up:
        waits.append(
            "Its nodes are up. slurmctld checks every 30 seconds whether they are, and starts it then."
        )
    started = bool(rising) or "POWER_UP_NODE" in job.state
    why = "Slurm has given it nodes, and it starts when all of them are ready (CONFIGURING)"
    commands = [f"kubectl slurm explain node {one.slurm_node} -n {one.namespace}" for one in rising[:2]]
    return Explanation(
        subject=_subject(job),
        state=_state(job, now),
        why=(f"{why}: workers are being started for it." if started else f"{why}.",),
        waits_for=tuple(waits),
        since=_moment(job.start_time, now),
        next=(when_late(scaling),) if rising else (),
        commands=(*commands, *_commands(job, cluster, nodesets, workers, pending=False, topic=Topic.NODES)),
    )


def _subject(job: JobRow) -> str:
    number = f"{job.array_job_id}_{job.array_task}" if job.array_job_id and job.array_task else str(job.id)
    name = f" ({job.name})" if job.name else ""
    return f"Job {number}{name} of {job.user or 'an unknown user'}, partition {job.partition or '(none)'}"


def _state(job: JobRow, now: datetime | None) -> tuple[str, ...]:
    words = "+".join(job.state) or "UNKNOWN"
    lines = [f"{words} on {job.nodes}" if job.nodes else words]
    asks = [
        counted(job.node_count, "node") if job.node_count else "",
        counted(job.cpus, "CPU") if job.cpus else "",
        f"features {job.features}" if job.features else "",
        f"reservation {job.reservation}" if job.reservation else "",
        f"{job.time_limit_minutes:g} minutes" if job.time_limit_minutes else "no time limit",
    ]
    lines.append(f"{'asks for' if 'PENDING' in job.state else 'has'} {', '.join(one for one in asks if one)}")
    if "RUNNING" in job.state and job.end_time is not None:
        left = "" if now is None or job.end_time < now else f" (in {age(now, job.end_time)})"
        lines.append(f"ends at the latest at {moment(job.end_time)}{left}")
    return tuple(lines)


def _why(job: JobRow, *, pending: bool) -> tuple[str, ...]:
    if not pending:
        return () if "RUNNING" in job.state else (f"Slurm's reason: {job.state_reason or 'none'}",)
    reason = pending_reason(job.state_reason)
    if reason is None:
        return (f"Slurm's reason is {job.state_reason or 'empty'}, which this command does not know.",)
    return (f"{job.state_reason or 'None'}: {reason.meaning}",)


def _moment(at: datetime | None, now: datetime | None) -> str:
    if at is None:
        return ""
    old = age(at, now)
    return f"{moment(at)}{f' ({old} ago)' if old else ''}"


def _next(job: JobRow, now: datetime | None, *, pending: bool) -> tuple[str, ...]:
    if not pending:
        return ()
    found = []
    reason = pending_reason(job.state_reason)
    if reason is not None:
        found.append(reason.advice)
    if job.start_time is not None and (now is None or job.start_time > now):
        found.append(f"Slurm expects to start it at {moment(job.start_time)}.")
    return tuple(found)


def _in_partition(job: JobRow, workers: Sequence[WorkerRow]) -> list[WorkerRow]:
    names = job.partition.split(",")
    return [one for one in workers if not one.partitions or any(name in one.partitions for name in names)]


def _facts(
    job: JobRow,
    cluster: ClusterRow | None,
    nodesets: Sequence[NodeSetRow],
    workers: Sequence[WorkerRow],
) -> tuple[str, ...]:
    """Return what the operator knows that may keep the job from starting."""
    found = []
    if cluster is not None and not cluster.connected:
        found.append(f"The operator has no connection to Slurm ({cluster.reason}): {cluster.message}")
    candidates = _in_partition(job, workers)
    if not candidates:
        found.append(f"No worker of the operator is in partition {job.partition}.")
    found += _missing_features(job, candidates)
    found += _pending_workers(candidates)
    found += _powered(candidates)
    found += _late(candidates)
    found += _drains(candidates)
    found += _reservations(candidates)
    found += _sizes(nodesets, candidates)
    return tuple(found)


def _missing_features(job: JobRow, workers: Sequence[WorkerRow]) -> list[str]:
    if not job.features or not workers or _ALL_OF.fullmatch(job.features) is None:
        return []
    wanted = {*job.features.split("&")}
    # A node that Slurm does not list has no features to compare.
    known = [one for one in workers if one.features]
    if not known or any(wanted <= {*one.features} for one in known):
        return []
    return [f"No worker in partition {job.partition} has the features {job.features}."]


def _pending_workers(workers: Sequence[WorkerRow]) -> list[str]:
    waiting = [one for one in workers if one.problem and not one.deleting]
    lines = [f"Worker {one.pod} is {one.phase or 'not running'}: {one.problem}" for one in waiting[:_SHOWN]]
    if len(waiting) > _SHOWN:
        lines.append(f"{counted(len(waiting) - _SHOWN, 'more worker')} of these do not run either.")
    starting = sum(one.summary == "starting" and not one.problem for one in workers)
    if starting:
        lines.append(f"{counted(starting, 'worker is', 'workers are')} starting.")
    return lines


def _powered(workers: Sequence[WorkerRow]) -> list[str]:
    down = [one.slurm_node for one in workers if one.summary == "powered-down"]
    leaving = [one.slurm_node for one in workers if one.power == POWERING_DOWN]
    found = []
    if down:
        them = "it" if len(down) == 1 else "them"
        found.append(
            f"{counted(len(down), 'node is', 'nodes are')} powered down ({_names(down)}): "
            f"Slurm powers {them} up when a job can start on {them}."
        )
    if leaving:
        found.append(
            f"{counted(len(leaving), 'node is', 'nodes are')} being powered down ({_names(leaving)}) and can "
            "be used again afterwards."
        )
    return found


def _late(workers: Sequence[WorkerRow]) -> list[str]:
    names = [one.slurm_node for one in workers if came_late(one)]
    if not names:
        return []
    whose = "its" if len(names) == 1 else "their"
    told = f"{counted(len(names), 'node')} did not come up in time ({_names(names)})"
    return [f"{told}, and Slurm requeued {whose} jobs."]


def _drains(workers: Sequence[WorkerRow]) -> list[str]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for one in workers:
        if one.drained_by == "operator" or (one.cordoned and one.cordoned_by):
            cause = one.removal or one.cordoned_by
            groups[f"by the operator: {CAUSES.get(cause, cause or 'no cause given')}"].append(one.slurm_node)
        elif one.cordoned:
            groups[f"by a user: {CAUSES['PodCordoned']}"].append(one.slurm_node)
        elif one.drained_by == "other":
            by = one.state_reason_by or "a user or Slurm"
            groups[f"by {by}, reason {one.state_reason!r}"].append(one.slurm_node)
    return [
        f"{counted(len(names), 'node takes', 'nodes take')} no new jobs, drained {who} ({_names(names)})."
        for who, names in sorted(groups.items())
    ]


def _reservations(workers: Sequence[WorkerRow]) -> list[str]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for one in workers:
        if one.reservation:
            groups[one.reservation].append(one.slurm_node)
    return [
        f"{counted(len(names), 'node is', 'nodes are')} in reservation {name} ({_names(names)})."
        for name, names in sorted(groups.items())
    ]


def _sizes(nodesets: Sequence[NodeSetRow], workers: Sequence[WorkerRow]) -> list[str]:
    own = {one.nodeset for one in workers}
    found = []
    for one in nodesets:
        if own and one.name not in own:
            continue
        idle = one.states.get("idle", 0)
        if one.autoscaling is not None:
            found.append(f"Slurm scales NodeSet {one.name}: {_power(one.autoscaling)}.")
            continue
        if one.ready < one.desired:
            found.append(f"NodeSet {one.name}: {one.ready} of {counted(one.desired, 'worker')} ready.")
        elif not idle and (unknown := one.states.get("unknown", 0)):
            whose = "the state of 1 worker is" if unknown == 1 else f"the states of {unknown} workers are"
            found.append(f"NodeSet {one.name}: {whose} unknown.")
        elif not idle and one.mode != "DaemonSet":
            found.append(
                f"NodeSet {one.name} has all {counted(one.desired, 'worker')} that replicas asks for, "
                "and none is idle."
            )
        elif not idle:
            found.append(f"NodeSet {one.name} has a worker on every matching node, and none is idle.")
    return found


def _power(scaling: AutoscalingRow) -> str:
    return f"{listed(scaling.nodes) or 'states unknown'}; at most {scaling.max_replicas} (maxReplicas)"


def _would_help(nodeset: NodeSetRow) -> bool:
    """Return whether one more worker could take a job: all that are wanted serve, and none is idle."""
    spare = nodeset.states.get("idle") or nodeset.states.get("unknown")
    full = nodeset.ready >= nodeset.desired and not spare
    if nodeset.autoscaling is not None:
        return full and nodeset.autoscaling.nodes == {UP: nodeset.autoscaling.max_replicas}
    return full and nodeset.mode != "DaemonSet"


def _add_worker(nodeset: NodeSetRow) -> str:
    if nodeset.autoscaling is not None:
        more = nodeset.autoscaling.max_replicas + 1
        return set_bound(nodeset.namespace, nodeset.name, "maxReplicas", more)
    return f"kubectl -n {nodeset.namespace} scale nodeset {nodeset.name} --replicas={nodeset.replicas + 1}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _commands(
    job: JobRow,
    cluster: ClusterRow | None,
    nodesets: Sequence[NodeSetRow],
    workers: Sequence[WorkerRow],
    *,
    pending: bool,
    topic: Topic,
) -> tuple[str, ...]:
    where = "" if cluster is None else f" -n {cluster.namespace}"
    found = []
    if pending and topic in _ABOUT_WORKERS:
        candidates = _in_partition(job, workers)
        stuck = next((one for one in candidates if one.problem or one.blocked is not None), None)
        if stuck is not None:
            found.append(f"kubectl slurm explain pod {stuck.pod} -n {stuck.namespace}")
        found.append(f"kubectl slurm nodes{where}")
        own = [one for one in nodesets if one.name in {worker.nodeset for worker in candidates}]
        if topic is not Topic.WINDOW and own and _would_help(own[0]):
            found.append(_add_worker(own[0]))
    if topic is Topic.WINDOW and pending:
        found.append("scontrol show reservation")
    found.append(f"scontrol show job {job.id}")
    return tuple(found)
