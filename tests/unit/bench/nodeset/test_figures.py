"""What a worker costs in a large cluster beside a small one."""

from __future__ import annotations

from bench.nodeset.figures import Sizes, goals, per_worker, per_worker_goals, per_worker_words

LARGER = {
    "scale_out_writes": 2000.0,
    "update_cpu_seconds": 6.0,
    "idle_cpu_seconds": 1.0,
    "update_seconds": 9.0,
}
SMALLER = {"scale_out_writes": 200.0, "update_cpu_seconds": 0.5, "idle_cpu_seconds": 0.0}


def test_ten_times_the_workers_at_ten_times_the_cost_are_linear() -> None:
    """The ratio is that of one worker; a figure without a counterpart, or with none but 0, has no ratio."""
    assert per_worker(LARGER, SMALLER, 10.0) == {
        "scale_out_writes_per_worker_ratio": 1.0,
        "update_cpu_seconds_per_worker_ratio": 1.2,
    }
    assert per_worker(LARGER, {}, 1.0) == {}


def test_what_the_plain_client_takes_has_a_name_and_no_goal() -> None:
    """It shows whether Kubernetes itself is linear, which the operator cannot change."""
    named, aims = per_worker_words(10_000, 1000), per_worker_goals()
    assert aims.keys() < named.keys()
    assert {name for name in named if name not in aims} == {
        "raw_created_seconds_per_worker_ratio",
        "raw_ready_seconds_per_worker_ratio",
    }
    assert named["update_seconds_per_worker_ratio"].endswith("seconds: each of 10000 ÷ each of 1000")
    assert set(aims.values()) == {("≤", 1.2)}


def test_creating_pods_takes_little_more_than_a_plain_client_takes() -> None:
    """The goals of both ratios differ: until all are ready, kubelets and the status are waited for."""
    assert goals(Sizes())["scale_out_created_ratio"] == ("≤", 1.15)
    assert goals(Sizes())["scale_out_ready_ratio"] == ("≤", 1.5)
