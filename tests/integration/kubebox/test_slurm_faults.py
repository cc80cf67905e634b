"""A Slurm box can be broken and repaired in the ways that matter to clients of Slurm."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import TYPE_CHECKING, Any

import pytest

from kubebox import BoxError, SlurmBox
from kubebox.slurm.rootfs import RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable

    Eventually = Callable[[Callable[[], bool], str], None]
    Factory = Callable[..., SlurmBox]

REFUSED_TOKEN = 511
BOTH = pytest.mark.parametrize("release", RELEASES)


def get(
    box: SlurmBox, path: str, token: str | None = None, *, api: str = "slurm", timeout: float = 30.0
) -> tuple[int, Any]:
    host = box.url.removeprefix("http://")
    with contextlib.closing(http.client.HTTPConnection(host, timeout=timeout)) as connection:
        headers = {"X-SLURM-USER-TOKEN": token or box.token()}
        connection.request("GET", f"/{api}/v0.0.42/{path}", headers=headers)
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if response.status == http.HTTPStatus.OK else body


def nodes(box: SlurmBox) -> dict[str, list[str]]:
    status, found = get(box, "nodes/")
    assert status == http.HTTPStatus.OK
    return {node["name"]: node["state"] for node in found["nodes"]}


def job_state(box: SlurmBox, job: int) -> str:
    """Return the state of a job; nothing if slurmctld does not answer."""
    shown = box.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T", check=False)
    return shown.stdout.strip()


def sleeps(box: SlurmBox, node: str) -> int:
    """Count the processes of jobs that run on a node."""
    shown = box.run("ps", "-e", "-o", "comm=", node=node).stdout.split()
    return shown.count("sleep")


def running(box: SlurmBox, eventually: Eventually, *on: str) -> int:
    job = box.submit("#!/bin/sh\nexec srun sleep 1000\n", nodes=on)
    eventually(lambda: all(sleeps(box, node) for node in on), f"the job runs on {on}")
    return job


@BOTH
def test_slurmctld_and_its_nodes_come_and_go(
    release: str, slurm_box_factory: Factory, eventually: Eventually
) -> None:
    """A stopped slurmctld comes back with its job; a stopped slurmd ends its job, unless told not to."""
    box = slurm_box_factory(release=release, nodes=2)
    job = running(box, eventually, "n0", "n1")

    box.stop("slurmctld")
    assert "slurmctld" not in box.pids
    assert get(box, "ping/")[1]["pings"][0]["responding"] is False
    assert sleeps(box, "n0") == 1
    box.start("slurmctld")
    eventually(lambda: job_state(box, job) == "RUNNING", "slurmctld knows that the job runs")

    box.stop("slurmd-n1", keep_steps=True)
    box.start("slurmd-n1")
    assert sleeps(box, "n1") == 1
    eventually(lambda: job_state(box, job) == "RUNNING", "the job still runs")

    box.stop("slurmd-n1")
    box.start("slurmd-n1")
    assert sleeps(box, "n1") == 0
    assert sleeps(box, "n0") == 1


@BOTH
def test_slurmrestd_says_nothing_when_paused_and_refuses_when_stopped(
    release: str, slurm_box_factory: Factory
) -> None:
    """A paused slurmrestd accepts and is silent, a stopped one refuses; both come back on the same port."""
    box = slurm_box_factory(release=release, nodes=0)
    box.pause("slurmrestd")
    with pytest.raises(TimeoutError):
        get(box, "ping/", timeout=0.5)
    box.resume("slurmrestd")
    assert get(box, "ping/")[0] == http.HTTPStatus.OK
    box.stop("slurmrestd", kill=True)
    with pytest.raises(ConnectionRefusedError):
        get(box, "ping/")
    box.start("slurmrestd")
    assert get(box, "ping/")[0] == http.HTTPStatus.OK
    with pytest.raises(BoxError, match="slurmrestd runs already"):
        box.start("slurmrestd")


@BOTH
def test_lost_state_is_a_slurmctld_without_nodes(release: str, slurm_box_factory: Factory) -> None:
    """A slurmctld that lost its state answers, with no node; a restarted slurmd makes itself known again."""
    box = slurm_box_factory(release=release, nodes=2)
    assert set(nodes(box)) == {"n0", "n1"}
    box.lose_state()
    assert nodes(box) == {}
    box.restart("slurmd-n0")
    assert set(nodes(box)) == {"n0"}


@BOTH
def test_rotated_key_refuses_old_tokens(release: str, slurm_box_factory: Factory) -> None:
    """After a rotation only tokens of the new key are taken; a foreign and an expired one never are."""
    box = slurm_box_factory(release=release, nodes=0)
    old = box.token()
    assert get(box, "nodes/", old)[0] == http.HTTPStatus.OK
    assert get(box, "nodes/", box.token(key=b"x" * 32))[0] == REFUSED_TOKEN
    assert get(box, "nodes/", box.token(lifetime=-1))[0] == REFUSED_TOKEN
    key = box.rotate_jwt_key()
    assert box.jwt_key == key
    assert get(box, "nodes/", old)[0] == REFUSED_TOKEN
    assert get(box, "nodes/")[0] == http.HTTPStatus.OK


@BOTH
def test_nodes_and_settings_can_be_changed(release: str, slurm_box_factory: Factory) -> None:
    """Nodes come and go while the box runs, and new lines of slurm.conf take the place of the old ones."""
    box = slurm_box_factory(release=release, nodes=1, extra_conf="PartitionName=first Nodes=ALL")
    box.add_node("gpu-0", conf="CPUs=2 Feature=gpu")
    assert box.nodes == ["n0", "gpu-0"]
    assert "gpu-0 gpu idle" in box.run("sinfo", "--Node", "--format=%N %f %T").stdout
    with pytest.raises(BoxError, match="'gpu-0' is taken"):
        box.add_node("gpu-0")
    box.remove_node("gpu-0")
    assert box.nodes == ["n0"]
    assert "gpu-0" in nodes(box)
    with pytest.raises(BoxError, match="has no 'slurmd-gpu-0'"):
        box.remove_node("gpu-0")
    with pytest.raises(BoxError, match="Nonsense"):
        box.add_node("bad-0", conf="Nonsense=1")
    assert box.nodes == ["n0"]

    box.set_conf("PartitionName=second Nodes=ALL")
    partitions = box.run("sinfo", "--noheader", "--format=%R").stdout.split()
    assert set(partitions) == {"all", "second"}


def test_jobs_run_for_real_on_several_nodes(
    slurm_box: SlurmBox, slurm_box_24: SlurmBox, eventually: Eventually
) -> None:
    """A job of a normal user runs on each of its nodes, under their names, and its output can be read."""
    for box in (slurm_box, slurm_box_24):
        job = box.submit("#!/bin/sh\nsrun sh -c 'echo $(hostname) $(id --user --name)'\n", nodes=["n0", "n2"])
        eventually(lambda: job_state(box, job) == "COMPLETED", "the job is done")  # noqa: B023
        output = (box.home / "alice" / f"slurm-{job}.out").read_text().splitlines()
        assert sorted(output) == ["n0 alice", "n2 alice"]


@BOTH
def test_accounting_remembers_finished_jobs(
    release: str, slurm_box_factory: Factory, eventually: Eventually
) -> None:
    """With accounting a job's end is in the database, also after slurmdbd was away, and over REST."""
    box = slurm_box_factory(release=release, nodes=1, accounting=True)
    job = box.submit("#!/bin/sh\nexit 3\n")
    box.restart("slurmdbd")
    wanted = ["sacct", "--noheader", "--allusers", "--parsable2", f"--jobs={job}", "--format=state,exitcode"]
    eventually(lambda: "FAILED|3:0" in box.run(*wanted).stdout, "the job's end is in the database")
    found = get(box, f"job/{job}", api="slurmdb")[1]["jobs"][0]
    assert (found["user"], found["state"]["current"]) == ("alice", ["FAILED"])
    assert {"mariadb", "slurmdbd"} <= set(box.pids)
    assert {component["health"] for component in box.status().values()} == {"healthy"}


def test_command_that_fails_or_takes_too_long_is_an_error(slurm_box: SlurmBox) -> None:
    """What a program inside complains of is in the error, and one that does not end is ended."""
    with pytest.raises(BoxError, match=r"scontrol show nonsense: .*invalid entity"):
        slurm_box.run("scontrol", "show", "nonsense")
    with pytest.raises(BoxError, match=r"no end within 0\.2 s"):
        slurm_box.run("sleep", "777", timeout=0.2)
    assert "777" not in slurm_box.run("ps", "-e", "-o", "args=").stdout
    with pytest.raises(BoxError, match="user 'carol' does not exist"):
        slurm_box.run("sinfo", user="carol")
    with pytest.raises(BoxError, match="has no 'slurmdbd'"):
        slurm_box.stop("slurmdbd")


def test_thirty_nodes_and_a_thousand_records(slurm_box_factory: Factory) -> None:
    """Thirty slurmd and a thousand cloud records come up together and are all there for slurmrestd."""
    box = slurm_box_factory(nodes=30, cloud_nodes=1000)
    found = nodes(box)
    assert len(found) == 1030
    assert all(found[name] == ["IDLE", "DYNAMIC_NORM"] for name in box.nodes)
    assert sum("CLOUD" in state for state in found.values()) == 1000


def test_name_of_a_node_is_checked(slurm_box: SlurmBox) -> None:
    """A node name that cannot be used is refused with the reason, and no node is added."""
    with pytest.raises(BoxError, match="'Bad Name' cannot be used"):
        slurm_box.add_node("Bad Name")
    assert slurm_box.nodes == ["n0", "n1", "n2"]
