from __future__ import annotations

import re
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from slurm_operator.kube.client.transport import RequestInfo
from slurm_operator.kube.process import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = {
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds",
    "workqueue_work_duration_seconds",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "workqueue_retries_total",
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_panics_total",
    "controller_runtime_reconcile_timeouts_total",
    "controller_runtime_reconcile_time_seconds",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_active_workers",
    "rest_client_requests_total",
    "rest_client_request_duration_seconds",
    "leader_election_master_status",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "python_gc_collections_total",
    "python_info",
    "slurm_operator_event_loop_lag_seconds",
    "slurm_operator_cache_objects",
    "slurm_operator_decode_errors_total",
    "slurm_operator_informer_relists_total",
    "slurm_operator_watch_events_total",
    "slurm_operator_handler_errors_total",
    "slurm_operator_events_sent_total",
    "slurm_operator_events_dropped_total",
    "slurm_operator_apply_total",
    "slurm_operator_stuck_keys",
}


def test_names_are_those_that_dashboards_know() -> None:
    """The exposition announces every series by the name that controller-runtime operators give it."""
    announced = set(re.findall(r"^# TYPE (\S+)", metrics.render().decode(), re.MULTILINE))
    assert announced >= NAMES


def test_ours_are_prefixed() -> None:
    """A series that no other operator has starts with our own prefix."""
    known = ("workqueue_", "controller_runtime_", "rest_client_", "leader_election_", "process_", "python_")
    for name in re.findall(r"^# TYPE (\S+)", metrics.render().decode(), re.MULTILINE):
        assert name.startswith((*known, "slurm_operator_"))


def test_the_text_is_that_of_the_library() -> None:
    """Labels with characters that must be escaped, empty families, and values of every kind."""
    metrics.REST_CLIENT_REQUESTS.labels('4"0\\4', "GET\n", "kube:6443").inc(1e22)
    metrics.STUCK_KEYS.labels("infinite").set(float("inf"))
    metrics.STUCK_KEYS.labels("none").set(float("nan"))
    ours, theirs = metrics.render().decode(), prometheus_client.generate_latest(metrics.REGISTRY).decode()
    # What the process itself reports changes from one reading to the next.
    volatile = re.compile(r"^(process|python)_.*\n", re.MULTILINE)
    assert volatile.sub("", ours) == volatile.sub("", theirs)
    assert 'code="4\\"0\\\\4"' in ours


def test_a_request_is_counted() -> None:
    """One request to the API server adds one to its counter and one observation of its duration."""
    count = metrics.REST_CLIENT_REQUESTS.labels("200", "GET", "kube:6443")
    before = count._value.get()
    metrics.observe_request(RequestInfo("GET", "list", "pods", "kube:6443", "200", 0.3))
    assert count._value.get() == before + 1
    text = metrics.render().decode()
    assert 'rest_client_request_duration_seconds_bucket{host="kube:6443",le="0.25",verb="list"} 0.0' in text
    assert 'rest_client_request_duration_seconds_bucket{host="kube:6443",le="0.5",verb="list"} 1.0' in text


def test_buckets_are_those_of_controller_runtime() -> None:
    """Quantiles computed from our histograms and from a Go operator's use the same boundaries."""
    metrics.RECONCILE_TIME.labels("bucket-test").observe(0)
    metrics.WORKQUEUE_QUEUE_DURATION.labels("bucket-test", "bucket-test").observe(0)
    text = metrics.render().decode()
    reconcile = re.findall(r'reconcile_time_seconds_bucket{controller="bucket-test",le="([^"]+)"}', text)
    assert (len(reconcile), reconcile[0], reconcile[-2:]) == (41, "0.005", ["60.0", "+Inf"])
    queue = re.findall(r'queue_duration_seconds_bucket{controller="bucket-test",le="([^"]+)"', text)
    assert (len(queue), queue[0], queue[-2:]) == (13, "1e-08", ["1000.0", "+Inf"])


def test_labels_are_those_of_controller_runtime() -> None:
    """A query that selects by a label finds our series as it finds those of a Go operator."""
    labels = {
        metrics.WORKQUEUE_DEPTH: ("name", "controller"),
        metrics.WORKQUEUE_ADDS: ("name", "controller"),
        metrics.RECONCILE_TOTAL: ("controller", "result"),
        metrics.RECONCILE_TIME: ("controller",),
        metrics.REST_CLIENT_REQUESTS: ("code", "method", "host"),
        metrics.REST_CLIENT_DURATION: ("verb", "host"),
        metrics.LEADER_STATUS: ("name",),
    }
    assert {collector: collector._labelnames for collector in labels} == labels


def test_nothing_is_announced_that_cannot_happen() -> None:
    """A counter that could never move is absent: an alert on it must not be silent for ever."""
    text = metrics.render().decode()
    assert "controller_runtime_terminal_reconcile_errors_total" not in text
    assert "leader_election_slowpath_total" not in text


def test_the_registry_is_our_own() -> None:
    """What another library registers globally is not exposed under our name."""
    assert metrics.REGISTRY is not prometheus_client.REGISTRY
    assert "_created" not in metrics.render().decode()


class Pieces(Collector):
    """A collector of which two families come in pieces."""

    def collect(self) -> Iterator[Metric]:
        for name in ("first", "second"):
            for cluster in ("", "a", "b"):
                family = HistogramMetricFamily(f"pieces_{name}", "In pieces.\nTwo lines.", labels=["cluster"])
                if cluster:
                    family.add_metric([cluster], [("1.0", 1.0), ("+Inf", 2.0)], 3.0)
                yield family


def test_a_family_in_pieces_is_one_family() -> None:
    """What a collector yields one after the other under one name has its comments once, and is complete."""
    collector = Pieces()
    metrics.REGISTRY.register(collector)
    try:
        found = [*text_string_to_metric_families(metrics.render().decode())]
        pieces = [piece for piece in metrics.families() if b"pieces_" in piece]
    finally:
        metrics.REGISTRY.unregister(collector)
    assert [len(one.samples) for one in found if one.name.startswith("pieces_")] == [8, 8]
    assert [piece.count(b"# ") for piece in pieces] == [2, 0, 0, 2, 0, 0]
    assert len({one.name for one in found}) == len(found)
