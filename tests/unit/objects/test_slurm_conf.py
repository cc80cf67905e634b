"""Slurm's configuration files as custom resources describe them, beside those that the reference wrote."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from slurm_operator.api import Controller
from slurm_operator.api.reasons import Reason
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.objects import slurm_conf
from slurm_operator.objects.content_references import Found
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.support.objects.golden_cases import WORLDS, World
from tests.support.objects.resources import accounting, controller, found, node_set

WITH_CONTROLLER = [world for world in WORLDS.values() if world.all(Controller)]
PLAIN = WORLDS["01-minimal"]


def _slurm_conf(cluster: SlurmCluster, found: Found | None = None) -> list[str]:
    return slurm_conf.controller_files(cluster, found or Found())["slurm.conf"].splitlines()


def _password(value: bytes) -> Found:
    return Found({"db": Secret(data={"password": value})})


# ---------------------------------------------------------------------------------------------------- golden


@pytest.mark.parametrize("world", WITH_CONTROLLER, ids=lambda world: world.case.name)
def test_files_of_the_reference(world: World) -> None:
    """The ConfigMap of a Controller has the files that the reference wrote, equal to the byte."""
    files = slurm_conf.controller_files(world.cluster, world.found)
    assert files == world.data("ConfigMap", world.controller.config_name)


def test_slurmdbd_conf_of_the_reference() -> None:
    """The slurmdbd.conf of an Accounting is the one that the reference wrote, equal to the byte."""
    world = WORLDS["02-accounting"]
    (records,) = world.accountings
    text = slurm_conf.slurmdbd_conf(records, world.found)
    assert text.encode() == base64.b64decode(world.data("Secret", records.config_name)["slurmdbd.conf"])


# ------------------------------------------------------------------------------------------------- addresses


def test_difference_4_the_port_of_the_service_is_the_port_of_slurmctld() -> None:
    """With service.port, clients are sent to it: by slurm.conf, and by the address of the configuration."""
    seven = controller(service={"port": 7000})
    assert "SlurmctldPort=7000" in _slurm_conf(SlurmCluster(seven))
    assert slurm_conf.conf_server(seven) == "slurm-controller.NS:7000"
    assert slurm_conf.conf_server(controller()) == "slurm-controller.NS:6817"


def test_an_external_slurmctld_is_its_own_server_of_configuration() -> None:
    """Workers of an external cluster fetch their configuration from its host and port."""
    external = controller(external=True, externalConfig={"host": "ctl.example", "port": 7001})
    assert slurm_conf.conf_server(external) == "ctl.example:7001"
    assert "SlurmctldPort=7001" in _slurm_conf(SlurmCluster(external))


def test_difference_4_the_port_of_slurmdbds_service_is_used() -> None:
    """AccountingStoragePort is the port of the Service, while slurmdbd listens where it always did."""
    records = accounting(service={"port": 7819})
    lines = _slurm_conf(SlurmCluster(controller(), accounting=records))
    assert "AccountingStorageHost=acct-accounting" in lines
    assert "AccountingStoragePort=7819" in lines
    assert "DbdPort=6819" in slurm_conf.slurmdbd_conf(records, _password(b"p")).splitlines()


@pytest.mark.parametrize(
    "owner", [controller(), controller(external=True, externalConfig={"host": "c", "port": 1})]
)
def test_external_accounting_is_used(owner: Controller) -> None:
    """With an external Accounting, slurm.conf names its host and port."""
    records = accounting(external=True, externalConfig={"host": "dbd.example", "port": 7900})
    lines = _slurm_conf(SlurmCluster(owner, accounting=records))
    assert "AccountingStorageHost=dbd.example" in lines
    assert "AccountingStoragePort=7900" in lines


@pytest.mark.parametrize(
    ("by_pod", "address"),
    [(False, "slurm-controller-{}.NS"), (True, "slurm-controller-{0}.slurm-controller-internal.NS")],
)
def test_standbys(by_pod: bool, address: str) -> None:  # noqa: FBT001 - a case
    """With high availability, each slurmctld has its line, with the address of its Service or of its pod."""
    available = controller(ha={"enabled": True, "backups": 2}, persistence={"existingClaim": "c"})
    lines = _slurm_conf(SlurmCluster(available, by_pod=by_pod))
    assert [line for line in lines if line.startswith("SlurmctldHost=")] == [
        f"SlurmctldHost=slurm-controller-{i}({address.format(i)})" for i in range(3)
    ]


def test_one_slurmctld_is_found_by_its_pod() -> None:
    """Without standbys there is one line, and it is the reference's."""
    expected = ["SlurmctldHost=slurm-controller-0(slurm-controller-0.slurm-controller-internal.NS)"]
    lines = _slurm_conf(SlurmCluster(controller()))
    assert [line for line in lines if line.startswith("SlurmctldHost=")] == expected


def test_slurmrestd_is_not_restarted_for_another_address_of_the_same_slurmctld() -> None:
    """What counts as a change for slurmrestd is who the slurmctlds are, not how they are found."""
    available = controller(ha={"enabled": True}, persistence={"existingClaim": "c"})
    assert slurm_conf.client_conf(SlurmCluster(available)) == slurm_conf.client_conf(
        SlurmCluster(available, by_pod=True)
    )
    more = controller(ha={"enabled": True, "backups": 2}, persistence={"existingClaim": "c"})
    assert slurm_conf.client_conf(SlurmCluster(more)) != slurm_conf.client_conf(SlurmCluster(available))


# ----------------------------------------------------------------------------------------------- node counts


@pytest.mark.parametrize(
    ("declared", "count"),
    [
        (0, 1024),
        (1, 1024),
        (1023, 1024),
        (1024, 2048),
        (1500, 2048),
        (5000, 8192),
        (40_000, 65_536),
        (2_000_000, 65_536),
    ],
)
def test_difference_8_room_for_the_declared_nodes(declared: int, count: int) -> None:
    """MaxNodeCount is the power of two above what the NodeSets declare, at least 1024, and never too much."""
    half = declared // 2
    node_sets = [
        node_set("a", replicas=half),
        node_set("b", {"desired": declared - half}, scalingMode="DaemonSet", replicas=99999),
    ]
    assert f"MaxNodeCount={count}" in _slurm_conf(SlurmCluster(controller(), node_sets))


@pytest.mark.parametrize("extra", ["MaxNodeCount=5000", "maxnodecount = 10 # few"])
def test_difference_8_the_users_node_count_stands(extra: str) -> None:
    """A user who sets MaxNodeCount has the last word, and our own line stays as it always was."""
    lines = _slurm_conf(SlurmCluster(controller(extraConf=extra), [node_set("a", replicas=9000)]))
    assert [line for line in lines if "maxnodecount" in line.lower()] == ["MaxNodeCount=1024", extra]


# ------------------------------------------------------------------------------------------------- what fails


def test_all_missing_config_maps_are_named_at_once() -> None:
    """Missing ConfigMaps are each reported with the field that names them."""
    incomplete = controller(
        configFileRefs=[{"name": "a"}, {"name": ""}], prologScriptRefs=[{"name": "b"}], extraConf="x=1"
    )
    with pytest.raises(Unbuildable) as caught:
        slurm_conf.controller_files(SlurmCluster(incomplete), Found())
    assert [(problem.reason, problem.field) for problem in caught.value.problems] == [
        (Reason.MISSING_REFERENCE, "spec.configFileRefs[0]"),
        (Reason.MISSING_REFERENCE, "spec.configFileRefs[1]"),
        (Reason.MISSING_REFERENCE, "spec.prologScriptRefs[0]"),
    ]
    assert "ConfigMap 'a'" in str(caught.value)


def test_a_referenced_file_cannot_take_the_place_of_slurm_conf() -> None:
    """A ConfigMap with a file that the operator writes is refused: the kubelet would take the wrong one."""
    intruder = found(x={"slurm.conf": "", "gres.conf": ""})
    with pytest.raises(Unbuildable, match=r"spec.configFileRefs\[0\]: .* slurm.conf"):
        slurm_conf.controller_files(SlurmCluster(controller(configFileRefs=[{"name": "x"}])), intruder)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"clusterName": "a\nb"}, "spec.clusterName"),
        ({"service": {"port": 70000}}, "spec.service.port"),
        ({"external": True, "externalConfig": {"host": "a b", "port": 1}}, "spec.externalConfig.host"),
        ({"external": True, "externalConfig": {"host": "a", "port": 0}}, "spec.externalConfig.port"),
    ],
)
def test_a_value_that_cannot_be_written_names_its_field(spec: dict[str, Any], field: str) -> None:
    """A value that would break slurm.conf is reported with the field of the custom resource."""
    with pytest.raises(Unbuildable) as caught:
        slurm_conf.controller_files(SlurmCluster(controller(**spec)), Found())
    assert [(problem.reason, problem.field) for problem in caught.value.problems] == [
        (Reason.INVALID_SPEC, field)
    ]


@pytest.mark.parametrize("value", [b"hunter2\nStorageHost=evil", b"hunter2\xff", b'"hunter2"'])
def test_a_password_that_cannot_be_written_is_not_shown(value: bytes) -> None:
    """A password that slurmdbd could not read is reported by the field that names it, and never shown."""
    with pytest.raises(Unbuildable, match=r"^spec.storageConfig.passwordKeyRef: ") as caught:
        slurm_conf.slurmdbd_conf(accounting(), _password(value))
    assert "hunter2" not in repr(caught.value)


def test_a_password_file_may_end_with_a_line_break() -> None:
    """The line break that editors leave behind is not part of the password."""
    assert slurm_conf.slurmdbd_conf(accounting(), _password(b"pw\n")) == slurm_conf.slurmdbd_conf(
        accounting(), _password(b"pw")
    )


@pytest.mark.parametrize("content", [Found(), Found({"db": Secret(data={"other": b"x"})})])
def test_a_missing_password_is_a_missing_reference(content: Found) -> None:
    """Without the Secret, or without the key in it, the field that names it is reported."""
    with pytest.raises(Unbuildable) as caught:
        slurm_conf.slurmdbd_conf(accounting(), content)
    (problem,) = caught.value.problems
    assert (problem.reason, problem.field) == (
        Reason.MISSING_REFERENCE,
        "spec.storageConfig.passwordKeyRef",
    )


# ------------------------------------------------------------------------------------------- what clients see


def test_nodes_and_scripts_do_not_concern_clients() -> None:
    """What only concerns nodes is not in the part of slurm.conf that slurmrestd depends on."""
    world = WORLDS["04-config-merge"]
    bare = msgspec.structs.replace(
        world.controller, spec=msgspec.structs.replace(world.controller.spec, prolog_script_refs=None)
    )
    assert slurm_conf.client_conf(world.cluster) == slurm_conf.client_conf(SlurmCluster(bare))
    changed = controller(extraConf="AuthInfo=x=1")
    assert slurm_conf.client_conf(SlurmCluster(changed)) != slurm_conf.client_conf(SlurmCluster(controller()))


CONSTRAINED = {"annotations": {"slinky.slurm.net/constrain-memory": "true"}}


def test_jobs_have_memory_limits_in_clusters_that_say_so() -> None:
    """With the annotation cgroup.conf limits memory and tasks are put under it; clients see no change."""
    plain, limited = SlurmCluster(controller()), SlurmCluster(controller(CONSTRAINED))
    files = slurm_conf.controller_files(limited, found())
    assert "ConstrainRAMSpace=yes" in files["cgroup.conf"].splitlines()
    assert "TaskPlugin=task/cgroup" in files["slurm.conf"].splitlines()
    before = slurm_conf.controller_files(plain, found())
    assert before["cgroup.conf"] == "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
    assert "TaskPlugin" not in before["slurm.conf"]
    assert slurm_conf.client_conf(limited) == slurm_conf.client_conf(plain)


def test_a_task_plugin_or_a_cgroup_conf_of_the_user_stands() -> None:
    """Whoever sets TaskPlugin keeps it, and with a cgroup.conf of one's own nothing is added at all."""
    own = controller(CONSTRAINED, extraConf="TaskPlugin=task/affinity")
    assert [line for line in _slurm_conf(SlurmCluster(own), found()) if line.startswith("TaskPlugin")] == [
        "TaskPlugin=task/affinity"
    ]
    file = controller(CONSTRAINED, configFileRefs=[{"name": "mine"}])
    files = slurm_conf.controller_files(
        SlurmCluster(file), found(mine={"cgroup.conf": "CgroupPlugin=disabled"})
    )
    assert files.keys() == {"slurm.conf"}
    assert "TaskPlugin" not in files["slurm.conf"]


def test_any_order_of_node_sets_gives_one_text() -> None:
    """NodeSets are written in the order of their names, whatever order a cache returns them in."""
    node_sets = [node_set("b"), node_set("a", partition={"enabled": True, "config": "Default=YES"})]
    assert _slurm_conf(SlurmCluster(PLAIN.controller, node_sets)) == _slurm_conf(
        SlurmCluster(PLAIN.controller, node_sets[::-1])
    )
