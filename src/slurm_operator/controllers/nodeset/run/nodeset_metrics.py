"""Metrics of NodeSets: workers wanted, ready, blocked, draining and protected, and what was decided.

Each reconcile leaves what it saw and decided here, and a scrape counts: a reconcile pays for its decisions
only. The age of the oldest blocked removal grows between two reconciles. A NodeSet that is gone takes its
series with it. The number of series is bounded: reasons and decisions come from closed sets, and a reason has
a series only while something is blocked for it.

With autoscaling, a resume takes from the first reconcile that finds the node powering up until the first that
finds it up. It is counted in memory: a resume that a restart of the operator interrupts is not counted.

A NodeSet is labelled with its name and with its Slurm cluster, `namespace/name` of the Controller.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide import actions as do
from slurm_operator.controllers.nodeset.decide.autoscale import Power, counts, power
from slurm_operator.controllers.nodeset.decide.slurm_state import slurm_state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from slurm_operator.kube.models.meta import Key

PREFIX: Final = "slurm_operator_nodeset_"
# What the upkeep of pods and nodes does is no decision: labels, conditions, comments, finalizers.
DECISIONS: Final[Mapping[type[do.Action], str]] = {
    do.CreatePod: "create",
    do.DeletePod: "delete",
    do.ReleasePod: "release",
    do.DrainNodes: "drain",
    do.UndrainNodes: "undrain",
    do.ResumeNodes: "resume",
    do.ResumeCloudNodes: "resume",
    do.PowerUpNodes: "power_up",
    do.CreateRecords: "create_record",
    do.DeleteRecord: "delete_record",
    do.WriteReservation: "reserve",
    do.DeleteReservation: "unreserve",
}

POWER_STATES: Final[Mapping[Power, str]] = {
    Power.DOWN: "powered_down",
    Power.POWERING_DOWN: "powering_down",
    Power.POWERING_UP: "powering_up",
    Power.UP: "up",
    **dict.fromkeys((Power.UNKNOWN, Power.ABSENT, Power.PLAIN), "other"),
}
# From a pod on a node that is there to a new node of a cloud with the pull of a large image.
_RESUME_SECONDS: Final = (2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


@dataclass(slots=True)
class Resumes:
    """The resumes of a NodeSet that Slurm scales, as far as this process saw them."""

    began: dict[str, float] = field(default_factory=dict)
    """When a node that has not come up yet was first seen powering up."""
    failures: dict[str, float] = field(default_factory=dict)
    """The last failure of each node, by the moment that Slurm gives for it."""
    failed: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(_RESUME_SECONDS) + 1))

    def note(self, seen: Observation, decided: Plan) -> None:
        """Take in one reconcile; only nodes that have a pod, or get one, can be powering up."""
        slurm = slurm_state_of(seen)
        if not seen.nodeset.autoscaled or not slurm.sees:
            return
        creates = (one.ordinal for one in decided.actions if isinstance(one, do.CreatePod))
        names = {seen.nodeset.pod_hostname(ordinal) for ordinal in creates if ordinal is not None}
        for name in names.union(self.began, (worker.slurm_name for worker in seen.workers)):
            self._saw(name, power(slurm, name), seen.now)
        stamps = {name: failure.stamp for name, failure in seen.resumes.items()}
        self.failed += sum(self.failures.get(name) != stamp for name, stamp in stamps.items())
        self.failures = stamps

    def _saw(self, name: str, state: Power, now: float) -> None:
        if state is Power.POWERING_UP:
            self.began.setdefault(name, now)
            return
        began = None if state is Power.UNKNOWN else self.began.pop(name, None)
        if began is not None and state is Power.UP:
            self.seconds += now - began
            self.buckets[bisect_left(_RESUME_SECONDS, now - began)] += 1

    def series(self) -> list[tuple[str, float]]:
        """Return how many resumes took at most so long, by the bound."""
        return [*zip((*map(str, _RESUME_SECONDS), "+Inf"), accumulate(self.buckets), strict=True)]


@dataclass(frozen=True, slots=True)
class NodeSetNumbers:
    """What one reconcile saw and decided, in numbers."""

    cluster: str
    desired: int
    ready: int
    draining: int
    protected: int
    blocked: Mapping[str, int]
    """What must not be done yet, by reason."""
    blocked_since: datetime | None
    """Since when the removal has been blocked that has waited longest; None if none is."""
    power: Mapping[str, int]
    """With autoscaling: nodes by what Slurm's power saving makes of them."""


def measure(seen: Observation, decided: Plan) -> NodeSetNumbers:
    """Return the numbers of one reconcile."""
    workers = [worker for worker in seen.workers if worker.active]
    leaving = {one.pod for one in decided.blocked if one.cause is not None}
    reasons = [one.wait.reason for one in decided.blocked] + [wait.reason for wait in decided.waits]
    return NodeSetNumbers(
        cluster=f"{seen.nodeset.metadata.namespace}/{seen.nodeset.spec.controller_ref.name}",
        desired=decided.desired,
        ready=sum(worker.ready and worker.phase == "Running" for worker in seen.workers),
        draining=sum(_drained_by_operator(worker) for worker in workers),
        protected=sum(worker.protected for worker in workers),
        blocked=Counter(reason.value for reason in reasons),
        blocked_since=min((_since(one, seen.wall) for one in workers if one.name in leaving), default=None),
        power=_power(seen) if seen.nodeset.autoscaled else {},
    )


def _power(seen: Observation) -> Mapping[str, int]:
    found = dict.fromkeys(POWER_STATES.values(), 0)
    for state, number in counts(seen, slurm_state_of(seen)).items():
        found[POWER_STATES[state]] += number
    return found


def _drained_by_operator(worker: Worker) -> bool:
    return worker.cordoned and bool(worker.annotations.get(wellknown.ANNOTATION_POD_CORDON_BY))


def _since(worker: Worker, wall: datetime) -> datetime:
    """Return since when a pod has been reported as blocked; now if that is yet to be written."""
    for one in worker.conditions:
        if one.type == wellknown.POD_CONDITION_SAFE and one.status == "False" and one.last_transition_time:
            return one.last_transition_time
    return wall


# What a decision is about, where that is one pod or record.
_SUBJECTS: Final[Mapping[type[do.Action], Callable[[Any], str]]] = {
    do.DeletePod: attrgetter("uid"),
    do.ReleasePod: attrgetter("uid"),
    do.CreatePod: attrgetter("name"),
    do.DeleteRecord: attrgetter("name"),
}


def decisions(decided: Plan) -> Iterator[tuple[str, str]]:
    """Yield each decision with what it is about."""
    for action in decided.actions:
        kind = DECISIONS.get(type(action))
        if kind is None:
            continue
        if (subject := _SUBJECTS.get(type(action))) is not None:
            yield kind, subject(action)
        elif (names := getattr(action, "names", None)) is not None:
            yield from ((kind, name) for name in names)
        else:
            yield kind, ""


class NodeSetCollector(Collector):
    """Describes every NodeSet at the moment Prometheus scrapes; register it once."""

    def __init__(self, wall: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._wall = wall
        self._recorded: dict[Key, tuple[Observation, Plan]] = {}
        # Since then: at rest every scrape finds the same.
        self._measured: dict[Key, NodeSetNumbers] = {}
        self._known: dict[Key, frozenset[tuple[str, str]]] = {}
        self._decided: dict[Key, Counter[str]] = {}
        self._resumes: dict[Key, Resumes] = {}

    def record(self, key: Key, seen: Observation, decided: Plan) -> None:
        """Keep a reconcile; a decision that the one before had made already counts once."""
        made = frozenset(decisions(decided))
        self._recorded[key] = seen, decided
        self._measured.pop(key, None)
        self._decided.setdefault(key, Counter(dict.fromkeys(DECISIONS.values(), 0))).update(
            kind for kind, _ in made - self._known.get(key, frozenset())
        )
        self._known[key] = made
        if seen.nodeset.autoscaled:
            self._resumes.setdefault(key, Resumes()).note(seen, decided)
        else:
            self._resumes.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop the series of a NodeSet that is gone."""
        self._recorded.pop(key, None)
        self._measured.pop(key, None)
        self._known.pop(key, None)
        self._decided.pop(key, None)
        self._resumes.pop(key, None)

    def describe(self) -> Iterator[Metric]:
        """Name the families."""
        return iter(_NodeSetFamilies().all)

    def collect(self) -> Iterator[Metric]:
        """Return all series."""
        families, wall = _NodeSetFamilies(), self._wall()
        for key in sorted(self._recorded):
            numbers = self._measured.get(key)
            if numbers is None:
                numbers = self._measured[key] = measure(*self._recorded[key])
            families.add([numbers.cluster, key.name], numbers, self._decided[key], wall)
            if (resumes := self._resumes.get(key)) is not None:
                families.add_resumes([numbers.cluster, key.name], resumes)
        return iter(families.all)


class _NodeSetFamilies:
    def __init__(self) -> None:
        self._desired = _gauge("desired_workers", "Workers that the NodeSet should have")
        self._ready = _gauge("ready_workers", "Workers whose pods run and are ready")
        self._draining = _gauge("draining_workers", "Workers that the operator keeps from new jobs")
        self._protected = _gauge("protected_workers", "Workers that Kubernetes must not evict or delete")
        self._blocked = _gauge("blocked_actions", "Actions that must not be taken yet, by reason", "reason")
        self._oldest = _gauge(
            "oldest_blocked_seconds", "For how long the removal of a worker has been blocked; 0 if none is"
        )
        self._decisions = CounterMetricFamily(
            f"{PREFIX}decisions", "Decisions by kind", labels=["cluster", "nodeset", "kind"]
        )
        self._power = _gauge("power_state_nodes", "Nodes that Slurm scales, by power state", "state")
        self._resumes = HistogramMetricFamily(
            f"{PREFIX}resume_duration_seconds",
            "From the power-up of a node until it is up",
            labels=["cluster", "nodeset"],
        )
        self._failed = CounterMetricFamily(
            f"{PREFIX}failed_resumes", "Nodes that did not come up in time", labels=["cluster", "nodeset"]
        )

    @property
    def all(self) -> list[Metric]:
        return [
            self._desired,
            self._ready,
            self._draining,
            self._protected,
            self._blocked,
            self._oldest,
            self._decisions,
            self._power,
            self._resumes,
            self._failed,
        ]

    def add_resumes(self, labels: list[str], resumes: Resumes) -> None:
        self._resumes.add_metric(labels, resumes.series(), resumes.seconds)
        self._failed.add_metric(labels, resumes.failed)

    def add(
        self, labels: list[str], numbers: NodeSetNumbers, decided: Mapping[str, int], wall: datetime
    ) -> None:
        since = numbers.blocked_since
        self._desired.add_metric(labels, numbers.desired)
        self._ready.add_metric(labels, numbers.ready)
        self._draining.add_metric(labels, numbers.draining)
        self._protected.add_metric(labels, numbers.protected)
        for reason, count in sorted(numbers.blocked.items()):
            self._blocked.add_metric([*labels, reason], count)
        self._oldest.add_metric(labels, 0.0 if since is None else max(0.0, (wall - since).total_seconds()))
        for kind, count in sorted(decided.items()):
            self._decisions.add_metric([*labels, kind], count)
        for state, count in numbers.power.items():
            self._power.add_metric([*labels, state], count)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=["cluster", "nodeset", *labels])
