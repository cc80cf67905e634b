from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api import Cluster, Controller, RestApi, wellknown
from slurm_operator.api.cluster import ClusterStatus
from slurm_operator.api.controller import ControllerSpec
from slurm_operator.api.restapi import RestApiSpec, RestApiStatus
from slurm_operator.api.shared import Condition, LocalObjectReference, SecretKeySelector, ServiceSpec
from slurm_operator.controllers.shared.connection_health import ConnectionHealth, ConnectionProblem
from slurm_operator.controllers.slurmclient import (
    Serving,
    came_back,
    choose,
    mirror,
    needed,
    restapi_controllers,
    serving,
    signing_key,
    target,
)
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.kube.models.meta import Key, ObjectMeta
from slurm_operator.kube.models.store import Change
from slurm_operator.slurm.rest.connections import ConnectionTarget
from tests.support.simulation.kubernetes import make_nodeset

EPOCH = datetime(2026, 11, 1, tzinfo=UTC)
ERROR = "Expected `str`, got `int`"


def controller(annotation: str | None = None, key: SecretKeySelector | None = None) -> Controller:
    annotations = {} if annotation is None else {"slinky.slurm.net/cluster-ref": annotation}
    return Controller(
        metadata=ObjectMeta(name="main", namespace="slurm", annotations=annotations),
        spec=ControllerSpec(jwt_key_ref=key),
    )


def restapi(name: str, age: int = 0, *, of: str = "main", deleting: bool = False) -> RestApi:
    created = EPOCH - timedelta(seconds=age)
    metadata = ObjectMeta(
        name=name,
        namespace="slurm",
        creation_timestamp=created,
        deletion_timestamp=EPOCH if deleting else None,
    )
    return RestApi(metadata=metadata, spec=RestApiSpec(controller_ref=LocalObjectReference(name=of)))


def cluster(name: str, *conditions: Condition, deleting: bool = False) -> Cluster:
    metadata = ObjectMeta(name=name, namespace="slurm", deletion_timestamp=EPOCH if deleting else None)
    return Cluster(metadata=metadata, status=ClusterStatus(conditions=conditions))


def chosen(found: RestApi | Cluster | ConnectionProblem | ConnectionHealth) -> str:
    if isinstance(found, ConnectionProblem | ConnectionHealth):
        return found.reason
    return f"{type(found).__name__} {found.metadata.name}"


@pytest.mark.parametrize(
    ("annotation", "restapis", "clusters", "expected"),
    [
        (None, [], [], "RestApiNotFound"),
        (None, [restapi("a", of="other")], [cluster("other")], "RestApiNotFound"),
        (None, [restapi("a", 1), restapi("b", 9), restapi("c", 5)], [], "RestApi b"),
        (None, [restapi("b", 5), restapi("a", 5)], [], "RestApi a"),
        (None, [restapi("a", 9, deleting=True), restapi("b", 1)], [], "RestApi b"),
        (None, [restapi("a", 9, deleting=True)], [], "RestApi a"),
        (None, [restapi("a", 9, of="other"), restapi("b", 1)], [], "RestApi b"),
        (None, [restapi("a")], [cluster("main")], "Cluster main"),
        (None, [restapi("a")], [cluster("main", deleting=True)], "RestApi a"),
        ("", [restapi("a")], [], "RestApi a"),
        (" ", [restapi("a")], [], "RestApi a"),
        ("far", [restapi("a")], [cluster("main"), cluster("far")], "Cluster far"),
        ("far", [restapi("a")], [cluster("main")], "ClusterNotFound"),
        ("far", [restapi("a")], [cluster("far", deleting=True)], "ClusterNotFound"),
        ("other/far", [restapi("a")], [cluster("far")], "ClusterNotFound"),
    ],
)
def test_what_a_controller_uses(
    annotation: str | None, restapis: list[RestApi], clusters: list[Cluster], expected: str
) -> None:
    """The named Cluster or nothing; else the Cluster of its name; else the oldest RestApi that stays."""
    assert chosen(choose(controller(annotation), restapis, clusters)) == expected


@pytest.mark.parametrize(
    ("annotation", "restapis", "unread_restapis", "unread_clusters", "expected"),
    [
        (None, [], {"a": ERROR}, {}, "RestApiUnreadable"),
        (None, [restapi("b", of="other")], {"a": ERROR}, {}, "RestApiUnreadable"),
        (None, [restapi("b")], {"a": ERROR}, {}, "RestApi b"),
        (None, [restapi("a")], {}, {"main": ERROR}, "ClusterUnreadable"),
        (None, [restapi("a")], {}, {"far": ERROR}, "RestApi a"),
        ("far", [restapi("a")], {}, {"far": ERROR}, "ClusterUnreadable"),
        ("far", [restapi("a")], {}, {"main": ERROR}, "ClusterNotFound"),
    ],
)
def test_what_cannot_be_read_is_not_absent(
    annotation: str | None,
    restapis: list[RestApi],
    unread_restapis: dict[str, str],
    unread_clusters: dict[str, str],
    expected: str,
) -> None:
    """An object that exists and cannot be read never makes way for the next choice; the error is shown."""
    found = choose(
        controller(annotation), restapis, [], unread_restapis=unread_restapis, unread_clusters=unread_clusters
    )
    assert chosen(found) == expected
    if expected.endswith("Unreadable"):
        assert isinstance(found, ConnectionHealth)
        assert found.ready is None
        assert ERROR in found.message


@given(st.permutations([restapi(name, age) for name, age in (("a", 1), ("b", 7), ("c", 7), ("d", 3))]))
def test_the_choice_does_not_depend_on_the_order(restapis: list[RestApi]) -> None:
    """Whatever order a cache has, the same RestApi is chosen."""
    assert chosen(choose(controller(), restapis, [])) == "RestApi b"


SELECTOR = SecretKeySelector(name="keys", key="jwt.key")


@pytest.mark.parametrize(
    ("selector", "secret", "reason", "words"),
    [
        (None, None, "JwtKeyNotSet", "spec.jwtKeyRef"),
        (SecretKeySelector(key="jwt.key"), None, "JwtKeyNotSet", "spec.jwtKeyRef"),
        (SELECTOR, None, "JwtSecretNotFound", "'keys'"),
        (SELECTOR, Secret(), "JwtKeyNotFound", "'jwt.key'"),
        (SELECTOR, Secret(data={"other": b"x"}), "JwtKeyNotFound", "'jwt.key'"),
        (SELECTOR, Secret(data={"jwt.key": b""}), "JwtKeyNotFound", "'jwt.key'"),
    ],
)
def test_a_missing_key_is_named(
    selector: SecretKeySelector | None, secret: Secret | None, reason: str, words: str
) -> None:
    """What is missing on the way to the signing key is told apart and named."""
    found = signing_key(controller(key=selector), secret)
    assert isinstance(found, ConnectionProblem)
    assert found.reason == reason
    assert words in found.message


def test_the_key_is_taken_as_it_is() -> None:
    """Slurm signs with the bytes of the file, a newline at its end included."""
    assert signing_key(controller(key=SELECTOR), Secret(data={"jwt.key": b"k\n"})) == b"k\n"


def test_a_port_that_is_none_is_named() -> None:
    """A RestApi of an older CRD whose port cannot be one is a reason of its own, not an error loop."""
    broken = restapi("a")
    spec = msgspec.structs.replace(broken.spec, service=ServiceSpec(port=70000))
    broken = msgspec.structs.replace(broken, spec=spec)
    found = target(controller(key=SELECTOR), broken, Secret(data={"jwt.key": b"k"}), None)
    assert isinstance(found, ConnectionProblem)
    assert found.reason == "InvalidServer"
    assert "spec.service.port 70000" in found.message


def test_a_connection_belongs_to_one_life_of_a_controller() -> None:
    """Another key, RestApi or Controller of the same name is another target; a renewed token is not."""
    main = controller(key=SELECTOR)
    recreated = msgspec.structs.replace(main, metadata=msgspec.structs.replace(main.metadata, uid="another"))
    key, other = (Secret(data={"jwt.key": value}) for value in (b"k", b"n"))
    same = target(main, restapi("a"), key, None)
    assert same == target(main, restapi("a"), key, None)
    assert isinstance(same, ConnectionTarget)
    assert same.url == "http://a-restapi.slurm:6820"
    for differs in (
        target(recreated, restapi("a"), key, None),
        target(main, restapi("a"), other, None),
        target(main, restapi("b"), key, None),
        target(main, restapi("a"), key, "http://localhost:6820"),
    ):
        assert isinstance(differs, ConnectionTarget)
        assert differs != same


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", None)])
def test_a_shared_connection_is_described_by_its_cluster(status: str, ready: bool | None) -> None:  # noqa: FBT001 - a column
    """A Controller repeats status, reason and message of the Cluster, and says which Cluster that is."""
    said = Condition(type="Ready", status=status, reason="Because", message="it is so")
    found = mirror(cluster("far", said))
    assert (found.ready, found.reason) == (ready, "Because")
    assert "Cluster 'far'" in found.message
    assert found.message.endswith(": it is so")


def test_a_cluster_without_a_word_is_unknown() -> None:
    """A Cluster that has no condition yet is neither ready nor not."""
    assert mirror(cluster("far")).ready is None


def test_a_restapi_concerns_both_its_controllers() -> None:
    """A RestApi that moves to another Controller is news for both."""
    moved = Change(restapi("a", of="old"), restapi("a", of="new"))
    assert list(restapi_controllers(moved)) == [Key("slurm", "old"), Key("slurm", "new")]
    assert list(restapi_controllers(Change(None, restapi("a")))) == [Key("slurm", "main")]


DOWN, UP, LATER = (Serving("uid", since) for since in (None, EPOCH, EPOCH + timedelta(minutes=1)))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, UP, False),
        (None, DOWN, False),
        (DOWN, DOWN, False),
        (UP, DOWN, False),
        (UP, UP, False),
        (DOWN, UP, True),
        (UP, LATER, True),
    ],
)
def test_when_a_restapi_is_back(before: Serving | None, now: Serving, expected: bool) -> None:  # noqa: FBT001 - a column
    """It is back when it became ready since the last reconcile; the first one knows of no time before."""
    assert came_back(before, now) is expected


def test_a_restapi_serves_since_it_is_ready() -> None:
    """Only `Ready` that is True counts, from the moment when it became so."""
    ready = Condition(type="Ready", status="True", last_transition_time=EPOCH)
    states = [(), (ready,), (msgspec.structs.replace(ready, status="False"),)]
    found = [
        serving(msgspec.structs.replace(restapi("a"), status=RestApiStatus(conditions=some)))
        for some in states
    ]
    assert [one.since for one in found] == [None, EPOCH, None]


@pytest.mark.parametrize("finalizer", [wellknown.FINALIZER_DRAIN, wellknown.FINALIZER_RESERVATION])
def test_a_nodeset_that_waits_for_slurm_keeps_the_connection(finalizer: str) -> None:
    """Neither its drain nor the deletion of its reservation can end without Slurm."""
    assert needed([make_nodeset(finalizers=(finalizer,))], "slurm")
    assert not needed([make_nodeset(finalizers=(finalizer,))], "another")
    assert not needed([make_nodeset()], "slurm")
