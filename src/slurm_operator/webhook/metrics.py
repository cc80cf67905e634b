"""The numbers of the webhook process, in the registry that `/metrics` shows.

Those that controller-runtime has keep its names, for dashboards that exist. Labels come from closed sets: the
paths that are served, the kinds of this API.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from slurm_operator.kube.process.metrics import REGISTRY

# From a rule that takes well under a millisecond to the deadline of an admission request.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

REQUESTS = Counter(
    "controller_runtime_webhook_requests_total",
    "Admission requests by path and HTTP status",
    ("webhook", "code"),
    registry=REGISTRY,
)
LATENCY = Histogram(
    "controller_runtime_webhook_latency_seconds",
    "Time to answer an admission request, by path",
    ("webhook",),
    registry=REGISTRY,
    buckets=_BUCKETS,
)
IN_FLIGHT = Gauge(
    "controller_runtime_webhook_requests_in_flight",
    "Admission requests that are being answered, by path",
    ("webhook",),
    registry=REGISTRY,
)
VERDICTS = Counter(
    "slurm_operator_admission_total",
    "Writes that were validated, by kind, operation and verdict: allowed, warned, denied",
    ("kind", "operation", "verdict"),
    registry=REGISTRY,
)
LOOKUP_FAILURES = Counter(
    "slurm_operator_admission_lookup_failures_total",
    "Lookups of other objects that failed, by kind",
    ("kind",),
    registry=REGISTRY,
)
BINDINGS = Counter(
    "slurm_operator_bindings_total",
    "Bindings of pods that were seen, by result: annotated, unchanged, failed",
    ("result",),
    registry=REGISTRY,
)
REMOVALS = Counter(
    "slurm_operator_removal_requests_total",
    "Evictions and deletions of pods that were seen, by result: recorded, unchanged, skipped, failed",
    ("result",),
    registry=REGISTRY,
)
CERTIFICATE_LOADS = Counter(
    "slurm_operator_certificate_loads_total",
    "Certificate files that were read because they had changed, by result: ok, failed",
    ("result",),
    registry=REGISTRY,
)
