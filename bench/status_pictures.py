"""Take pictures of the status page for the documentation: `python -m bench.status_pictures FOLDER`.

The operator, the API server and the browser are real; nodes, pods and Slurm are the stand-ins of the
benchmark for NodeSets. Two NodeSets have jobs; one of them scales in while all of its workers are busy, an
administrator has drained a node, and another node is down.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.nodeset.machines import running_machines
from bench.nodeset.measurements import run as run_on_box
from bench.nodeset.operator import running
from bench.nodeset.slurmctld import number
from bench.nodeset.stage import NAME, NAMESPACE, create_nodeset, staged
from bench.status_page import viewer_token
from slurm_operator.api import NodeSet
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.process.log import LogOptions, configure
from tests.support.browser import browser_page
from tests.support.processes import eventually
from tests.support.token_proxy import token_proxy

if TYPE_CHECKING:
    from bench.nodeset.slurmctld import Slurmctld
    from bench.nodeset.stage import Stage
    from kubebox import Box
    from tests.support.browser import BrowserPage

_COMPUTE: Final = 150
_GPU: Final = 48
_NAMES: Final = ("train-llama", "resnet-sweep", "md-protein", "cfd-wing", "genome-align", "eval")
_USERS: Final = ("alice", "bob", "chen", "divya", "emre")
_TROUBLED: Final = ("compute-17", "compute-90")
_BUSY: Final = 0.7
_PENDING: Final = ("Resources", "Priority", "QOSMaxCpuPerUserLimit", "ReservedForMaintenance")


def work(slurmctld: Slurmctld, chance: random.Random) -> None:
    """Give most nodes a job, and let others wait."""
    for name in [*slurmctld.nodes]:
        if name not in _TROUBLED and (name.startswith("gpu") or chance.random() < _BUSY):
            start, minutes = int(time.time()), chance.randrange(20, 400)
            times = {"end_time": number(start + 60 * minutes), "time_limit": number(minutes)}
            describe(slurmctld, slurmctld.run_job(name), chance, partition=name.rpartition("-")[0], **times)
    for _ in range(25):
        waits = {"job_state": ["PENDING"], "nodes": "", "state_reason": chance.choice(_PENDING)}
        describe(slurmctld, slurmctld.run_job("gpu-0"), chance, partition="gpu", **waits)
    down, drained = _TROUBLED
    slurmctld.nodes.change(down, state=["DOWN", "NOT_RESPONDING", "DYNAMIC_NORM"], reason="Not responding")
    slurmctld.update([drained], {"state": ["DRAIN"], "reason": "memtest by ann"})


def describe(slurmctld: Slurmctld, job: str, chance: random.Random, **fields: Any) -> None:
    """Say whose a job is, and what it is called."""
    whose = {"name": chance.choice(_NAMES), "user_name": chance.choice(_USERS)}
    slurmctld.jobs.put(job, {**slurmctld.jobs[job], **whose, **fields})


async def prepare(stage: Stage) -> None:
    """Bring the workers up, give them work, and scale one NodeSet in."""
    await create_nodeset(stage.client, NAMESPACE, "gpu", _GPU)
    await stage.client.patch(NodeSet, NAME, NAMESPACE, {"spec": {"replicas": _COMPUTE}}, type=PatchType.MERGE)
    await eventually(lambda: len(stage.pods.ready) == _COMPUTE + _GPU, "all workers are ready", 300.0)
    await eventually(lambda: len(stage.slurmctld.nodes) == _COMPUTE + _GPU, "all are in Slurm", 60.0)
    await asyncio.sleep(20.0)
    work(stage.slurmctld, random.Random(4))  # noqa: S311 - the same on every run
    await asyncio.sleep(10.0)
    body = {"spec": {"replicas": _GPU - 4}}
    await stage.client.patch(NodeSet, "gpu", NAMESPACE, body, type=PatchType.MERGE)


async def take(page: BrowserPage, url: str, folder: Path) -> None:
    """Take the pictures."""
    ready = (
        "document.querySelectorAll('.cell.stuck').length >= 5"
        " && document.querySelectorAll('#jobs tbody tr').length > 10"
    )
    for name, sizes in {
        "status-page": {"width": 1280, "height": 1080},
        "status-page-dark": {"width": 1280, "height": 900, "dark": True},
        "status-page-phone": {"width": 390, "height": 844},
    }.items():
        await page.goto(url, **sizes)  # type: ignore[arg-type]
        await eventually(lambda: page.js(ready), "everything is shown")
        if name.endswith("dark"):
            await page.js("document.querySelectorAll('.cell.s-draining')[1].click()")
            told = "document.querySelector('#detail .timeline') !== null"
            await eventually(lambda: page.js(told), "the details are shown")  # noqa: B023
        await page.screenshot(folder / f"{name}.png", whole=False)


async def pictures(box: Box, folder: Path, log: Path) -> dict[str, float]:
    """Run everything and leave the pictures in a folder."""
    async with (
        running_machines(box, 4),
        staged(box, 1) as stage,
        running(box, NAMESPACE, log) as operator,
    ):
        await prepare(stage)
        token = await viewer_token(box)
        async with (
            token_proxy(operator.status, token) as url,
            browser_page(log.with_suffix(".browser")) as page,
        ):
            await take(page, f"{url}/", folder)
    return {}


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    configure(LogOptions())
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "operator.log"
        asyncio.run(run_on_box(lambda box: pictures(box, options.folder, log)))
    print(f"pictures are in {options.folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
