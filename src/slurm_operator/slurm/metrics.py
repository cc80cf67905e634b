"""What Prometheus is told about each Slurm cluster, computed from the connections when it asks.

Nothing is kept per cluster but the counts of requests: states, ages and jobs are read from the newest view at
each scrape, so a connection that is gone is gone from the metrics too, and a view that grows old shows it.
The number of series is bounded whatever Slurm says: states and flags come from closed sets with `other` for
the rest, and beyond a number of partitions they share one name.

A cluster is labelled `namespace/name`, after the object that its connection was made for.
"""

from __future__ import annotations

import itertools
import math
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from slurm_operator.slurm.model.records import BASE_STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from slurm_operator.slurm.model.records import Node
    from slurm_operator.slurm.model.view import ClusterView
    from slurm_operator.slurm.rest.client import CallInfo
    from slurm_operator.slurm.rest.connections import ConnectionKey, Connections

PREFIX: Final = "slurm_operator_slurm_"
OTHER: Final = "other"

FLAGS: Final = frozenset(
    {
        *("CLOUD", "COMPLETING", "DRAIN", "DYNAMIC_NORM", "FAIL", "INVALID_REG", "MAINTENANCE"),
        *("NOT_RESPONDING", "PLANNED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_REQUESTED"),
        *("RESERVED", "RESUME", "UNDRAIN"),
    }
)
JOB_STATES: Final = frozenset(
    {
        *("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"),
        *("PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"),
    }
)
# A cluster with more is rare, and a dashboard with more is unreadable.
MAX_PARTITIONS: Final = 50

# From a 304 on the same machine to the deadline of a request, one step for each doubling or so.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, math.inf)


@dataclass(slots=True)
class Requests:
    """The requests of one operation of one connection."""

    outcomes: Counter[str] = field(default_factory=Counter)
    buckets: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))
    seconds: float = 0.0

    def add(self, info: CallInfo) -> None:
        """Count one more."""
        self.outcomes[info.outcome] += 1
        self.buckets[bisect_left(BUCKETS, info.seconds)] += 1
        self.seconds += info.seconds


class RequestStats:
    """Counts the requests of every connection; `observe` is for `Connections`."""

    def __init__(self) -> None:
        self._requests: dict[ConnectionKey, dict[str, Requests]] = {}

    def observe(self, key: ConnectionKey, info: CallInfo) -> None:
        """Count one request."""
        self._requests.setdefault(key, {}).setdefault(info.operation, Requests()).add(info)

    def keep(self, keys: Iterable[ConnectionKey]) -> None:
        """Drop the counts of all other connections."""
        kept = {*keys}
        self._requests = {key: found for key, found in self._requests.items() if key in kept}

    def of(self, key: ConnectionKey) -> Mapping[str, Requests]:
        """Return the counts of one connection, by operation."""
        return self._requests.get(key, {})


_NONE: Final[Mapping[str, Requests]] = {}


# ------------------------------------------------------------------------------------------------ from a view
def count_states(nodes: Iterable[Node]) -> tuple[Counter[str], Counter[str]]:
    """Count nodes by their base state and by their flags, in lower case; what is unknown is `other`."""
    states = Counter({state.lower(): 0 for state in (*BASE_STATES, OTHER)})
    flags = Counter({flag.lower(): 0 for flag in (*FLAGS, OTHER)})
    # Thousands of nodes have a handful of different states between them.
    for words, count in Counter(node.state for node in nodes).items():
        base = next((word for word in words if word in BASE_STATES), OTHER)
        states[base.lower()] += count
        for flag in {word if word in FLAGS else OTHER for word in words if word not in BASE_STATES}:
            flags[flag.lower()] += count
    return states, flags


def count_jobs(
    counts: Mapping[tuple[str, str], int], limit: int = MAX_PARTITIONS
) -> Counter[tuple[str, str]]:
    """Fold the jobs by state and partition; a job that waits for several partitions names them all."""
    names = sorted({partition for _, partition in counts}, key=lambda name: ("," in name, name))
    named = {*names[:limit]}
    folded: Counter[tuple[str, str]] = Counter()
    for (state, partition), count in counts.items():
        word = state.lower() if state in JOB_STATES else OTHER
        folded[word, partition if partition in named else OTHER] += count
    return folded


def oldest_drain(nodes: Iterable[Node], prefix: str, wall: float) -> float:
    """Return for how many seconds the oldest drain with our reason has lasted; 0 if there is none."""
    since = [
        node.reason_changed_at.value
        for node in nodes
        if "DRAIN" in node.state and node.reason.startswith(prefix)
    ]
    return max((wall - moment for moment in since if moment and moment < wall), default=0.0)


# ---------------------------------------------------------------------------------------------- the collector
class SlurmCollector(Collector):
    """Describes every connection at the moment Prometheus asks; register it once."""

    def __init__(
        self,
        connections: Connections,
        stats: RequestStats,
        *,
        reason_prefix: str,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._connections = connections
        self._stats = stats
        self._reason_prefix = reason_prefix
        self._now = now
        self._wall = wall

    def describe(self) -> Iterator[Metric]:
        """Name the families, without asking anybody."""
        return iter((_up(), *_families().all, _outcomes("", _NONE), _durations("", _NONE)))

    def collect(self) -> Iterator[Metric]:
        """Yield all series, and after each cluster something, since they take long for a hundred clusters."""
        found = dict(self._connections.items())
        self._stats.keep(found)
        families = _families()
        # While a Cluster takes the place of a Controller's own connection, both may have the same label.
        by_label = {str(key): key for key in sorted(found, key=lambda key: key.kind, reverse=True)}
        clusters = sorted(by_label.items())
        # The first of each family in pieces names it, also if there are no clusters.
        yield _up()
        for label, key in clusters:
            view = found[key].view
            up = _up()
            up.add_metric([label], float(view.listed_at is not None and view.failure is None))
            self._add_view(families, label, view)
            yield up
        yield from families.all
        pieces = [("", _NONE), *((label, self._stats.of(key)) for label, key in clusters)]
        yield from itertools.starmap(_outcomes, pieces)
        yield from itertools.starmap(_durations, pieces)

    def _add_view(self, families: _Families, cluster: str, view: ClusterView) -> None:
        if view.listed_at is None:
            return
        families.age.add_metric([cluster], max(0.0, view.age(self._now())))
        families.suspicious.add_metric([cluster], float(view.suspicion is not None))
        if view.jobs_listed_at is not None:
            families.jobs_age.add_metric([cluster], max(0.0, self._now() - view.jobs_listed_at))
        states, flags = count_states(view.nodes.values())
        for state, count in states.items():
            families.nodes.add_metric([cluster, state], count)
        for flag, count in flags.items():
            families.flags.add_metric([cluster, flag], count)
        for (state, partition), count in sorted(count_jobs(view.jobs.counts).items()):
            families.jobs.add_metric([cluster, partition, state], count)
        drain = oldest_drain(view.nodes.values(), self._reason_prefix, self._wall())
        families.drain.add_metric([cluster], drain)


def _up() -> GaugeMetricFamily:
    return _gauge("up", "1 while slurmctld answers through slurmrestd, else 0")


def _outcomes(cluster: str, requests: Mapping[str, Requests]) -> CounterMetricFamily:
    labels = ("cluster", "operation", "outcome")
    family = CounterMetricFamily(PREFIX + "requests", "Requests to slurmrestd by outcome", labels=labels)
    for operation, found in sorted(requests.items()):
        for outcome, count in sorted(found.outcomes.items()):
            family.add_metric([cluster, operation, outcome], count)
    return family


def _durations(cluster: str, requests: Mapping[str, Requests]) -> HistogramMetricFamily:
    text = "Time until a request had its whole answer"
    family = HistogramMetricFamily(PREFIX + "request_duration_seconds", text, labels=("cluster", "operation"))
    for operation, found in sorted(requests.items()):
        total, buckets = 0, []
        for bound, count in zip(BUCKETS, found.buckets, strict=True):
            total += count
            buckets.append(("+Inf" if math.isinf(bound) else str(bound), float(total)))
        family.add_metric([cluster, operation], buckets, found.seconds)
    return family


@dataclass(frozen=True)
class _Families:
    age: GaugeMetricFamily
    suspicious: GaugeMetricFamily
    jobs_age: GaugeMetricFamily
    nodes: GaugeMetricFamily
    flags: GaugeMetricFamily
    jobs: GaugeMetricFamily
    drain: GaugeMetricFamily

    @property
    def all(self) -> list[Metric]:
        return [getattr(self, name) for name in self.__dataclass_fields__]


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=["cluster", *labels])


def _families() -> _Families:
    return _Families(
        age=_gauge("view_age_seconds", "Time since the list of nodes was last known to be current"),
        suspicious=_gauge(
            "view_suspicious", "1 while the list of nodes lacks so many that it is not trusted, else 0"
        ),
        jobs_age=_gauge("jobs_age_seconds", "Time since the list of jobs was last known to be current"),
        nodes=_gauge("nodes", "Nodes by base state", "state"),
        flags=_gauge("node_flags", "Nodes by flag of their state; a node may have several", "flag"),
        jobs=_gauge("jobs", "Jobs by partition and state", "partition", "state"),
        drain=_gauge("oldest_drain_seconds", "Age of the oldest drain that this operator set; 0 without one"),
    )
