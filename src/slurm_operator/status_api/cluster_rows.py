"""One row for each Slurm cluster and each NodeSet; pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.nodeset.decide.autoscale import Power, power_of
from slurm_operator.controllers.nodeset.decide.slurm_state import draining
from slurm_operator.slurm.model.records import BASE_STATES
from slurm_operator.status_api.explaining import waiting
from slurm_operator.status_api.moments import moment
from slurm_operator.status_rows import (
    AgeRow,
    AutoscalingRow,
    AvailabilityRow,
    BlockedCounts,
    ClusterRow,
    ConditionRow,
    NodeSetRow,
    SlurmctldRow,
    StateCounts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurm_operator.api import Controller, NodeSet
    from slurm_operator.controllers.nodeset.decide.actions import Defer
    from slurm_operator.kube.models.meta import Condition
    from slurm_operator.slurm.model.records import Node
    from slurm_operator.slurm.model.view import ClusterView
    from slurm_operator.status_rows import WorkerRow

# Of what is waited for by a whole NodeSet; thousands of workers may wait for the same.
_MOST_WAITS: Final = 10
_WITHOUT_POWER: Final = {"unknown": Power.UNKNOWN.value, "absent": Power.ABSENT.value}
_NO_CONNECTION: Final = "NoConnection"
_LISTS: Final = ("nodes", "jobs", "reservations", "slurmctld")


@dataclass(frozen=True, slots=True)
class Reached:
    """The connection of a Slurm cluster, as far as it is shown."""

    view: ClusterView
    server: str
    via: str = ""
    api_version: str = ""
    failing_since: float | None = None


def cluster_row(
    controller: Controller, reached: Reached | None, nodesets: Iterable[str], now: float, wall: datetime
) -> ClusterRow:
    """Return the row of a Slurm cluster; `now` is of the clock of the view, `wall` the same moment."""
    api = find_condition(controller.status.conditions, wellknown.CONDITION_SLURM_API_READY)
    view = None if reached is None else reached.view
    failing = None if reached is None else reached.failing_since
    connected = view is not None and view.failure is None and not view.stale(now)
    return ClusterRow(
        namespace=controller.metadata.namespace,
        name=controller.metadata.name,
        cluster_name=controller.cluster_name,
        external=controller.spec.external,
        connected=connected,
        reason=api.reason if api is not None else "" if connected else _NO_CONNECTION,
        message=api.message if api is not None else "",
        failing_since=None if failing is None else moment(wall - timedelta(seconds=max(0.0, now - failing))),
        server="" if reached is None else reached.server,
        via="" if reached is None else reached.via,
        slurm_version="" if view is None else view.version,
        api_version="" if reached is None else reached.api_version,
        uptime_seconds=None if view is None else view.uptime(now),
        ha=AvailabilityRow(
            enabled=controller.spec.ha.enabled,
            backups=controller.spec.ha.backups if controller.spec.ha.enabled else 0,
        ),
        slurmctld=()
        if view is None
        else tuple(
            SlurmctldRow(host=ping.hostname, responding=ping.responding, primary=ping.primary)
            for ping in view.controllers
        ),
        views=dict.fromkeys(_LISTS, AgeRow()) if view is None else _ages(view, now),
        suspicion="" if view is None else view.suspicion or "",
        nodes=StateCounts() if view is None else _count_nodes(view.nodes.values()),
        jobs=StateCounts() if view is None else _count_jobs(view),
        nodesets=tuple(sorted(nodesets)),
        conditions=condition_rows(controller.status.conditions),
    )


def nodeset_row(nodeset: NodeSet, workers: Sequence[WorkerRow], waits: Sequence[Defer]) -> NodeSetRow:
    """Return the row of a NodeSet, with counts of its workers' rows."""
    status, meta = nodeset.status, nodeset.metadata
    pods = [row for row in workers if not row.without_pod]
    stuck = [row.blocked for row in workers if row.blocked is not None]
    daemon = nodeset.spec.scaling_mode == ScalingMode.DAEMON_SET
    return NodeSetRow(
        namespace=meta.namespace,
        name=meta.name,
        cluster=nodeset.spec.controller_ref.name,
        mode=nodeset.spec.scaling_mode,
        replicas=status.desired if daemon else nodeset.spec.replicas,
        desired=status.desired,
        pods=len(pods),
        updated=sum(row.current and not row.deleting for row in pods),
        ready=sum(row.ready for row in pods),
        available=status.available_replicas,
        protected=sum(row.protected for row in pods),
        states=dict(sorted(Counter(row.summary for row in workers).items())),
        blocked=BlockedCounts(
            total=len(stuck),
            by_reason=dict(sorted(Counter(one.reason for one in stuck).items())),
            oldest_since=min((one.since for one in stuck if one.since), default=None),
        ),
        waits=tuple(waiting(wait) for wait in dict.fromkeys(waits[:_MOST_WAITS])),
        revision=status.node_set_hash,
        update_strategy=nodeset.spec.update_strategy.type,
        autoscaling=_autoscaling(nodeset, workers),
        deleting=nodeset.deleting,
        created_at=moment(meta.creation_timestamp),
        conditions=condition_rows(status.conditions),
    )


def _autoscaling(nodeset: NodeSet, workers: Sequence[WorkerRow]) -> AutoscalingRow | None:
    spec = nodeset.spec.autoscaling
    if spec is None or not nodeset.autoscaled:
        return None
    counts: Counter[str] = Counter()
    if nodeset.has_power_records:
        counts.update(row.power or _WITHOUT_POWER.get(row.known, Power.PLAIN.value) for row in workers)
        counts[Power.ABSENT.value] += max(0, nodeset.most_replicas - counts.total())
    return AutoscalingRow(
        min_replicas=spec.min_replicas,
        max_replicas=nodeset.most_replicas,
        idle_seconds=spec.idle_seconds,
        resume_timeout_seconds=spec.resume_timeout_seconds,
        suspend_timeout_seconds=spec.suspend_timeout_seconds,
        nodes={name: number for name, number in sorted(counts.items()) if number},
    )


def condition_rows(conditions: Iterable[Condition]) -> tuple[ConditionRow, ...]:
    """Return conditions as they are sent."""
    return tuple(
        ConditionRow(
            type=one.type,
            status=one.status,
            reason=one.reason,
            message=one.message,
            since=moment(one.last_transition_time),
        )
        for one in conditions
    )


def _ages(view: ClusterView, now: float) -> dict[str, AgeRow]:
    nodes = view.age(now)
    ages = (
        AgeRow(age=round(nodes, 1) if math.isfinite(nodes) else None, stale=view.stale(now)),
        _age(view.jobs_listed_at, now, view.jobs_stale_after),
        _age(view.reservations_listed_at, now, view.jobs_stale_after),
        _age(view.controllers_pinged_at, now, view.jobs_stale_after),
    )
    return dict(zip(_LISTS, ages, strict=True))


def _age(listed_at: float | None, now: float, stale_after: float) -> AgeRow:
    if listed_at is None:
        return AgeRow()
    age = max(0.0, now - listed_at)
    return AgeRow(age=round(age, 1), stale=age > stale_after)


def _count_nodes(nodes: Iterable[Node]) -> StateCounts:
    counts = Counter(_base(node) for node in nodes)
    return StateCounts(total=counts.total(), by_state=dict(sorted(counts.items())))


def _base(node: Node) -> str:
    base = next((word for word in node.state if word in BASE_STATES), "UNKNOWN")
    drain = "+DRAIN" if draining(node) else ""
    return f"{base}{drain}+POWERED_DOWN" if power_of(node) is Power.DOWN else f"{base}{drain}"


def _count_jobs(view: ClusterView) -> StateCounts:
    counts: Counter[str] = Counter()
    for (state, _), number in view.jobs.counts.items():
        counts[state] += number
    return StateCounts(total=counts.total(), by_state=dict(sorted(counts.items())))
