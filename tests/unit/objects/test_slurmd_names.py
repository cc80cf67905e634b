from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.objects.slurmd_names import Series, series, shared_name
from tests.support.simulation.kubernetes import make_nodeset


def numbered(prefix: str = "", replicas: int = 3, padding: int = 0, **spec: Any) -> Any:
    template = {"spec": {"hostname": prefix} if prefix else {}}
    return make_nodeset(replicas=replicas, ordinalPadding=padding, template=template, **spec)


def test_a_series_has_the_names_of_its_workers() -> None:
    """Prefix and number, with the digits that the NodeSet asks for, and no other name."""
    found = series(numbered("gpu-", 11, 2))
    assert found is not None
    assert [
        name in found for name in ("gpu-00", "gpu-10", "gpu-11", "gpu-1", "gpu-001", "gpu-", "cpu-00")
    ] == [
        *(True, True),
        *[False] * 5,
    ]


def test_workers_without_a_prefix_are_called_after_their_pods() -> None:
    """The name of the NodeSet, a dash and the number."""
    nodeset = numbered()
    assert series(nodeset) == Series(f"{nodeset.metadata.name}-", 0, 3)
    assert shared_name(nodeset, numbered(f"{nodeset.metadata.name}-")) == nodeset.pod_name(0)


@pytest.mark.parametrize(
    "spec", [{"scalingMode": "DaemonSet"}, {"template": {"spec": {"hostNetwork": True}}}]
)
def test_names_that_come_from_nodes_are_no_series(spec: dict[str, Any]) -> None:
    """What workers are called there is known when they have a Kubernetes node."""
    assert series(make_nodeset(replicas=2, **spec)) is None
    assert shared_name(make_nodeset(replicas=2, **spec), make_nodeset(replicas=2)) == ""


def test_a_nodeset_that_is_deleted_asks_for_no_names() -> None:
    """Only the pods that it still has count."""
    leaving = numbered("gpu-", deleting=True)
    assert series(leaving) == Series("gpu-", 0, 0)
    assert shared_name(leaving, numbered("gpu-")) == ""


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (("gpu-", 2, 0), ("gpu-", 1, 0), "gpu-0"),
        (("gpu-", 2, 0), ("gpu-", 0, 0), ""),
        (("gpu-", 2, 0), ("cpu-", 2, 0), ""),
        (("gpu-", 2, 1), ("gpu-", 2, 0), "gpu-0"),
        (("gpu-", 100, 3), ("gpu-", 101, 0), ""),
        (("gpu-", 101, 3), ("gpu-", 101, 0), "gpu-100"),
        (("gpu", 11, 0), ("gpu1", 1, 0), "gpu10"),
        (("gpu", 10, 0), ("gpu1", 9, 0), ""),
        (("gpu", 2**31 - 1, 0), ("gpu", 2**31 - 1, 5), "gpu10000"),
    ],
)
def test_names_of_two_nodesets(one: tuple[str, int, int], other: tuple[str, int, int], shared: str) -> None:
    """A name that both would have is found, in either order and however many workers there are."""
    assert shared_name(numbered(*one), numbered(*other)) == shared
    assert shared_name(numbered(*other), numbered(*one)) == shared


_SERIES = st.builds(
    lambda digits, count, padding: (f"w{digits}", count, padding),
    st.text("012", max_size=3),
    st.integers(0, 130),
    st.integers(0, 4),
)


@given(_SERIES, _SERIES)
def test_a_shared_name_is_found_if_there_is_one(
    one: tuple[str, int, int], other: tuple[str, int, int]
) -> None:
    """The answer without lists is that of the lists."""
    first, second = numbered(*one), numbered(*other)
    names = {first.pod_hostname(number) for number in range(one[1])}
    both = names & {second.pod_hostname(number) for number in range(other[1])}
    found = shared_name(first, second)
    assert found in both if both else found == ""
