"""Real daemons of Slurm on the files that the operator wrote into the cluster."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import aiohttp

from slurm_operator.api import Accounting, Controller
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubebox.pytest_plugin import SlurmBoxFactory
    from kubebox.slurm import SlurmBox
    from tests.support.controllers.workload_namespace import Stage

# What a test machine lends nobody, said as a user would say it: in the custom resources.
EXTRA = """\
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurmd/slurmd.pid
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MessageTimeout=5
"""
EXTRA_DBD = "PidFile=/run/slurmdbd/slurmdbd.pid\n"


def adapt(text: str, places: Mapping[str, str]) -> str:
    """Exchange the values of settings: names and ports of pods for those of the box. Each must be there."""
    lines = text.splitlines()
    for setting, value in places.items():
        (index,) = (number for number, line in enumerate(lines) if line.startswith(f"{setting}="))
        lines[index] = f"{setting}={value}"
    return "\n".join(lines) + "\n"


def install(box: SlurmBox, files: Mapping[str, str]) -> None:
    """Put files in the place of the box's own, with owner and mode as the daemons want them."""
    for name, text in files.items():
        path = box._places.etc / name
        if not path.exists():
            path.touch()
            os.chown(path, 401, 401)
        path.write_text(text, encoding="utf-8")


async def test_daemons_come_up_on_what_was_rendered(stage: Stage, slurm_box_factory: SlurmBoxFactory) -> None:
    """slurmdbd, slurmctld, slurmrestd and a slurmd work on the rendered files, and a job is recorded."""
    await stage.operator()
    await stage.keys()
    await stage.password("p4ss")
    await stage.accounting(extraConf=EXTRA_DBD)
    await stage.config_map("files", cgroup__conf="CgroupPlugin=disabled\n")
    await stage.controller(
        clusterName="rendered",
        accountingRef={"name": "slurm"},
        configFileRefs=[{"name": "files"}],
        extraConf=EXTRA,
    )
    await stage.nodeset("workers", partition={"enabled": True, "config": "Default=YES State=UP"})
    await stage.says(Accounting, "slurm", "Available")
    await stage.says(Controller, "slurm", "Available")
    config = (await stage.there(ConfigMap, "slurm-config")).data or {}
    secret = (await stage.there(Secret, "slurm-accounting")).data or {}
    assert set(config) == {"slurm.conf"}  # the user's cgroup.conf takes the place of ours

    box = await asyncio.to_thread(slurm_box_factory, nodes=0, accounting=True)
    ports = box.record().ports
    slurm_conf = adapt(
        config["slurm.conf"],
        {
            "SlurmctldHost": "slurmctld(127.0.0.1)",
            "SlurmctldAddr": "127.0.0.1",
            "SlurmctldPort": str(ports["slurmctld"]),
            "AccountingStorageHost": "localhost",
            "AccountingStoragePort": str(ports["slurmdbd"]),
            "StateSaveLocation": "/var/spool/slurmctld",
            "SlurmdSpoolDir": "/var/spool/slurmd/%n",
        },
    )
    slurmdbd_conf = adapt(
        secret["slurmdbd.conf"].decode(),
        {
            "DbdHost": "localhost",
            "DbdPort": str(ports["slurmdbd"]),
            "StorageHost": "localhost",
            "StorageLoc": "slurm_acct",
        },
    )
    await asyncio.to_thread(_exchange, box, {"slurm.conf": slurm_conf, "slurmdbd.conf": slurmdbd_conf})

    def said(*command: str) -> str:
        return box.run(*command, timeout=30).stdout

    assert "UP" in await asyncio.to_thread(said, "scontrol", "ping")
    shown = await asyncio.to_thread(said, "scontrol", "show", "config")
    for line in ("ClusterName             = rendered", "AuthType                = auth/slurm"):
        assert line in shown

    def registered() -> bool:
        clusters = said("sacctmgr", "--noheader", "--parsable2", "show", "clusters", "format=cluster")
        return "rendered" in clusters.split()

    await eventually(lambda: asyncio.to_thread(registered), "slurmctld has registered with slurmdbd")
    # A worker of the NodeSet: its feature puts it into the partition that slurm.conf makes of the NodeSet.
    await asyncio.to_thread(box.add_node, "workers-0", "CPUs=2 RealMemory=1000 Feature=workers")

    def idle() -> bool:
        return said("sinfo", "--noheader", "--format=%P %n %t").split() == ["workers*", "workers-0", "idle"]

    await eventually(lambda: asyncio.to_thread(idle), "the worker is idle in its partition")
    job = await asyncio.to_thread(box.submit, seconds=0)

    def recorded() -> bool:
        return "COMPLETED" in said("sacct", "--noheader", "--allusers", f"--jobs={job}", "--format=state")

    await eventually(lambda: asyncio.to_thread(recorded), "slurmdbd has the job on record")
    headers = {"X-SLURM-USER-TOKEN": box.token()}
    url = f"{box.url}/slurm/v0.0.42/ping/"
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
        pings = (await answer.json())["pings"]
    assert [(one["hostname"], one["responding"]) for one in pings] == [("slurmctld", True)]


def _exchange(box: SlurmBox, files: Mapping[str, str]) -> None:
    """Stop the daemons, give them other files and an empty state, and start them again."""
    for name in ("slurmrestd", "slurmctld", "slurmdbd"):
        box.stop(name)
    install(box, files)
    box.lose_state()
    for name in ("slurmdbd", "slurmctld", "slurmrestd"):
        box.start(name)
