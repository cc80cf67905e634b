from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebox import BoxSpec, SpecError
from kubebox.cli import _nodes, _parser
from kubebox.components import Plan, api_server, controllers, port_names
from kubebox.console import Stopwatch
from kubebox.images import template
from kubebox.nodes import RealNodes, files, node_providers
from kubebox.nodes.addresses import MAX_NODES, Block, free_blocks, node_name
from kubebox.nodes.cluster import PROVISIONER, STORAGE_CLASS, manifests
from kubebox.nodes.ground import what_is_lacking
from kubebox.nodes.inotify import make_room
from kubebox.nodes.machine import Machine
from kubebox.nodes.steward import is_spent, lacks_gpus, volume, wants_volume
from kubebox.state import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL: dict[str, Any] = {"nodes": 2, "controller_manager": True, "scheduler": True}


def claim(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "data", "namespace": "ns", "uid": "u-1"},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "4Gi"}},
            **spec,
        },
    }


# ------------------------------------------------------------------------------------------------------- spec


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"nodes": 2}, "controller_manager"),
        ({"nodes": 2, "controller_manager": True}, "scheduler"),
        ({**REAL, "nodes": 101}, "nodes"),
        ({"images": ("a.tar",)}, "images"),
        ({"gpus": 1}, "gpus"),
        ({**REAL, "gpus": -1}, "gpus"),
        ({**REAL, "node_grace": 0}, "node_grace"),
    ],
)
def test_wishes_that_cannot_work_name_the_field(fields: dict[str, Any], named: str) -> None:
    """A spec for real nodes that makes no sense is refused with the field in the message."""
    with pytest.raises(SpecError, match=named):
        BoxSpec(**fields)


def test_a_spec_with_nodes_travels_whole() -> None:
    """What the caller wants of its nodes survives the way to the supervisor, paths made absolute."""
    spec = BoxSpec(**REAL, images=("a.tar",), gpus=2, node_grace=9.0)
    assert spec.images == (str(Path("a.tar").absolute()),)
    assert BoxSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_real_and_fake_nodes_live_in_one_box() -> None:
    """A box may have nodes of both kinds."""
    kinds = [type(provider).__name__ for provider in node_providers(BoxSpec(**REAL, fake_nodes=1))]
    assert kinds == ["FakeNodes", "RealNodes"]
    assert "kubelet" in RealNodes(1).tools()


# -------------------------------------------------------------------------------------------------- addresses


@given(count=st.integers(1, MAX_NODES), number=st.integers(200, 249))
def test_addresses_of_a_box_are_its_own(count: int, number: int) -> None:
    """No two nodes share an address or a range of pods, and all of them are in the block of the box."""
    block = Block(number)
    nodes = [block.node(index) for index in range(count)]
    pods = [block.node_pods(index) for index in range(count)]
    assert len({block.gateway, *nodes}) == count + 1
    assert len(set(pods)) == count
    assert all(address.startswith(f"10.{number}.") for address in (*nodes, *pods))
    assert all(int(part) <= 255 for address in nodes for part in address.split("."))


def test_a_node_has_no_route_to_itself() -> None:
    """A node finds the pods of all others through them, and its own on its bridge."""
    block = Block(200)
    assert block.routes(3, but=1) == [("10.200.128.0/24", "10.200.0.10"), ("10.200.130.0/24", "10.200.0.12")]
    assert len(block.routes(3)) == 3


def test_blocks_in_use_are_left_alone() -> None:
    """A block that any route of the machine touches is not taken."""
    free = free_blocks(["default", "10.200.0.0/24", "10.201.3.4", "192.0.2.0/24", "10.202.0.0/15"])
    assert [block.number for block in free[:2]] == [204, 205]
    assert free_blocks(["10.0.0.0/8"]) == []


# ---------------------------------------------------------------------------------------------- configuration


def plan(spec: BoxSpec, address: str) -> Plan:
    ports = {name: 1000 + number for number, name in enumerate(port_names(spec))}
    return Plan(Layout(Path("/state/a")), spec, ports, address)


def test_the_api_server_listens_where_nodes_find_it() -> None:
    """With real nodes the API server has an address that they reach, and trusts only kubelets of its own."""
    arguments = api_server(plan(BoxSpec(**REAL), "10.200.0.1")).arguments
    assert "--bind-address=10.200.0.1" in arguments
    assert "--endpoint-reconciler-type=none" not in arguments
    assert any(argument.startswith("--kubelet-certificate-authority=") for argument in arguments)


@pytest.mark.parametrize(
    ("fields", "grace"),
    [(REAL, "30s"), ({**REAL, "node_grace": 12.0}, "12s"), ({"controller_manager": True}, "600s")],
)
def test_a_silent_node_is_given_up_in_time(fields: dict[str, Any], grace: str) -> None:
    """Real nodes may fail soon, fake ones not because a machine is busy, and the caller may say otherwise."""
    manager = controllers(plan(BoxSpec(**fields), "127.0.0.1"))[0]
    assert f"--node-monitor-grace-period={grace}" in manager.arguments


def test_kubelet_stays_in_its_control_group() -> None:
    """Each node has its own root of control groups, its own address and the DNS of the cluster."""
    config = files.kubelet("10.200.0.10", "/kubebox-a/node-0")
    (service,) = [item for _, item in manifests() if item["kind"] == "Service"]
    assert config["cgroupRoot"] == "/kubebox-a/node-0"
    assert config["address"] == "10.200.0.10"
    assert config["clusterDNS"] == [service["spec"]["clusterIP"]]


def test_registry_without_tls_is_where_containerd_looks_for_it() -> None:
    """containerd reads the folder of registries, and the file for one of them allows plain HTTP."""
    assert f'config_path = "{files.CERTS}"' in files.containerd()
    assert files.registry_hosts("10.200.0.1:5000").startswith('server = "http://10.200.0.1:5000"\n')


@pytest.mark.parametrize("pulls", [False, True])
def test_node_that_pulls_has_room_for_other_images(tmp_path: Path, *, pulls: bool) -> None:
    """Only a node that pulls nothing sees the content store of its images as a whole, read-only."""
    store = tmp_path / "io.containerd.content.v1.content"
    (store / "blobs" / "sha256").mkdir(parents=True)
    (store / "blobs" / "sha256" / "ab").touch()
    (tmp_path / "io.containerd.snapshotter.v1.overlayfs" / "snapshots" / "1").mkdir(parents=True)
    content = f"{store.name}/blobs/sha256/ab" if pulls else store.name
    snapshot = "io.containerd.snapshotter.v1.overlayfs/snapshots/1"
    assert list(template.shared(tmp_path, pulls=pulls)) == [content, snapshot]


def test_a_machine_survives_its_description() -> None:
    """What the provider writes down is what the process of the node reads."""
    machine = Machine(
        name=node_name(0), folder="/f", rootfs="/r", cgroup="box/node-0", programs={"kubelet": "/k"},
        shows={}, shows_read_only={}, logs={"kubelet": "/l"}, daemons={"kubelet": ["/k"]},
        switch="/proc/1/ns/net", port="port-0", address="10.200.0.10",
        routes=[["10.96.0.0/16", "10.200.0.1"]],
    )  # fmt: skip
    assert Machine.from_json(machine.to_json()) == machine


@pytest.mark.parametrize("limit", [128, 1023])
def test_a_low_limit_of_watchers_is_raised(tmp_path: Path, limit: int) -> None:
    """Where a user may have few inotify instances, nodes raise the number, and say so."""
    setting, said = tmp_path / "max_user_instances", list[str]()
    setting.write_text(f"{limit}\n")
    make_room(said.append, setting)
    assert setting.read_text() == "8192\n"
    assert str(limit) in said[0]


def test_enough_room_for_watchers_is_left_alone(tmp_path: Path) -> None:
    """A limit that is high enough is not touched."""
    setting, said = tmp_path / "max_user_instances", list[str]()
    setting.write_text("1024\n")
    make_room(said.append, setting)
    assert setting.read_text() == "1024\n"
    assert said == []


def test_a_limit_that_cannot_be_raised_is_told(tmp_path: Path) -> None:
    """Without the right to raise it, the message names the setting and the command; the box starts anyway."""
    said = list[str]()
    make_room(said.append, tmp_path / "missing")
    assert "sysctl fs.inotify.max_user_instances=8192" in said[0]


# ---------------------------------------------------------------------------------------------------- steward


def test_only_open_claims_of_our_class_get_a_volume() -> None:
    """A claim of another class, with a volume, or on its way out is somebody else's business."""
    assert wants_volume(claim())
    assert not wants_volume(claim(storageClassName="other"))
    assert not wants_volume(claim(volumeName="pvc-u-1"))
    leaving = claim()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not wants_volume(leaving)


def test_a_volume_belongs_to_its_claim() -> None:
    """A volume names the one claim that may bind it, by uid, and has the size and modes it asked for."""
    made = volume(claim())
    assert made["spec"]["claimRef"]["uid"] == "u-1"
    assert made["spec"]["capacity"] == {"storage": "4Gi"}
    assert made["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize(("phase", "spent"), [("Released", True), ("Bound", False), ("Pending", False)])
def test_a_volume_goes_with_its_claim(phase: str, *, spent: bool) -> None:
    """A volume of ours is removed once released, and no volume of anybody else ever is."""
    made = {**volume(claim()), "status": {"phase": phase}}
    assert is_spent(made) == spent
    made["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": f"not-{PROVISIONER}"}
    assert not is_spent(made)


def test_gpus_are_claimed_until_they_are_seen() -> None:
    """A node that tells no GPUs, or another number, is told again."""
    assert lacks_gpus({"status": {}}, 2)
    assert lacks_gpus({"status": {"capacity": {"nvidia.com/gpu": "0"}}}, 2)
    assert not lacks_gpus({"status": {"capacity": {"nvidia.com/gpu": "2"}}}, 2)


# ----------------------------------------------------------------------------------------------------- ground


@pytest.fixture
def nobody() -> Iterator[None]:
    """Give up root for the length of a test, where the tests have it."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


@pytest.mark.usefixtures("nobody")
def test_without_root_the_reason_is_told() -> None:
    """Whoever lacks root is told so, and not what the first refused system call was."""
    assert "root" in (what_is_lacking() or "")


@pytest.mark.usefixtures("nobody")
def test_without_root_the_command_falls_back_to_fake_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """`up --nodes` makes as many fake nodes where real ones are impossible, and says why."""
    options = _parser().parse_args(["up", "--nodes", "3", "--fake-nodes", "1", "--gpus", "2"])
    assert _nodes(options, Stopwatch()) == {"fake_nodes": 4}
    assert "they need root" in capsys.readouterr().out
