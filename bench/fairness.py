"""What 47 Slurm clusters notice of three hostile ones and of a NodeSet with long reconciles.

The operator is the process that users run, the API server a real one. Each of 50 namespaces has a Slurm
cluster of its own, played on loopback, with a NodeSet that is scaled out and in at a fixed rate (`tenants`).
Rounds alternate. In the first of two all clusters are well-behaved. In the second one cluster drips bytes,
one answers 250 MB, one resets connections, and in a further namespace the API server takes three seconds for
each pod, so that reconciles there are long. What is asked of these namespaces is the same in all rounds.

    created, observed, removed   see `tenants`; p50 and p95 in milliseconds over all rounds of a kind
    …_alone, …_beside            while the others are well-behaved, and while they are hostile
    …_p95_ratio                  the second by the first, of each pair of rounds: the median of all pairs, and
                                 the least and the most
    queue_, reconcile_mean_ms    what the operator counts itself about its queue of NodeSets: the wait for a
                                 worker, and the time of a reconcile; the hostile ones are counted, too
    peak_mib_alone, …_beside     the most memory that the operator had, before the first hostile round and
                                 after the last one

What plays Slurm is two processes, one of them for what is hostile. All share the cores with what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import report
from bench.nodeset.machines import running_machines
from bench.nodeset.operator import running
from bench.nodeset.stage import following
from bench.tenants import Tenants, crowd
from kubebox import Box, BoxSpec
from slurm_operator.api.schema import all_crds
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.process.log import LogOptions, configure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.nodeset.operator import Operator
    from bench.tenants import Crowd, Tenant, Times

SPEC: Final = BoxSpec(controller_manager=True, scheduler=True)
HOSTILE: Final = 3
SLOW: Final = "slow"
MEASURED: Final = ("created", "observed", "removed")
GOALS: Final[report.Goals] = {f"{what}_p95_ratio": ("≤", 2.0) for what in MEASURED}
_MACHINES: Final = 3
_SLOW_NODESETS: Final = 4
_CONTROLLER: Final = "nodeset-controller"
_WORDS: Final = {
    "created": "change of `replicas` until the pod exists",
    "observed": "… until the status has the generation of the change",
    "removed": "… until a worker that runs is told to go",
}
_MEANS: Final = {
    "queue_mean_ms": "workqueue_queue_duration_seconds",
    "reconcile_mean_ms": "controller_runtime_reconcile_time_seconds",
}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    clusters: int = 50
    rounds: int = 5
    """Of each kind."""
    cycles: int = 2
    """How often each NodeSet is scaled out and in in a round."""
    pause: float = 4.0
    """Seconds between two changes of a NodeSet."""


class Bench:
    """The tenants, the process under test, and what was measured."""

    def __init__(self, sizes: Sizes, operator: Operator, disturbing: Crowd, good: list[Tenant]) -> None:
        self._sizes = sizes
        self._operator = operator
        self._disturbing = disturbing
        self._good = good
        self.rounds: dict[str, list[Times]] = {"alone": [], "beside": []}
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._peaks: dict[str, float] = {}

    async def warm_up(self) -> None:
        """Let each NodeSet have a worker once; caches and connections are there then."""
        await self._cycles(1)
        self._peaks["alone"] = self._operator.peak_mib

    async def round(self, kind: str) -> None:
        """Measure one round."""
        print(f"  {kind} …", file=sys.stderr, flush=True)
        await self._disturbing.hostile(hostile=kind == "beside")
        before = await self._operator.samples(_CONTROLLER)
        times = await self._cycles(self._sizes.cycles)
        after = await self._operator.samples(_CONTROLLER)
        for metric in _MEANS.values():
            for part in ("sum", "count"):
                name = f"{metric}_{part}"
                self._totals[f"{kind} {name}"] += after[name] - before[name]
        self.rounds[kind].append(times)
        if kind == "beside":
            self._peaks[kind] = self._operator.peak_mib
        shown = ", ".join(f"{what} {_p95(times[what]) * 1e3:.0f} ms" for what in MEASURED)
        print(f"    p95: {shown}", file=sys.stderr, flush=True)

    async def _cycles(self, count: int) -> Times:
        times: Times = defaultdict(list)
        first, period = time.monotonic(), 2 * self._sizes.pause
        # Spread over the time, so that no two NodeSets change in the same moment.
        spread = self._sizes.pause / len(self._good)

        async def cycle(number: int, tenant: Tenant) -> None:
            for turn in range(count):
                await tenant.cycle(first + number * spread + turn * period, self._sizes.pause, times)

        async with asyncio.TaskGroup() as group:
            for number, tenant in enumerate(self._good):
                group.create_task(cycle(number, tenant))
        return times

    def figures(self) -> dict[str, float]:
        """Return every figure."""
        found: dict[str, float] = {}
        for what in MEASURED:
            for kind, rounds in self.rounds.items():
                listed_at = [seconds for times in rounds for seconds in times[what]]
                found[f"{what}_p50_ms_{kind}"] = statistics.median(listed_at) * 1e3
                found[f"{what}_p95_ms_{kind}"] = _p95(listed_at) * 1e3
            pairs = zip(*self.rounds.values(), strict=True)
            ratios = [_p95(beside[what]) / _p95(alone[what]) for alone, beside in pairs]
            found[f"{what}_p95_ratio"] = statistics.median(ratios)
            found[f"{what}_p95_ratio_least"], found[f"{what}_p95_ratio_most"] = min(ratios), max(ratios)
        for figure, metric in _MEANS.items():
            for kind in self.rounds:
                total = self._totals[f"{kind} {metric}_sum"]
                found[f"{figure}_{kind}"] = total / max(1.0, self._totals[f"{kind} {metric}_count"]) * 1e3
        return found | {f"peak_mib_{kind}": peak for kind, peak in self._peaks.items()}


def _p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20, method="inclusive")[-1]


async def measure(box: Box, sizes: Sizes, log: Path) -> dict[str, float]:
    """Take every figure."""
    async with (
        running_machines(box, _MACHINES),
        crowd(HOSTILE + 1, "--disturbing") as disturbing,
        crowd(sizes.clusters - HOSTILE) as others,
        Client(load_config(str(box.kubeconfig))) as client,
    ):
        tenants = Tenants(client)
        async with following(tenants.pods), following(tenants.nodesets):
            churning: list[Tenant] = []
            for number in range(HOSTILE):
                churning += await tenants.add(f"hostile-{number}", disturbing, number)
            churning += await tenants.add(SLOW, disturbing, HOSTILE, _SLOW_NODESETS)
            await _slow_down(client, disturbing)
            good: list[Tenant] = []
            for number in range(sizes.clusters - HOSTILE):
                good += await tenants.add(f"tenant-{number}", others, number)
            async with running(box, "", log) as operator, _churn(churning, sizes.pause):
                bench = Bench(sizes, operator, disturbing, good)
                await bench.warm_up()
                for _ in range(sizes.rounds):
                    for kind in bench.rounds:
                        await bench.round(kind)
                return bench.figures() | {"clusters": sizes.clusters, "rounds": sizes.rounds}


async def _slow_down(client: Client, disturbing: Crowd) -> None:
    """Let the API server ask a webhook about each pod of one namespace."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    webhook = {
        "name": "slow.example.org",
        "clientConfig": {"url": disturbing.addresses["webhook"], "caBundle": disturbing.addresses["ca"]},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SLOW}},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    await client.raw("POST", path, body={"metadata": {"name": SLOW}, "webhooks": [webhook]})


@asynccontextmanager
async def _churn(tenants: list[Tenant], pause: float) -> AsyncIterator[None]:
    """Scale the NodeSets out and in while the block runs, one after the other."""
    tasks = []
    for tenant in tenants:
        tasks.append(asyncio.create_task(tenant.churn(pause)))
        await asyncio.sleep(pause / len(tenants))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def words() -> dict[str, str]:
    """Return what to call the figures in docs/project/performance.md, in the order of the table."""
    found: dict[str, str] = {}
    for what, text in _WORDS.items():
        found |= {
            f"{what}_p50_ms_alone": f"{text}: median in ms, all clusters well-behaved",
            f"{what}_p50_ms_beside": "… with hostile clusters",
            f"{what}_p95_ms_alone": "… 95th percentile in ms, all well-behaved",
            f"{what}_p95_ms_beside": "… with hostile clusters",
            f"{what}_p95_ratio": "… the second by the first",
            f"{what}_p95_ratio_least": "… the least of a pair of rounds",
            f"{what}_p95_ratio_most": "… the most of a pair of rounds",
        }
    return found | {
        "peak_mib_alone": "most memory of the operator in MiB, before the first hostile round",
        "peak_mib_beside": "… after the last hostile round",
    }


async def run(sizes: Sizes, log: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Take every figure on one API server."""
    with await asyncio.to_thread(Box.up, SPEC) as box:
        crds = json.dumps({"apiVersion": "v1", "kind": "List", "items": all_crds()})
        await asyncio.to_thread(box.kubectl, "apply", "--server-side", "-f", "-", stdin=crds)
        await asyncio.to_thread(box.kubectl, "wait", "--for=condition=Established", "crd", "--all")
        figures = await measure(box, sizes, log)
        shown = await asyncio.to_thread(box.kubectl, "version", "-o", "json")
        version = json.loads(shown)["serverVersion"]["gitVersion"]
        return figures, report.provenance(kubernetes=version)


def main() -> None:
    """Run the measurement, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clusters", type=int, default=Sizes.clusters)
    parser.add_argument("--rounds", type=int, default=Sizes.rounds, help="of each kind, in turns")
    parser.add_argument("--cycles", type=int, default=Sizes.cycles, help="out and in, for each round")
    parser.add_argument("--pause", type=float, default=Sizes.pause, help="seconds between two changes")
    parser.add_argument("--log", type=Path, help="keep the operator's log in this file")
    report.add_options(parser)
    parser.add_argument("--page", action="store_true", help="only write that table, from the baseline")
    options = parser.parse_args()
    if options.page:
        report.into_page(
            report.PAGE, "fairness", report.markdown(report.baseline("fairness"), GOALS, words())
        )
        return
    configure(LogOptions(level=logging.ERROR))
    sizes = Sizes(options.clusters, options.rounds, options.cycles, options.pause)
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "operator.log"
        report.measure("fairness", options, lambda: asyncio.run(run(sizes, log)), GOALS, words())


if __name__ == "__main__":
    main()
