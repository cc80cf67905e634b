from __future__ import annotations

from pathlib import Path

import pytest

from kubebox import BoxSpec
from kubebox.components import Plan, api_server, config_files, controllers, etcd, port_names, programs
from kubebox.nodes import FakeNodes, fake_node, node_providers
from kubebox.state import Layout


def plan(spec: BoxSpec) -> Plan:
    ports = {name: 1000 + number for number, name in enumerate(port_names(spec))}
    return Plan(Layout(Path("/state/a")), spec, ports)


def test_default_box_is_etcd_and_api_server() -> None:
    """Without wishes nothing runs on top of the API server."""
    assert programs(BoxSpec()) == ["etcd", "kube-apiserver"]
    assert controllers(plan(BoxSpec())) == []


def test_controllers_follow_the_spec() -> None:
    """The controller manager and the scheduler run when asked for."""
    found = controllers(plan(BoxSpec(controller_manager=True, scheduler=True)))
    assert [item.name for item in found] == ["kube-controller-manager", "kube-scheduler"]


def test_every_server_shares_its_held_port() -> None:
    """Each server is told to share its port, or it could not bind the one that the box holds."""
    spec = BoxSpec(controller_manager=True, scheduler=True)
    sharing = ("--socket-reuse-port", "--permit-port-sharing=true")
    for component in [etcd(plan(spec)), api_server(plan(spec)), *controllers(plan(spec))]:
        assert set(sharing) & set(component.arguments), component.name


def test_own_flags_come_last() -> None:
    """A caller's flags for the API server win over kubebox's, because the last one counts."""
    spec = BoxSpec(apiserver_args=("--v=4", "--allow-privileged=false"))
    assert api_server(plan(spec)).arguments[-2:] == spec.apiserver_args


@pytest.mark.parametrize("managed", [True, False])
def test_service_accounts_are_needed_only_when_somebody_makes_them(*, managed: bool) -> None:
    """Without a controller manager pods are admitted without a service account."""
    arguments = api_server(plan(BoxSpec(controller_manager=managed))).arguments
    assert ("--disable-admission-plugins=ServiceAccount" in arguments) == (not managed)


@pytest.mark.parametrize("audit", [True, False])
def test_audit_is_written_when_asked_for(*, audit: bool) -> None:
    """The audit policy file and the flag that names it come and go together."""
    made = plan(BoxSpec(audit=audit))
    policy = made.layout.folder / "audit-policy.yaml"
    assert (f"--audit-policy-file={policy}" in api_server(made).arguments) == audit
    assert any("audit" in argument for argument in api_server(made).arguments) == audit


def test_configuration_names_the_box(tmp_path: Path) -> None:
    """Each kubeconfig stands alone: address, CA and identity are in the file, and the context is the box."""
    made = Plan(Layout(tmp_path / "a"), BoxSpec(), {"etcd": 1, "etcd-peer": 2, "kube-apiserver": 3})
    made.layout.pki.mkdir(parents=True)
    for name in ("ca", "admin", "controller-manager", "scheduler"):
        (made.layout.pki / f"{name}.crt").write_text(name)
        (made.layout.pki / f"{name}.key").write_text(name)
    config = config_files(made)[made.layout.kubeconfig("admin")]
    assert config["current-context"] == "a"
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:3"
    assert config["users"][0]["user"]["client-key-data"] == "YWRtaW4="


def test_nodes_are_provided_only_when_asked_for() -> None:
    """A spec without nodes has no provider, one with fake nodes has kwok."""
    assert node_providers(BoxSpec()) == []
    spec = BoxSpec(fake_nodes=3, controller_manager=True)
    assert node_providers(spec) == [FakeNodes(3, untainted=True)]


def test_fake_node_belongs_to_kwok() -> None:
    """kwok plays the nodes that carry its annotation, and the annotation is what its flag selects."""
    provider = FakeNodes(1, untainted=False)
    assert fake_node("n")["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert provider.tools() == ("kwok", "kwok-stages")
