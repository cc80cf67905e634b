"""The texts of slurm.conf and slurmdbd.conf; their equality with the reference's is in unit/objects."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.conf import conf_files
from slurm_operator.slurm.conf.conf_lines import ConfError, settings

PASSWORD = "s3cret"  # noqa: S105 - made up, to look for
JWT = conf_files.JwtKeys("/etc/slurm/jwt.key")
CLUSTER = conf_files.SlurmConf(
    cluster_name="c",
    hosts=(conf_files.Host("ctl-0", "ctl-0.internal"),),
    port=6817,
    client_address="ctl",
    state_directory="/state/c",
    slurmd_port=6818,
    slurmd_spool="/spool",
    max_nodes=1024,
    controller_log="/log/ctld",
    slurmd_log="/log/d",
    jwt=JWT,
)
DATABASE = conf_files.Database(host="db", port=3306, user="u", name="acct", password=PASSWORD)
SLURMDBD = conf_files.SlurmdbdConf(host="dbd-0", port=6819, jwt=JWT, database=DATABASE)

EXTRA = st.text(alphabet='aZ=,#\\ \n\r"', max_size=40)


def _sections(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("### ")]


def test_sections_without_lines_are_left_out() -> None:
    """A cluster without scripts, node sets and user's lines has only the four sections it needs."""
    assert _sections(conf_files.slurm_conf(CLUSTER)) == [
        "### GENERAL ###",
        "### LOGGING ###",
        "### PLUGINS & PARAMETERS ###",
        "### ACCOUNTING ###",
    ]


def test_standbys_follow_the_primary() -> None:
    """Each slurmctld has a SlurmctldHost line, in order, since the first is the primary."""
    text = conf_files.slurm_conf(
        replace(CLUSTER, hosts=(conf_files.Host("a", "a.x"), conf_files.Host("b", "b.x")))
    )
    assert [line for line in text.splitlines() if line.startswith("SlurmctldHost")] == [
        "SlurmctldHost=a(a.x)",
        "SlurmctldHost=b(b.x)",
    ]


def test_a_key_set_joins_the_key_in_both_files() -> None:
    """With a key set, AuthAltParameters names it after the key, in the merged line as well."""
    jwt = replace(JWT, key_set="/etc/slurm/jwks.json")
    for text in (
        conf_files.slurm_conf(replace(CLUSTER, jwt=jwt, extra="AuthAltParameters=jwks=/mine,x=1")),
        conf_files.slurmdbd_conf(replace(SLURMDBD, jwt=jwt, extra="AuthAltParameters=jwks=/mine,x=1")),
    ):
        assert "\nAuthAltParameters=jwt_key=/etc/slurm/jwt.key,jwks=/etc/slurm/jwks.json\n" in text
        assert text.endswith("\nAuthAltParameters=jwks=/etc/slurm/jwks.json,jwt_key=/etc/slurm/jwt.key,x=1\n")


def test_slurmdbd_has_no_slurmctld_parameters_to_merge() -> None:
    """In slurmdbd.conf only the parameters that it knows are merged."""
    assert "MERGED" not in conf_files.slurmdbd_conf(replace(SLURMDBD, extra="SlurmctldParameters=x"))


def test_a_missing_user_or_password_is_left_to_slurmdbd() -> None:
    """An empty value would be a syntax error in Slurm's files, so its line is left out."""
    text = conf_files.slurmdbd_conf(replace(SLURMDBD, database=replace(DATABASE, user="", password="")))
    assert "StorageUser" not in text
    assert "StoragePass" not in text


@given(EXTRA)
def test_the_users_lines_stand_as_they_are(extra: str) -> None:
    """extraConf is in the file unchanged, and only the merged lines come after it."""
    for text in (
        conf_files.slurm_conf(replace(CLUSTER, extra=extra)),
        conf_files.slurmdbd_conf(replace(SLURMDBD, extra=extra)),
    ):
        heading = "#\n### EXTRA CONFIG ###\n"
        assert (heading in text) == bool(extra)
        if extra:
            rest = text.split(heading)[1]
            assert rest.startswith(f"{extra}\n")
            assert rest[len(extra) + 1 :] == "" or rest[len(extra) + 1 :].startswith(
                "#\n### MERGED CONFIG ###\n"
            )
        assert text.endswith("\n")


@given(st.lists(st.sampled_from(["a", "enable_configless", "b=1"]), min_size=1).map(",".join))
def test_the_cluster_keeps_what_it_cannot_work_without(value: str) -> None:
    """Whatever simple value the user gives, the last SlurmctldParameters line has the required options."""
    found = settings(conf_files.slurm_conf(replace(CLUSTER, extra=f"SlurmctldParameters={value}")))
    assert {"enable_configless", "reconfig_on_restart"} <= set(found["slurmctldparameters"].split(","))


@pytest.mark.parametrize(
    ("broken", "parameter"),
    [
        (replace(CLUSTER, cluster_name="a\nSlurmUser=root"), "ClusterName"),
        (replace(CLUSTER, cluster_name=""), "ClusterName"),
        (replace(CLUSTER, hosts=(conf_files.Host("a b"),)), "SlurmctldHost"),
        (replace(CLUSTER, port=0), "SlurmctldPort"),
        (replace(CLUSTER, accounting=conf_files.DaemonAddress("a#", 1)), "AccountingStorageHost"),
        (replace(CLUSTER, accounting=conf_files.DaemonAddress("a", 70000)), "AccountingStoragePort"),
        (replace(CLUSTER, node_groups=(conf_files.NodeGroup("n\r"),)), "NodeSet"),
        (replace(CLUSTER, node_groups=(conf_files.NodeGroup("n", "a\nb"),)), "PartitionName=n"),
        (replace(CLUSTER, scripts=conf_files.Scripts(prolog=("a b",))), "Prolog"),
    ],
)
def test_a_value_that_would_break_slurm_conf_is_refused(broken: conf_files.SlurmConf, parameter: str) -> None:
    """A value that would break the file is refused with the name of its parameter."""
    with pytest.raises(ConfError) as caught:
        conf_files.slurm_conf(broken)
    assert caught.value.parameter == parameter


def test_the_password_is_in_no_repr() -> None:
    """Neither the database nor the file's description shows the password when printed."""
    assert PASSWORD not in repr(SLURMDBD)
    assert PASSWORD not in repr(DATABASE)


def _lines(*groups: conf_files.NodeGroup, extra: str = "") -> list[str]:
    plain = conf_files.slurm_conf(replace(CLUSTER, extra=extra)).splitlines()
    found = conf_files.slurm_conf(replace(CLUSTER, node_groups=groups, extra=extra)).splitlines()
    return [line for line in found if line not in plain]


def test_power_saving_is_switched_on_only_where_a_node_set_asks_for_it() -> None:
    """Other nodes are powered down after a year, and the programs do nothing.

    No partition has a SuspendTime: another NodeSet may give its nodes the feature, and would be powered down.
    """
    assert not any("Suspend" in line for line in _lines(conf_files.NodeGroup("a", "State=UP")))
    times = "SuspendTimeout=60 ResumeTimeout=600"
    power = conf_files.PowerSaving(suspend_timeout=60, resume_timeout=600)
    assert _lines(conf_files.NodeGroup("a", "State=UP", power), conf_files.NodeGroup("b", None, power)) == [
        "### POWER SAVING ###",
        "SuspendProgram=/bin/true",
        "ResumeProgram=/bin/true",
        "SuspendTime=31536000",
        "SuspendRate=0",
        "ResumeRate=0",
        "### NODESET & PARTITION ###",
        "NodeSet=a Feature=a",
        f"PartitionName=a Nodes=a {times} State=UP",
        "NodeSet=b Feature=b",
        f"PartitionName=b-power-saving Nodes=b {times} Hidden=YES State=INACTIVE",
    ]


def test_idle_nodes_that_are_kept_join_those_of_the_user() -> None:
    """A count of 0 would mean all nodes, so it is left out."""
    some = conf_files.PowerSaving(suspend_timeout=10, resume_timeout=10, keeps=2)
    none = replace(some, keeps=0)
    groups = (conf_files.NodeGroup("a", "State=UP", some), conf_files.NodeGroup("b", "State=UP", none))
    assert "SuspendExcNodes=a:2" in _lines(*groups)
    assert "SuspendExcNodes=a:2,x-[1-2]" in _lines(*groups, extra="SuspendExcNodes=x-[1-2]")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("Login1,Login3", "a:2,Login1,Login3"),
        ("n[1,3-4],x", "a:2,n1,n3,n4,x"),
        ('"n[1-4]:2"', "a:2,n[1-4]:2"),
        ("n[1,", "a:2,n[1,"),
        ("a:2", "a:2"),
    ],
)
def test_nodes_that_the_user_keeps_up_are_still_the_same(given: str, line: str) -> None:
    """Names have their case, and beside a count Slurm would end an item at a comma in brackets."""
    some = conf_files.PowerSaving(suspend_timeout=10, resume_timeout=10, keeps=2)
    found = conf_files.slurm_conf(
        replace(
            CLUSTER,
            node_groups=(conf_files.NodeGroup("a", "State=UP", some),),
            extra=f"SuspendExcNodes={given}",
        )
    )
    assert found.splitlines()[-1] == f"SuspendExcNodes={line}"
