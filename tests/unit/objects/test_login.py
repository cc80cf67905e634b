"""What is made from a LoginSet, beyond its equality with the reference (integration/objects)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.objects import login
from slurm_operator.objects.content_references import Found
from tests.support.objects.resources import controller, found, loginset

if TYPE_CHECKING:
    from slurm_operator.objects.desired import Desired, Manifest

KEYS = {"ssh_host_rsa_key": b"r"}


def _desired(content: Found | None = None, owner: Any = None, **spec: Any) -> Desired:
    return login.desired(
        loginset(**spec), owner or controller(), content or found(), cluster_domain="cluster.local"
    )


def _template(content: Found | None = None, **spec: Any) -> Manifest:
    made = _desired(content, **spec).find("Deployment", "login")
    assert made is not None
    template: Manifest = made["spec"]["template"]
    return template


def _container(**spec: Any) -> dict[str, Any]:
    (container,) = _template(**spec)["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def test_host_keys_are_made_only_when_there_are_none() -> None:
    """Keys are needed when no Secret exists; with one, whatever is in it, none are made."""
    assert login.needs_host_keys(loginset(), found({"login-ssh-host-keys": None}))
    assert not login.needs_host_keys(loginset(), found({"login-ssh-host-keys": {}}))
    assert _desired().find("Secret", "login-ssh-host-keys") is None


def test_new_host_keys_roll_nothing_later() -> None:
    """The pods made together with new keys have the hash that the stored keys give in the next reconcile."""
    missing = found({"login-ssh-host-keys": None})
    first = login.desired(
        loginset(), controller(), missing, cluster_domain="cluster.local", new_host_keys=KEYS
    )
    secret = first.find("Secret", "login-ssh-host-keys")
    assert secret is not None
    assert secret["immutable"] is True
    second = _desired(found({"login-ssh-host-keys": KEYS}))
    assert first.find("Deployment", "login") == second.find("Deployment", "login")


@pytest.mark.parametrize(
    ("secret", "data", "annotation"),
    [
        ("auth-slurm", {"slurm.key": b"new"}, "slurm-key-hash"),
        ("sssd", {"sssd.conf": b"new"}, "sssd-conf-hash"),
        ("login-ssh-host-keys", {"ssh_host_rsa_key": b"new"}, "ssh-host-keys-hash"),
    ],
)
def test_difference_1_content_of_references_counts(
    secret: str, data: dict[str, bytes], annotation: str
) -> None:
    """A changed key or sssd.conf replaces login pods, by exactly one hash."""
    before = _template()["metadata"]["annotations"]
    after = _template(found({secret: data}))["metadata"]["annotations"]
    assert {name for name in before if before[name] != after[name]} == {f"slinky.slurm.net/{annotation}"}


def test_other_keys_of_the_sssd_secret_do_not_count() -> None:
    """Only the referenced key of the Secret with sssd.conf matters."""
    more = found({"sssd": {"sssd.conf": b"[sssd]", "other": b"x"}})
    assert _template(more) == _template()


def test_sshd_config_counts() -> None:
    """A changed sshd_config replaces login pods: it is mounted by itself and would not be noticed."""
    changed = _template(extraSshdConfig="LoginGraceTime 1")
    name = "slinky.slurm.net/sshd-conf-hash"
    assert changed["metadata"]["annotations"][name] != _template()["metadata"]["annotations"][name]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([], [("login", 22)]),
        ([{"name": "login", "containerPort": 2222}], [("login", 2222)]),
        ([{"name": "web", "containerPort": 80}], [("login", 22), ("web", 80)]),
    ],
)
def test_a_port_named_login_replaces_ours(ports: list[Any], expected: list[tuple[str, int]]) -> None:
    """A user's port with our name takes the place of port 22; any other is added."""
    made = _container(login={"ports": ports})["ports"]
    assert sorted((port["name"], port["containerPort"]) for port in made) == expected


@pytest.mark.parametrize(
    ("owner", "server"),
    [
        (controller(), "slurm-controller.NS:6817"),
        (controller(service={"port": 7000}), "slurm-controller.NS:7000"),
        (controller(external=True, externalConfig={"host": "ctl", "port": 7001}), "ctl:7001"),
    ],
)
def test_difference_4_sackd_fetches_its_configuration_from_the_right_port(owner: Any, server: str) -> None:
    """sackd is sent to the Service's port, or to the external slurmctld."""
    (variable,) = _container(owner=owner)["env"]
    assert variable == {"name": "SACKD_OPTIONS", "value": f"--conf-server {server}"}


DEFAULTS = {"maxSurge": "25%", "maxUnavailable": "25%"}


@pytest.mark.parametrize(
    ("given", "applied"),
    [
        (None, {"type": "RollingUpdate", "rollingUpdate": DEFAULTS}),
        ({"type": "RollingUpdate"}, {"type": "RollingUpdate", "rollingUpdate": DEFAULTS}),
        (
            {"rollingUpdate": {"maxSurge": 1}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}},
        ),
        ({"type": "Recreate"}, {"type": "Recreate"}),
    ],
)
def test_strategy_is_spelled_out(given: dict[str, Any] | None, applied: dict[str, Any]) -> None:
    """What Kubernetes would fill in is applied, so that it can be taken away again."""
    spec: dict[str, Any] = {"strategy": given} if given else {}
    made = _desired(**spec).find("Deployment", "login")
    assert made is not None
    assert made["spec"]["strategy"] == applied


def test_difference_10_all_that_is_missing_is_named() -> None:
    """Missing keys and sssd.conf are named together, and the Service and sshd_config are made."""
    desired = _desired(Found())
    assert [item["kind"] for item in desired.objects] == ["ConfigMap", "Service"]
    assert [problem.field for problem in desired.problems] == [
        "spec.slurmKeyRef of the Controller",
        "spec.sssdConfRef",
        "The Secret with host keys",
    ]


def test_difference_10_without_controller() -> None:
    """A missing Controller is named, and what does not depend on it is made."""
    desired = login.desired(loginset(), None, found(), cluster_domain="cluster.local")
    assert [item["kind"] for item in desired.objects] == ["ConfigMap", "Service"]
    assert [problem.field for problem in desired.problems] == ["spec.controllerRef"]


def test_references() -> None:
    """The Secrets with sssd.conf, host keys and slurm.key are asked for."""
    assert login.references(loginset(), controller()).secrets == {"sssd", "login-ssh-host-keys", "auth-slurm"}
    assert login.references(loginset(), None).secrets == {"sssd", "login-ssh-host-keys"}
