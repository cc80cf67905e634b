"""Which slurmctld pod gets the label that the clients' Service looks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.objects.active import active_pod, relabel
from slurm_operator.slurm.model.records import Ping
from tests.support.objects.resources import controller

HA = controller(ha={"enabled": True, "backups": 2}, persistence={"existingClaim": "c"})
PODS = [HA.pod_name(ordinal) for ordinal in range(3)]


def _pings(*responding: int) -> list[Ping]:
    return [Ping(hostname=name, responding=index in responding) for index, name in enumerate(PODS)]


@pytest.mark.parametrize(
    ("responding", "active"), [((0, 1, 2), 0), ((1, 2), 1), ((2,), 2), ((0, 2), 0), ((), None)]
)
def test_difference_6_the_first_that_responds_is_active(
    responding: tuple[int, ...], active: int | None
) -> None:
    """The slurmctld in charge is the first that responds; when none does, nobody knows."""
    assert active_pod(HA, _pings(*responding)) == (None if active is None else PODS[active])


def test_difference_6_pods_are_known_by_host_name() -> None:
    """The order of the pings does not matter, nor do hosts that are none of our pods."""
    pings = [Ping(hostname="elsewhere", responding=True), *reversed(_pings(1, 2))]
    assert active_pod(HA, pings) == PODS[1]


def test_the_new_pod_is_labelled_before_the_old_one_is_not() -> None:
    """On a failover the label is set first and taken away second."""
    assert list(relabel({PODS[0]: True, PODS[1]: False}, PODS[1], PODS).items()) == [
        (PODS[1], True),
        (PODS[0], False),
    ]


def test_difference_6_who_is_not_ready_takes_the_label_from_nobody() -> None:
    """A pod that responds to Slurm before Kubernetes calls it ready serves beside the one that did so far."""
    assert relabel({PODS[0]: True, PODS[1]: False}, PODS[1], PODS[:1]) == {PODS[1]: True}


@given(
    st.dictionaries(st.sampled_from(PODS), st.booleans()),
    st.sampled_from([*PODS, None, "elsewhere"]),
    st.sets(st.sampled_from(PODS)),
)
def test_difference_6_the_service_is_never_emptied(
    labelled: dict[str, bool], active: str | None, ready: set[str]
) -> None:
    """At every step of a change a pod serves if one did, and one does in the end if any can."""
    now = dict(labelled)
    for name, label in relabel(labelled, active, ready).items():
        could_serve = any(now[pod] and pod in ready for pod in now)
        now[name] = label
        assert any(now[pod] and pod in ready for pod in now) or not could_serve
    assert any(now.values()) == bool(labelled)
    serving = [name for name, label in now.items() if label]
    if active in labelled:
        assert active in serving
    else:
        assert bool(ready & {*serving}) == bool(ready & labelled.keys())
    if ready & {*serving} and (active in ready or active not in labelled):
        assert len(ready & {*serving}) == 1
    assert relabel(now, active, ready) == {}


def test_difference_6_a_standby_serves_when_the_node_of_the_other_died() -> None:
    """Without a ping, a ready standby is found as well once no pod with the label is ready."""
    assert relabel({PODS[0]: True, PODS[1]: False, PODS[2]: False}, None, PODS[1:]) == {PODS[1]: True}
    assert relabel({PODS[0]: True, PODS[1]: True, PODS[2]: False}, None, PODS) == {PODS[1]: False}


def test_difference_6_of_several_the_first_that_is_ready_serves() -> None:
    """While nobody says who is active, standbys lose the label they were born with, once another serves."""
    born = dict.fromkeys(PODS, True)
    assert relabel(born, None) == {}
    assert relabel(born, None, PODS[1:]) == {PODS[2]: False}
    assert relabel(born, None, PODS) == {PODS[1]: False, PODS[2]: False}
    assert relabel(born | {PODS[0]: False}, None, PODS) == {PODS[2]: False}


def test_unknown_moves_nothing() -> None:
    """When nobody says who is active, the label stays where it is; without any, the first pod serves."""
    assert relabel({PODS[0]: False, PODS[1]: True}, None) == {}
    assert relabel(dict.fromkeys(PODS, False), None) == {PODS[0]: True}
    assert relabel({PODS[0]: False, PODS[1]: True}, None, PODS) == {}
    assert relabel({}, PODS[0]) == {}
