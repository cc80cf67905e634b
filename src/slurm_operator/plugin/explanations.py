"""Why a pod, a NodeSet or a node is as it is, what it waits for, and what to type next; pure.

The reasons and messages of blocked actions are those of the operator's plan, unchanged. Beside each stand
the commands that show more or that end the wait.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from slurm_operator.plugin.explain_power import (
    POWERING_UP,
    autoscaling_lines,
    came_late,
    explain_power,
    late_lines,
)
from slurm_operator.plugin.text_tables import age, counted, duration, listed, moment
from slurm_operator.status_rows import StatusRow, find

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from slurm_operator.plugin.explain_power import PowerExplanation
    from slurm_operator.status_rows import (
        BlockedRow,
        ClusterRow,
        ConditionRow,
        NodeSetRow,
        WorkerRow,
    )


class Explanation(StatusRow, frozen=True):
    """The answer to `explain`, in the order in which it is printed; what is empty is left out."""

    subject: str
    state: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    since: str = ""
    caused_by: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    limited: str = ""


# Why the operator removes a worker or keeps work away from it: the causes of the plan.
CAUSES: Final = {
    "NodeSetDeleted": "its NodeSet is being deleted",
    "ScalingModeChanged": "its NodeSet has another scalingMode now",
    "PodFinished": "the pod has ended and is replaced",
    "NodeDoesNotMatch": "its Kubernetes node no longer matches the NodeSet",
    "HostnameChanged": "its Kubernetes node asks for another name in Slurm",
    "DuplicatePod": "another pod of the NodeSet serves the same node",
    "ScaleIn": "its NodeSet has more workers than replicas asks for",
    "Update": "its NodeSet has a newer revision",
    "NotRegistered": "Slurm has lost the node, and a new pod registers it again",
    "RemovalRequested": "an eviction or deletion of the pod was refused and recorded as a request",
    "NodeTainted": "its Kubernetes node has a taint that the pod does not tolerate",
    "NodeCordoned": "its Kubernetes node is cordoned",
    "AutoscalingChanged": "autoscaling of its NodeSet was switched on or off, and its record is replaced",
    "PoweredDown": "Slurm has powered down its node",
    "PodCordoned": "the pod is cordoned by its annotation pod-cordon",
}

_JOBS: Final = frozenset({"JobsRunning", "JobsCompleting"})
_CONNECTION: Final = frozenset(
    {
        *("NoConnection", "NoView", "ViewStale", "SlurmUnreachable", "SlurmctldDown", "TokenRefused"),
        *("SlurmRefused", "ReplyUnreadable", "ReplyTooLarge", "ClusterNameMismatch", "ListSuspicious"),
    }
)
_SLURMD: Final = frozenset({"NeverRegistered", "NodeAbsent", "LostWhileBusy"})
_SHOWN: Final = 5


# ------------------------------------------------------------------------------------------------------- pods


def explain_pod(
    worker: WorkerRow,
    nodeset: NodeSetRow | None,
    cluster: ClusterRow | None,
    now: datetime | None,
    limited: str = "",
) -> Explanation:
    """Explain a worker, or a node that has no pod because Slurm scales its NodeSet."""
    # What the plan does to a worker counts more than what Slurm does.
    planned = bool(worker.removal) or worker.blocked is not None
    power = None if planned else explain_power(worker, nodeset, now)
    rising = power is not None and worker.power == POWERING_UP
    waits = _waits(worker, nodeset, cluster)
    if power is None:
        since, commands = worker.blocked.since if worker.blocked else None, _commands(worker)
    else:
        since, commands = power.since, (*power.commands, *_commands(worker))
        waits = (*power.waits_for, *waits)
    return Explanation(
        subject=_subject(worker),
        state=(
            pod_line(worker, now),
            slurm_line(worker, now),
            *_jobs_line(worker, now),
            *_jobs_listed(cluster),
        ),
        why=_why(worker, power),
        waits_for=waits,
        since=_since(since, now) + (", when the pod was created" if since and rising else ""),
        caused_by=_caused_by(worker),
        next=_next(worker) or (() if power is None else power.next),
        commands=tuple(dict.fromkeys(commands)),
        limited=limited,
    )


def _subject(worker: WorkerRow) -> str:
    if worker.without_pod:
        return f"Slurm node {worker.slurm_node} of NodeSet {worker.namespace}/{worker.nodeset}, without a pod"
    return f"Pod {worker.namespace}/{worker.pod}, worker of NodeSet {worker.nodeset or '(unknown)'}"


def pod_line(worker: WorkerRow, now: datetime | None) -> str:
    """Return the state of a worker in Kubernetes."""
    if worker.without_pod:
        return f"Pod {worker.pod} does not exist"
    words = [worker.phase or "Unknown"]
    if worker.deleting:
        words.append("terminating")
    elif worker.phase == "Running":
        words.append("ready" if worker.ready else "not ready")
    where = f"on Kubernetes node {worker.kubernetes_node}" if worker.kubernetes_node else "on no node yet"
    old = age(worker.created_at, now)
    parts = [f"{', '.join(words)}, {where}"]
    if old:
        parts.append(f"created {old} ago")
    if not worker.current:
        parts.append("of an older revision")
    if worker.protected:
        parts.append("protected against eviction and deletion")
    return "; ".join(parts)


def slurm_line(worker: WorkerRow, now: datetime | None) -> str:
    """Return the state of a worker in Slurm."""
    name = worker.slurm_node or "(no name yet)"
    if worker.known == "absent":
        return f"Slurm node {name}: not listed by Slurm"
    if not worker.state:
        told = worker.unknown_message or worker.unknown_reason
        return f"Slurm node {name}: state unknown{f' ({told})' if told else ''}"
    line = f"Slurm node {name}: {'+'.join(worker.state)}"
    if worker.state_reason:
        by = f", set by {worker.state_reason_by}" if worker.state_reason_by else ""
        old = age(worker.state_reason_at, now)
        line += f", reason {worker.state_reason!r}{by}{f' {old} ago' if old else ''}"
    if worker.reservation:
        line += f"; in reservation {worker.reservation}"
    return line


def _jobs_line(worker: WorkerRow, now: datetime | None) -> tuple[str, ...]:
    if not worker.job_count:
        return ()
    numbers = ", ".join(str(job) for job in worker.jobs[:_SHOWN])
    more = f" and {worker.job_count - _SHOWN} more" if worker.job_count > _SHOWN else ""
    if worker.jobs_end is not None and worker.jobs_end_known:
        left = "" if now is None or worker.jobs_end < now else f" (in {age(now, worker.jobs_end)})"
        end = f"; the last one ends at the latest at {moment(worker.jobs_end)}{left}"
    else:
        end = "; no time limit says when the last one ends"
    return (f"{counted(worker.job_count, 'job')} on it: {numbers}{more}{end}",)


def _jobs_listed(cluster: ClusterRow | None) -> tuple[str, ...]:
    """Return how old the list of jobs is, if it is too old to rely on."""
    listing = None if cluster is None else cluster.views.get("jobs")
    if listing is None or not (listing.stale or listing.age is None):
        return ()
    if listing.age is None:
        return ("The operator has not listed the jobs yet",)
    return (f"The operator's list of jobs is stale: {duration(listing.age)} old",)


def _why(worker: WorkerRow, power: PowerExplanation | None) -> tuple[str, ...]:
    """Return the first of these that is true; the power state explains what the last ones would."""
    undrains = worker.blocked is not None and worker.blocked.action == "undrain"
    found = (
        (bool(worker.removal), f"It is to be removed ({worker.removal}): {_cause(worker.removal)}."),
        (undrains, "It should take jobs, and its Slurm node is drained."),
        (
            bool(worker.cordoned_by),
            f"It takes no new jobs ({worker.cordoned_by}): {_cause(worker.cordoned_by)}.",
        ),
        (worker.cordoned, f"It takes no new jobs (PodCordoned): {_cause('PodCordoned')}, set by a user."),
        (worker.drained_by == "other", "Its Slurm node was drained by a user or by Slurm."),
    )
    first = next(((text,) for true, text in found if true), ())
    if power is not None:
        return (*first, power.why)
    states = (
        (bool(worker.problem), "Its pod does not run."),
        (worker.summary == "down", "Slurm has its node down."),
        (worker.known == "absent", "Slurm does not list its node."),
        (worker.summary in ("idle", "busy"), "It is in service; nothing is to be done to it."),
    )
    return first or next(((text,) for true, text in states if true), ())


def _cause(cause: str) -> str:
    return CAUSES.get(cause, cause)


def _waits(worker: WorkerRow, nodeset: NodeSetRow | None, cluster: ClusterRow | None) -> tuple[str, ...]:
    waits = [blocked_line(worker.blocked)] if worker.blocked is not None else []
    if worker.problem:
        waits.append(worker.problem)
    if worker.blocked is None and nodeset is not None:
        waits += [f"{one.reason}: {one.message}" for one in nodeset.waits]
    if cluster is not None and not cluster.connected:
        line = f"{cluster.reason or 'NotConnected'}: {cluster.message or 'no connection to Slurm'}"
        if not any(cluster.message and cluster.message in one for one in waits):
            waits.append(line)
    return tuple(waits)


def blocked_line(blocked: BlockedRow) -> str:
    """Return the plan's own reason and message."""
    return f"{blocked.reason}: {blocked.message}"


def _since(since: datetime | None, now: datetime | None) -> str:
    if since is None:
        return ""
    old = age(since, now)
    return f"{moment(since)} ({old} ago)" if old else moment(since)


def _caused_by(worker: WorkerRow) -> tuple[str, ...]:
    found = []
    if worker.request is not None:
        by = worker.request.by or "an annotation set by hand"
        at = f" at {moment(worker.request.at)}" if worker.request.at else ""
        found.append(f"{by}{at}")
    if worker.drained_by == "other" and worker.state_reason_by:
        found.append(f"{worker.state_reason_by}, who drained the Slurm node")
    if worker.drained_by == "operator" and worker.removal and worker.request is None:
        found.append("the operator, which drained the Slurm node to remove the worker")
    return tuple(found)


def _next(worker: WorkerRow) -> tuple[str, ...]:
    if worker.blocked is not None and worker.blocked.next:
        return (worker.blocked.next,)
    if worker.cordoned and not worker.cordoned_by:
        return ("It returns to service when the annotation is removed.",)
    if worker.drained_by == "other":
        return ("It returns to service when that drain is undone in Slurm.",)
    return ()


def _commands(worker: WorkerRow) -> tuple[str, ...]:
    """Return what to type next, the most useful first."""
    where = f"kubectl -n {worker.namespace}"
    blocked = worker.blocked.reason if worker.blocked is not None else ""
    found: list[str] = []
    if worker.problem:
        found.append(f"{where} describe pod {worker.pod}")
    if blocked in _JOBS or worker.job_count:
        found += [f"kubectl slurm explain job {job} -n {worker.namespace}" for job in worker.jobs[:1]]
        found.append(f"kubectl slurm jobs --node {worker.slurm_node} -n {worker.namespace}")
    if blocked in _CONNECTION or worker.known == "unknown":
        found.append(f"kubectl slurm status {worker.cluster} -n {worker.namespace}".replace("  ", " "))
    if not worker.without_pod and (blocked in _SLURMD or worker.summary == "down"):
        found.append(f"{where} logs {worker.pod} -c slurmd")
    if worker.drained_by == "other" or blocked in ("ForeignDrain", "NodeFailing"):
        found.append(f"scontrol update nodename={worker.slurm_node} state=resume")
    if worker.cordoned and not worker.cordoned_by:
        found.append(f"kubectl slurm undrain {worker.pod} -n {worker.namespace}")
    if worker.cordoned_by == "NodeCordoned":
        found.append(f"kubectl uncordon {worker.kubernetes_node}")
    if worker.removal in ("ScaleIn", "Update", "NodeSetDeleted"):
        found.append(f"kubectl slurm explain nodeset {worker.nodeset} -n {worker.namespace}")
    return tuple(dict.fromkeys(found))


# --------------------------------------------------------------------------------------------------- NodeSets


def explain_nodeset(
    nodeset: NodeSetRow,
    workers: Sequence[WorkerRow],
    cluster: ClusterRow | None,
    now: datetime | None,
    limited: str = "",
) -> Explanation:
    """Explain a NodeSet."""
    where = f"kubectl -n {nodeset.namespace}"
    blocked = [one for one in workers if one.blocked is not None]
    troubled = [one for one in workers if one.problem]
    late = [one for one in workers if came_late(one)]
    commands = [
        f"kubectl slurm explain pod {one.pod} -n {one.namespace}" for one in (*blocked, *troubled)[:2]
    ]
    if any(one.problem for one in troubled):
        commands.append(f"{where} describe pod {troubled[0].pod}")
    if cluster is not None and not cluster.connected:
        commands.append(f"kubectl slurm status {cluster.name} -n {cluster.namespace}")
    commands += [f"kubectl slurm explain node {one.slurm_node} -n {one.namespace}" for one in late[:1]]
    if nodeset.waits or _degraded(nodeset):
        commands.append(f"{where} describe nodeset {nodeset.name}")
    return Explanation(
        subject=f"NodeSet {nodeset.namespace}/{nodeset.name} of Slurm cluster {nodeset.cluster}",
        state=_nodeset_state(nodeset),
        why=_nodeset_why(nodeset),
        waits_for=(*_nodeset_waits(nodeset, blocked, troubled, cluster), *late_lines(late, _SHOWN)),
        since=_since(nodeset.blocked.oldest_since, now),
        caused_by=_removals(workers),
        next=tuple(dict.fromkeys(one.next for one in nodeset.waits if one.next)),
        commands=tuple(dict.fromkeys(commands)),
        limited=limited,
    )


def _nodeset_state(nodeset: NodeSetRow) -> tuple[str, ...]:
    lines = [
        (
            f"{counted(nodeset.desired, 'worker')} wanted, {nodeset.pods} exist, {nodeset.ready} ready, "
            f"{nodeset.updated} of the newest revision ({nodeset.mode}, {nodeset.update_strategy})"
        )
    ]
    if nodeset.states:
        lines.append(f"Slurm: {listed(nodeset.states)}")
    lines += autoscaling_lines(nodeset)
    if nodeset.deleting:
        lines.append("being deleted")
    return tuple(lines)


def _degraded(nodeset: NodeSetRow) -> ConditionRow | None:
    found = find(nodeset.conditions, "Degraded")
    return found if found is not None and found.status == "True" else None


def _nodeset_why(nodeset: NodeSetRow) -> tuple[str, ...]:
    found = []
    if (degraded := _degraded(nodeset)) is not None:
        found.append(f"Degraded ({degraded.reason}): {degraded.message}")
    for kind in ("Ready", "Progressing", "ReservationCreated"):
        one = find(nodeset.conditions, kind)
        wanted = "False" if kind == "Ready" else "True"
        if one is not None and (one.status == wanted or (kind == "Ready" and not found)):
            found.append(f"{kind} is {one.status} ({one.reason}): {one.message}")
    one, scaling = find(nodeset.conditions, "Autoscaling"), nodeset.autoscaling
    if one is not None and scaling is not None and not scaling.nodes:
        # It has no effect, or the operator cannot be asked: then this is the last that it wrote.
        found.append(f"{one.type} is {one.status} ({one.reason}): {one.message}")
    return tuple(found)


def _nodeset_waits(
    nodeset: NodeSetRow,
    blocked: Sequence[WorkerRow],
    troubled: Sequence[WorkerRow],
    cluster: ClusterRow | None,
) -> tuple[str, ...]:
    waits = [f"{one.reason}: {one.message}" for one in nodeset.waits]
    waits += [
        f"{one.pod}: {blocked_line(one.blocked)}" for one in blocked[:_SHOWN] if one.blocked is not None
    ]
    if len(blocked) > _SHOWN:
        rest = Counter(one.blocked.reason for one in blocked[_SHOWN:] if one.blocked is not None)
        waits.append(f"and {counted(len(blocked) - _SHOWN, 'more worker')}: {listed(rest)}")
    waits += [f"{one.pod}: {one.problem}" for one in troubled[:_SHOWN]]
    if len(troubled) > _SHOWN:
        waits.append(f"and {counted(len(troubled) - _SHOWN, 'more pod')} that do not run")
    if cluster is not None and not cluster.connected:
        waits.append(f"{cluster.reason or 'NotConnected'}: {cluster.message or 'no connection to Slurm'}")
    return tuple(waits)


def _removals(workers: Sequence[WorkerRow]) -> tuple[str, ...]:
    causes = Counter(one.removal for one in workers if one.removal)
    return tuple(
        f"{cause} ({counted(number, 'worker')}): {CAUSES.get(cause, cause)}"
        for cause, number in sorted(causes.items())
    )


# ------------------------------------------------------------------------------------------------------ nodes


def explain_kubernetes_node(name: str, workers: Sequence[WorkerRow], limited: str = "") -> Explanation:
    """Explain a Kubernetes node by the workers on it."""
    blocked = [one for one in workers if one.blocked is not None]
    return Explanation(
        subject=f"Kubernetes node {name} with {counted(len(workers), 'worker')}",
        state=tuple(
            f"{one.namespace}/{one.pod}: {'+'.join(one.state) or one.summary or 'unknown'}"
            + (f", {counted(one.job_count, 'job')}" if one.job_count else "")
            for one in workers
        ),
        why=tuple(
            f"{one.pod} takes no new jobs ({one.cordoned_by or 'PodCordoned'}): "
            f"{CAUSES.get(one.cordoned_by or 'PodCordoned', one.cordoned_by)}."
            for one in workers
            if one.cordoned
        ),
        waits_for=tuple(
            f"{one.pod}: {blocked_line(one.blocked)}" for one in blocked if one.blocked is not None
        ),
        next=tuple(dict.fromkeys(one.blocked.next for one in blocked if one.blocked and one.blocked.next)),
        commands=tuple(f"kubectl slurm explain pod {one.pod} -n {one.namespace}" for one in workers[:2]),
        limited=limited,
    )
