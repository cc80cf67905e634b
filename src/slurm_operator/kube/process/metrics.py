"""Every number this process exposes, in one registry.

Dashboards and alerts written for controller-runtime operators must keep working. The same as there, in name,
labels and (classic) buckets, are the seven `workqueue_*`, `controller_runtime_reconcile_*`,
`controller_runtime_max_concurrent_reconciles`, `controller_runtime_active_workers`,
`rest_client_requests_total`, `leader_election_master_status` and the common `process_*`. What differs:

- `workqueue_depth` has no `priority`, a label of newer versions: this queue has no priorities, and a constant
  would tell nothing. Queries that sum over the label, or select by `name` or `controller`, give the same.
- `controller_runtime_terminal_reconcile_errors_total` counts errors that are not retried. Here every failure
  is retried, so there is nothing to count, and an alert on it would be silent for the wrong reason.
- `leader_election_slowpath_total` counts renewals that had to read the lease first, an inner matter of
  client-go which controller-runtime does not publish either.
- `rest_client_request_duration_seconds` exists in the Kubernetes components; name, labels and buckets are
  theirs.
- `controller_runtime_reconcile_panics_total` counts exceptions that are no known failure.
- `go_*` has no meaning here; `python_*` takes its place. The series of webhooks and of client-side rate
  limiting are left out: this runtime has neither.

What an asyncio runtime adds (loop lag, cache sizes, decode errors …) is prefixed `slurm_operator_`.

The other modules import a collector and use it; nothing here imports them. Label values come from small
closed sets (kinds, controllers, verbs), never from object names, so that the number of series does not grow
with the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from slurm_operator.kube.client.transport import RequestInfo

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The `_created` companions double the number of series and no operator written in Go exposes them.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library left it unannotated

# Families whose samples are written as they are: name, labels and value, nothing of OpenMetrics.
_PLAIN: Final = frozenset({"counter", "gauge", "histogram"})

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

# controller-runtime: ten nanoseconds to a thousand seconds, a factor of ten each.
_QUEUE_BUCKETS = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))
# controller-runtime's buckets of controller_runtime_reconcile_time_seconds.
_RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
# component-base's buckets of rest_client_request_duration_seconds.
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# From "as scheduled" to "the liveness probe is about to fail".
_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_QUEUE = ("name", "controller")
_CONTROLLER = ("controller",)
_KIND = ("kind",)


def _counter(name: str, help_text: str, *labels: str) -> Counter:
    return Counter(name, help_text, labels, registry=REGISTRY)


def _gauge(name: str, help_text: str, *labels: str) -> Gauge:
    return Gauge(name, help_text, labels, registry=REGISTRY)


def _histogram(name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(name, help_text, labels, registry=REGISTRY, buckets=buckets)


# --- work queue
WORKQUEUE_DEPTH = _gauge("workqueue_depth", "Keys waiting in the queue", *_QUEUE)
WORKQUEUE_ADDS = _counter("workqueue_adds_total", "Keys added to the queue", *_QUEUE)
WORKQUEUE_QUEUE_DURATION = _histogram(
    "workqueue_queue_duration_seconds", "Time a key waits before a worker takes it", _QUEUE_BUCKETS, *_QUEUE
)
WORKQUEUE_WORK_DURATION = _histogram(
    "workqueue_work_duration_seconds", "Time a worker spends on a key", _QUEUE_BUCKETS, *_QUEUE
)
WORKQUEUE_UNFINISHED_WORK = _gauge(
    "workqueue_unfinished_work_seconds",
    "Age of all running reconciles, summed; rises when workers hang",
    *_QUEUE,
)
WORKQUEUE_LONGEST_RUNNING = _gauge(
    "workqueue_longest_running_processor_seconds", "Age of the longest running reconcile", *_QUEUE
)
WORKQUEUE_RETRIES = _counter(
    "workqueue_retries_total", "Keys added again after a failure or to be reconciled again at once", *_QUEUE
)

# --- controllers
RECONCILE_TOTAL = _counter(
    "controller_runtime_reconcile_total",
    "Reconciles by result: success, error, requeue_after, requeue",
    *_CONTROLLER,
    "result",
)
RECONCILE_ERRORS = _counter(
    "controller_runtime_reconcile_errors_total", "Reconciles that raised", *_CONTROLLER
)
RECONCILE_PANICS = _counter(
    "controller_runtime_reconcile_panics_total",
    "Reconciles that raised something other than a known error",
    *_CONTROLLER,
)
RECONCILE_TIMEOUTS = _counter(
    "controller_runtime_reconcile_timeouts_total", "Reconciles cut off by their deadline", *_CONTROLLER
)
RECONCILE_TIME = _histogram(
    "controller_runtime_reconcile_time_seconds", "Time per reconcile", _RECONCILE_BUCKETS, *_CONTROLLER
)
MAX_CONCURRENT_RECONCILES = _gauge(
    "controller_runtime_max_concurrent_reconciles", "Workers the controller has", *_CONTROLLER
)
ACTIVE_WORKERS = _gauge("controller_runtime_active_workers", "Workers that reconcile a key", *_CONTROLLER)
STUCK_KEYS = _gauge(
    "slurm_operator_stuck_keys", "Keys whose reconcile takes longer than the watchdog allows", *_CONTROLLER
)

# --- API server
REST_CLIENT_REQUESTS = _counter(
    "rest_client_requests_total", "Requests by HTTP status, method and host", "code", "method", "host"
)
REST_CLIENT_DURATION = _histogram(
    "rest_client_request_duration_seconds",
    "Time until the answer began, by verb",
    _REQUEST_BUCKETS,
    "verb",
    "host",
)
APPLY_TOTAL = _counter("slurm_operator_apply_total", "Applies by kind and result", *_KIND, "result")

# --- caches
CACHE_OBJECTS = _gauge("slurm_operator_cache_objects", "Objects held in the cache", *_KIND)
DECODE_ERRORS = _counter("slurm_operator_decode_errors_total", "Objects that could not be decoded", *_KIND)
INFORMER_RELISTS = _counter("slurm_operator_informer_relists_total", "Full lists, by cause", *_KIND, "reason")
WATCH_EVENTS = _counter("slurm_operator_watch_events_total", "Watch events received", *_KIND, "type")
HANDLER_ERRORS = _counter("slurm_operator_handler_errors_total", "Cache event handlers that raised", *_KIND)

# --- process
LEADER_STATUS = _gauge(
    "leader_election_master_status", "1 while this process holds the lease, else 0", "name"
)
EVENT_LOOP_LAG = _histogram(
    "slurm_operator_event_loop_lag_seconds",
    "How late the event loop runs a callback that was due",
    _LAG_BUCKETS,
)
EVENT_LOOP_STALL = _histogram(
    "slurm_operator_event_loop_stall_seconds",
    "Turns of the event loop over 10 ms: nothing else happened meanwhile",
    _LAG_BUCKETS,
)
EVENT_LOOP_LONGEST_STALL = _gauge(
    "slurm_operator_event_loop_longest_stall_seconds", "Longest turn of the event loop since the start"
)
EVENT_LOOP_BUSIEST_STALL = _gauge(
    "slurm_operator_event_loop_longest_stall_cpu_seconds",
    "Most processor time that a turn of the event loop took since the start",
)
EVENT_LOOP_OWN_STALL = _gauge(
    "slurm_operator_event_loop_longest_stall_own_seconds",
    "Longest turn of the event loop since the start, without the wait for a processor and for the hypervisor",
)
EVENTS_SENT = _counter("slurm_operator_events_sent_total", "Kubernetes Events written")
EVENTS_DROPPED = _counter(
    "slurm_operator_events_dropped_total", "Kubernetes Events dropped, by cause", "reason"
)


def observe_request(info: RequestInfo) -> None:
    """Count one request to the API server; give it to `Client(observe=...)`."""
    REST_CLIENT_REQUESTS.labels(info.code, info.method, info.host).inc()
    REST_CLIENT_DURATION.labels(info.verb, info.host).observe(info.seconds)


def families() -> Iterator[bytes]:
    """Yield every series in the Prometheus text format, one family at a time.

    A family is collected when it is requested, in one go, so that a histogram is consistent. All of them take
    longer than an event loop should be blocked: a caller on a loop yields to it between two families. A
    collector with very many series yields a family in pieces, one after the other.
    """
    before = ""
    for family in REGISTRY.collect():
        text = _text(family)
        # The two lines of comments come once.
        yield text.split(b"\n", 2)[2] if family.name == before else text
        before = family.name


def render() -> bytes:
    """Return every series in the Prometheus text format."""
    return b"".join(families())


def _text(family: Metric) -> bytes:
    """Write a family as `generate_latest` does, but without escaping names: ours need none."""
    if family.type not in _PLAIN:
        return generate_latest(_Single(family))
    name = f"{family.name}_total" if family.type == "counter" else family.name
    about = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    lines = [f"# HELP {name} {about}\n# TYPE {name} {family.type}\n"]
    for sample in family.samples:
        labels = ",".join([f'{key}="{_escaped(value)}"' for key, value in sorted(sample.labels.items())])
        lines.append(f"{sample.name}{{{labels}}} " if labels else f"{sample.name} ")
        value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
        lines.append(f"{value}\n")
    return "".join(lines).encode()


def _escaped(value: str) -> str:
    if "\\" in value or "\n" in value or '"' in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


class _Single(Collector):
    """One family, as if it were all of a registry."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
