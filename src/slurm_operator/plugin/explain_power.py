"""Why Slurm's power saving has a node up or down, what that waits for, and what to type next; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_operator.plugin.text_tables import age, counted, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from slurm_operator.status_rows import AutoscalingRow, NodeSetRow, WorkerRow

# `power` of a worker.
DOWN: Final = "powered down"
POWERING_UP: Final = "powering up"
POWERING_DOWN: Final = "powering down"
UP: Final = "up"
_ORDER: Final = (DOWN, POWERING_UP, POWERING_DOWN, UP)
# Slurm's reason for a node that did not come up in time.
RESUME_TIMEOUT: Final = "ResumeTimeout reached"
# While one of these is set, the operator does not make a node usable again.
_STAYS_DOWN: Final = frozenset({"FAIL", "INVALID_REG"})


@dataclass(frozen=True, slots=True)
class PowerExplanation:
    """What power saving adds to the explanation of a worker."""

    why: str
    waits_for: tuple[str, ...] = ()
    since: datetime | None = None
    next: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def explain_power(
    worker: WorkerRow, nodeset: NodeSetRow | None, now: datetime | None
) -> PowerExplanation | None:
    """Explain the power state of a worker; None if there is none to explain."""
    scaling = None if nodeset is None else nodeset.autoscaling
    if came_late(worker):
        return _late(worker, scaling, now)
    if "DOWN" in worker.state:
        return None
    if (explain := _EXPLAIN.get(worker.power)) is not None:
        return explain(worker, scaling)
    return _missing(worker) if worker.without_pod else None


def _missing(worker: WorkerRow) -> PowerExplanation:
    """Explain why a node has no pod that is up, or whose state is unknown."""
    if worker.power == UP:
        waits = ("The operator creates the pod.",)
        return PowerExplanation("Slurm has the node up, and it has no pod.", waits, commands=_more(worker))
    return PowerExplanation(
        f"It has no pod. Slurm scales NodeSet {worker.nodeset}, so the node may be powered down on purpose; "
        "its state is unknown."
    )


def came_late(worker: WorkerRow) -> bool:
    """Return whether Slurm has a node down because its slurmd did not register in time."""
    if not worker.power or "DOWN" not in worker.state:
        return False
    # slurmctld gives no reason for a node whose slurmd registers after the time for that was over.
    return worker.state_reason.startswith(RESUME_TIMEOUT) or (
        worker.power == UP and not worker.state_reason and "NOT_RESPONDING" not in worker.state
    )


def pending_step(worker: WorkerRow) -> str:
    """Return the step that the power-up of a node waits for."""
    if worker.without_pod:
        return "Step 1 of 3: the operator creates the pod, which does not exist yet"
    if not worker.ready:
        return f"Step 2 of 3: the pod becomes ready; now it is {worker.phase or 'not running'}"
    return "Step 3 of 3: slurmd registers with slurmctld; the pod is ready"


def when_late(scaling: AutoscalingRow | None) -> str:
    """Say what happens to a node whose slurmd does not register in time."""
    return (
        f"If slurmd has not registered within {_resume_timeout(scaling)} after the power-up, Slurm sets the "
        "node DOWN and requeues the job. The operator then makes the node usable again."
    )


def autoscaling_lines(nodeset: NodeSetRow) -> tuple[str, ...]:
    """Return the bounds of a NodeSet that Slurm scales, and its nodes by power state."""
    scaling = nodeset.autoscaling
    if scaling is None:
        return ()
    names = [*_ORDER, *(name for name in scaling.nodes if name not in _ORDER)]
    counts = [f"{scaling.nodes[name]} {name}" for name in names if name in scaling.nodes]
    bounds = (
        f"Slurm scales it: {scaling.min_replicas} to {scaling.max_replicas} workers (minReplicas, "
        f"maxReplicas); nodes are powered down after {_idle(scaling)} without a job"
    )
    return bounds, f"Power: {', '.join(counts) or 'unknown'}"


def late_lines(late: Sequence[WorkerRow], most: int) -> tuple[str, ...]:
    """Return nodes that did not come up in time."""
    lines = [f"{one.slurm_node}: DOWN, it did not come up in time" for one in late[:most]]
    if len(late) > most:
        lines.append(f"and {counted(len(late) - most, 'more node')} that did not come up in time")
    return tuple(lines)


def set_bound(namespace: str, nodeset: str, field: str, value: int) -> str:
    """Return the command that changes a bound of a NodeSet that Slurm scales."""
    change = f'{{"spec":{{"autoscaling":{{"{field}":{value}}}}}}}'
    return f"kubectl -n {namespace} patch nodeset {nodeset} --type=merge -p '{change}'"


# ----------------------------------------------------------------------------------------------------- inside


def _powered_down(worker: WorkerRow, scaling: AutoscalingRow | None) -> PowerExplanation:
    why = (
        "It is powered down on purpose, by Slurm's power saving: "
        f"nodes of NodeSet {worker.nodeset} are powered down after {_idle(scaling)} without a job."
    )
    if not worker.without_pod:
        return PowerExplanation(
            why, ("The operator removes the pod when Slurm has confirmed that it has no job.",)
        )
    keep = "To keep idle workers up, raise spec.autoscaling.minReplicas"
    commands = _more(worker)
    if scaling is not None:
        least = scaling.min_replicas
        keep += f" (now {least})"
        if least < scaling.max_replicas:
            commands += (set_bound(worker.namespace, worker.nodeset, "minReplicas", least + 1),)
    return PowerExplanation(
        why,
        next=(
            "No action needed: Slurm powers it up when a job needs it; the operator then creates its pod.",
            f"{keep}.",
        ),
        commands=commands,
    )


def _powering_up(worker: WorkerRow, scaling: AutoscalingRow | None) -> PowerExplanation:
    cause = (
        f"job {worker.jobs[0]} is to run on it"
        if worker.jobs
        else "a job needs it, or minReplicas asks for it"
    )
    where = f"kubectl -n {worker.namespace}"
    if worker.without_pod:
        commands = _more(worker)
    elif worker.ready:
        commands = (f"{where} logs {worker.pod} -c slurmd",)
    else:
        commands = (f"{where} describe pod {worker.pod}",)
    return PowerExplanation(
        f"Slurm is powering it up: {cause}.",
        (pending_step(worker),),
        worker.created_at,
        (when_late(scaling),),
        commands,
    )


def _powering_down(worker: WorkerRow, scaling: AutoscalingRow | None) -> PowerExplanation:
    after = _named("suspendTimeoutSeconds", None if scaling is None else scaling.suspend_timeout_seconds)
    return PowerExplanation(
        f"Slurm is powering it down: nodes of NodeSet {worker.nodeset} are powered down after "
        f"{_idle(scaling)} without a job.",
        () if worker.without_pod else ("The operator removes the pod.",),
        None,
        (f"No action needed: jobs can use the node again {after} after the power-down began.",),
        _more(worker),
    )


def _late(worker: WorkerRow, scaling: AutoscalingRow | None, now: datetime | None) -> PowerExplanation:
    often = f", {worker.resume_failures} times in a row" if worker.resume_failures > 1 else ""
    then = []
    if worker.drained_by != "other" and _STAYS_DOWN.isdisjoint(worker.state):
        then.append(f"The operator makes it usable again{_resumed(worker.resume_at, now)}.")
    then.append(
        "If this repeats, check that the pods get a Kubernetes node and pull their image in that time, or "
        "raise resumeTimeoutSeconds."
    )
    logs = () if worker.without_pod else (f"kubectl -n {worker.namespace} logs {worker.pod} -c slurmd",)
    return PowerExplanation(
        f"Slurm set it DOWN: after the power-up, slurmd did not register within {_resume_timeout(scaling)}"
        f"{often}. Slurm requeues a job that waited for it.",
        (),
        worker.state_reason_at,
        tuple(then),
        (*logs, *_more(worker), f"kubectl slurm history nodeset {worker.nodeset} -n {worker.namespace}"),
    )


def _resumed(at: datetime | None, now: datetime | None) -> str:
    if at is None or now is None or at <= now:
        return ", after a pause that grows with each failure, from 1 second to 15 minutes"
    return f" at {moment(at)} (in {age(now, at)}); the pause grows with each failure"


def _more(worker: WorkerRow) -> tuple[str, ...]:
    return (f"kubectl slurm explain nodeset {worker.nodeset} -n {worker.namespace}",)


def _idle(scaling: AutoscalingRow | None) -> str:
    return _named("idleSeconds", None if scaling is None else scaling.idle_seconds)


def _resume_timeout(scaling: AutoscalingRow | None) -> str:
    return _named("resumeTimeoutSeconds", None if scaling is None else scaling.resume_timeout_seconds)


def _named(field: str, seconds: int | None) -> str:
    return field if seconds is None else f"{field} ({seconds}s)"


_EXPLAIN: Final[Mapping[str, Callable[[WorkerRow, AutoscalingRow | None], PowerExplanation]]] = {
    DOWN: _powered_down,
    POWERING_UP: _powering_up,
    POWERING_DOWN: _powering_down,
}
