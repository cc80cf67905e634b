"""Bulk requests: as few as there are different updates, and smaller ones after a refusal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.decide.bulk import Group, grouped, narrowed, regrouped
from slurm_operator.slurm.model.hostlist import expand
from slurm_operator.slurm.model.records import NodeUpdate

DRAIN, OTHER = NodeUpdate(state=("DRAIN",), reason="a"), NodeUpdate(state=("DRAIN",), reason="b")
updates = st.dictionaries(
    st.integers(0, 200).map(lambda number: f"n{number:03d}"), st.sampled_from([DRAIN, OTHER]), max_size=60
)


def test_equal_updates_share_a_request() -> None:
    """One request for each different update, with the names folded."""
    wanted = {"n1": DRAIN, "n10": OTHER, "n2": DRAIN, "n3": DRAIN}
    assert [*grouped(wanted)] == [
        Group("n[1-3]", ("n1", "n2", "n3"), DRAIN),
        Group("n10", ("n10",), OTHER),
    ]


@given(updates, st.integers(10, 200))
def test_each_node_is_in_one_request_with_its_update(wanted: dict[str, NodeUpdate], size: int) -> None:
    """Nothing is lost, doubled or mixed up, and a request knows the names in its hostlist."""
    groups = [*grouped(wanted, size)]
    assert sorted(name for group in groups for name in group.names) == sorted(wanted)
    for group in groups:
        assert [*group.names] == expand(group.hostlist)
        assert {wanted[name] for name in group.names} == {group.update}


@given(st.sets(st.integers(0, 99)), st.data())
def test_a_request_is_narrowed_to_some_of_its_nodes(numbers: set[int], data: st.DataObject) -> None:
    """These get the same update, each once; a request for all stays as it is, and for none there is none."""
    names = tuple(f"n{number:02d}" for number in sorted(numbers))
    group = Group("whatever", names, DRAIN)
    assert [*narrowed(group, names)] == [group]
    some = [name for name in names if data.draw(st.booleans())]
    parts = [*narrowed(group, some)]
    assert sorted(name for part in parts for name in part.names) == some
    if len(some) < len(names):
        assert [name for part in parts for name in expand(part.hostlist)] == some


@given(updates.filter(lambda wanted: len(wanted) > 1), st.data())
def test_what_is_left_of_a_refused_request_is_tried_in_smaller_ones(
    wanted: dict[str, NodeUpdate], data: st.DataObject
) -> None:
    """Everything left is tried again, and no request is as large as the one that was refused."""
    refused = Group("", tuple(wanted), DRAIN)
    names = data.draw(st.sets(st.sampled_from(sorted(wanted))))
    again = [*regrouped(refused, {name: wanted[name] for name in names})]
    assert sorted(name for group in again for name in group.names) == sorted(names)
    assert all(len(group.names) < len(refused.names) for group in again)


def test_nothing_settled_means_halves() -> None:
    """One bad node is found by halving; when some are settled, the others are tried together."""
    refused = Group("n[1-4]", ("n1", "n2", "n3", "n4"), DRAIN)
    everything = dict.fromkeys(refused.names, DRAIN)
    assert [group.hostlist for group in regrouped(refused, everything)] == ["n[1-2]", "n[3-4]"]
    del everything["n2"]
    assert [group.hostlist for group in regrouped(refused, everything)] == ["n[1,3-4]"]
