"""Measure how long `kubectl slurm status` takes: `python -m bench.command [--workers 5000]`.

    status_*       seconds from the start of kubectl to the end of the command, with three workers and with
                   many: the median of the runs, the shortest and the longest
    cpu_*          processor seconds of kubectl and the command
    nodes_*, explain_*, limited_*
                   the same for `nodes`, for `explain pod`, and for `status` without the operator

The command runs as a user runs it: kubectl finds it on PATH, it reads the kubeconfig, looks for the operator,
gets a token and asks the manager through the pod proxy of a real API server. Nodes and Slurm are those of
bench.nodeset. The first run compiles the modules, as an installation by pip does, and is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bench import report
from bench.nodeset import phases
from bench.nodeset.machines import running_machines
from bench.nodeset.measurements import run as run_on_box
from bench.nodeset.operator import running
from bench.nodeset.stage import NAMESPACE, staged
from scripts.demo_cluster import install_plugin
from slurm_operator.kube.process.log import LogOptions, configure
from tests.support.plugin.fake_manager import own_address

if TYPE_CHECKING:
    from bench.nodeset.operator import Operator
    from bench.nodeset.phases import Figures
    from kubebox import Box

_PER_NODE: Final = 100
_FEW: Final = 3
_POD: Final = "operator"
_VIEWER: Final = "slurm-operator-viewer"
_WORDS: Final = {
    "status_few": "`status` with 3 workers, seconds",
    "status_few_least": "… shortest",
    "status_few_most": "… longest",
    "cpu_few": "… processor seconds",
    "status_many": "`status` with 5,000 workers, seconds",
    "status_many_least": "… shortest",
    "status_many_most": "… longest",
    "cpu_many": "… processor seconds",
    "nodes_many": "`nodes` with 5,000 workers, seconds",
    "explain_many": "`explain pod` with 5,000 workers, seconds",
    "limited_many": "`status` with 5,000 workers and no operator, seconds",
}
_GOALS: Final[report.Goals] = {"status_few": ("≤", 1.0), "status_many": ("≤", 3.0)}


class Command:
    """Runs `kubectl slurm` against a box."""

    def __init__(self, box: Box, folder: Path) -> None:
        programs = install_plugin(folder / "bin")["kubectl-slurm"].parent
        environment = os.environ | box.environment
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        path = f"{programs}{os.pathsep}{environment['PATH']}"
        self._environment = environment | {"PATH": path, "PYTHONPYCACHEPREFIX": str(folder / "cache")}

    async def run(self, *arguments: str) -> tuple[float, float, str]:
        """Return how many seconds and processor seconds a command takes, and what it prints."""
        place = ("-n", NAMESPACE, f"--operator-namespace={NAMESPACE}")
        used, began = _used(), time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "slurm", *arguments, *place),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        out, err = await process.communicate()
        took = time.monotonic() - began
        if process.returncode:
            raise RuntimeError(f"kubectl slurm {' '.join(arguments)}: {err.decode()}")
        return took, _used() - used, out.decode()

    async def measure(self, rounds: int, *arguments: str, limited: bool = False) -> list[tuple[float, float]]:
        """Return seconds and processor seconds of some runs, after one that is not counted."""
        runs = []
        for number in range(rounds + 1):
            took, cpu, out = await self.run(*arguments)
            if ("Limited view" in out) != limited:
                raise RuntimeError(f"this is not what is to be measured:\n{out[:1000]}")
            runs += [(took, cpu)] if number else []
        return runs


def _used() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _spread(name: str, suffix: str, runs: list[tuple[float, float]]) -> Figures:
    seconds = [took for took, _ in runs]
    return {
        f"{name}_{suffix}": statistics.median(seconds),
        f"{name}_{suffix}_least": min(seconds),
        f"{name}_{suffix}_most": max(seconds),
        **({f"cpu_{suffix}": statistics.median(cpu for _, cpu in runs)} if name == "status" else {}),
    }


async def show_operator(box: Box, operator: Operator) -> None:
    """Create the pod that the operator would run in, and the account whose token opens its API."""
    address = urlsplit(operator.status)
    labels = {"app.kubernetes.io/name": "slurm-operator", "app.kubernetes.io/part-of": "slurm-operator"}
    container: dict[str, Any] = {"name": "slurm-operator", "image": "x"}
    container["ports"] = [{"name": "status", "containerPort": address.port}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _POD, "namespace": NAMESPACE, "labels": labels},
        # On no node, so that no controller changes its address.
        "spec": {"containers": [container], "schedulerName": "none"},
    }
    status = {"phase": "Running", "podIP": address.hostname, "podIPs": [{"ip": address.hostname}]}
    where = ("--namespace", NAMESPACE)
    rule = ("--verb=list", "--resource=nodesets.slinky.slurm.net")
    who = ("--clusterrole=viewer", f"--serviceaccount={NAMESPACE}:{_VIEWER}")
    patch = ("--subresource=status", "--type=merge", "--patch", json.dumps({"status": status}))
    await asyncio.to_thread(box.kubectl, "create", "-f", "-", stdin=json.dumps(pod))
    for arguments in (
        ("patch", "pod", _POD, *where, *patch),
        ("create", "serviceaccount", _VIEWER, *where),
        ("create", "clusterrole", "viewer", *rule),
        ("create", "clusterrolebinding", "viewer", *who),
    ):
        await asyncio.to_thread(box.kubectl, *arguments)


async def measure(box: Box, workers: int, rounds: int, folder: Path) -> Figures:
    """Take every figure."""
    command = Command(box, folder)
    async with (
        running_machines(box, max(3, math.ceil(workers / _PER_NODE))),
        staged(box, _FEW) as stage,
        running(box, NAMESPACE, folder / "operator.log", status_host=own_address()) as operator,
    ):
        run = phases.Run(box, stage, operator, 3.0)
        await stage.until(lambda: stage.nodeset.status.ready_replicas == _FEW, "the first workers are ready")
        await show_operator(box, operator)
        figures = _spread("status", "few", await command.measure(rounds, "status"))
        print(f"  {workers} workers …", file=sys.stderr, flush=True)
        await phases.scale_out(run, workers)
        figures |= _spread("status", "many", await command.measure(rounds, "status"))
        figures |= _spread("nodes", "many", await command.measure(rounds, "nodes"))
        pod = f"{stage.nodeset.metadata.name}-0"
        figures |= _spread("explain", "many", await command.measure(rounds, "explain", "pod", pod))
        await asyncio.to_thread(box.kubectl, "delete", "pod", _POD, "--namespace", NAMESPACE, "--force")
        figures |= _spread("limited", "many", await command.measure(rounds, "status", limited=True))
    return figures


def main() -> None:
    """Run the measurements, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=9)
    report.add_options(parser)
    options = parser.parse_args()
    configure(LogOptions())

    def take() -> tuple[report.Figures, report.Origin]:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(
                run_on_box(lambda box: measure(box, options.workers, options.rounds, Path(folder)))
            )

    report.measure("command", options, take, _GOALS, _WORDS)


if __name__ == "__main__":
    main()
