from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.metrics import (
    BUCKETS,
    FLAGS,
    JOB_STATES,
    MAX_PARTITIONS,
    OTHER,
    Requests,
    count_jobs,
    count_states,
    oldest_drain,
)
from slurm_operator.slurm.model.records import BASE_STATES, Node, NoVal
from slurm_operator.slurm.rest.client import CallInfo

OURS = "slurm-operator: "


def node(*state: str, reason: str = "", since: float | None = None) -> Node:
    changed = NoVal() if since is None else NoVal(set=True, number=since)
    return Node(name="n", state=state, reason=reason, reason_changed_at=changed)


def test_nodes_are_counted_by_base_state_and_flags() -> None:
    """Each node counts once by its base state, and once for each of its flags; unknown words are `other`."""
    states, flags = count_states(
        [node("IDLE"), node("MIXED", "DRAIN", "COMPLETING"), node("IDLE", "DRAIN"), node("MOLTEN"), node()]
    )
    assert +states == {"idle": 2, "mixed": 1, "other": 2}
    assert +flags == {"drain": 2, "completing": 1, "other": 1}
    assert states["down"] == flags["fail"] == 0
    assert states.keys() == {*(state.lower() for state in BASE_STATES), OTHER}


@given(st.lists(st.lists(st.text(max_size=8) | st.sampled_from(sorted(BASE_STATES | FLAGS)), max_size=4)))
def test_no_state_makes_a_new_series(words: list[list[str]]) -> None:
    """Whatever words Slurm invents, the labels stay the same, and every node is counted."""
    states, flags = count_states(node(*state) for state in words)
    assert (states.keys(), flags.keys()) == tuple(keys.keys() for keys in count_states(()))
    assert states.total() == len(words)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from([*sorted(JOB_STATES), "NEW", "odd"]), st.text(max_size=4)),
        st.integers(1, 10_000),
    ),
    st.integers(1, 5),
)
def test_jobs_are_bounded_and_none_is_lost(counts: dict[tuple[str, str], int], limit: int) -> None:
    """However many partitions and states there are, series are bounded and the sum is that of all jobs."""
    folded = count_jobs(counts, limit)
    assert folded.total() == sum(counts.values())
    assert len({partition for _, partition in folded}) <= limit + 1
    assert {state for state, _ in folded} <= {*(state.lower() for state in JOB_STATES), OTHER}


def test_combinations_of_partitions_give_way_first() -> None:
    """When names are short, real partitions keep theirs before combinations that jobs wait for."""
    counts = {("PENDING", "a,b"): 1, ("RUNNING", "b"): 2, ("RUNNING", "a"): 3}
    assert count_jobs(counts, 2) == {("running", "a"): 3, ("running", "b"): 2, ("pending", OTHER): 1}
    assert count_jobs(counts)["pending", "a,b"] == 1
    assert MAX_PARTITIONS >= 3


def test_the_oldest_drain_is_one_of_ours() -> None:
    """Only drains with our reason count, and only while they last."""
    nodes = [
        node("IDLE", "DRAIN", reason=f"{OURS}scale-in", since=900.0),
        node("MIXED", "DRAIN", reason=f"{OURS}update", since=700.0),
        node("IDLE", "DRAIN", reason="broken fan", since=100.0),
        node("IDLE", reason=f"{OURS}over", since=50.0),
        node("IDLE", "DRAIN", reason=f"{OURS}nobody knows since when"),
    ]
    assert oldest_drain(nodes, OURS, 1000.0) == 300.0
    assert oldest_drain(nodes[2:], OURS, 1000.0) == 0.0
    assert oldest_drain(nodes, OURS, 600.0) == 0.0, "Slurm's clock is ahead of ours"
    assert oldest_drain([], OURS, 1000.0) == 0.0


@given(st.lists(st.floats(0, 100, allow_nan=False)))
def test_every_request_is_in_one_bucket(seconds: list[float]) -> None:
    """A request is counted in the first bucket that holds its time, and all of them add up."""
    requests = Requests()
    for took in seconds:
        requests.add(CallInfo("nodes", "GET", took, "ok", 0))
    assert sum(requests.buckets) == requests.outcomes["ok"] == len(seconds)
    for index, bound in enumerate(BUCKETS):
        assert sum(requests.buckets[: index + 1]) == sum(took <= bound for took in seconds)
