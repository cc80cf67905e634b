"""Which modules a scale-in runs through; `scripts/counts.py` counts the list that is compared here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scripts.counts import NODESET, SCALE_IN
from slurm_operator.api import NodeSet
from tests.support.module_trace import traced
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd

WORKERS = ("blue-0", "blue-1")
PROTECTED = "nodeset.slinky.slurm.net/pod-protect"


@pytest.mark.usefixtures("slurm_cluster")
async def test_a_scale_in_runs_through_the_modules_that_are_listed(
    stage: Stage, hostile: HostileSlurmrestd
) -> None:
    """From the change of `replicas` until the worker, on which a job ran, is gone and the status says so.

    What also runs while workers are created, start a job and are kept as they are is no part of it.
    """

    def commented(name: str) -> bool:
        return f'"podName":"{name}"' in hostile.nodes[name]["comment"]

    async def kept(name: str, history: int) -> None:
        """Go through what happens to workers that stay, and some reconciles that find nothing to do."""
        await stage.patch(NodeSet, "blue", {"spec": {"revisionHistoryLimit": history}})
        hostile.nodes[name] = hostile.nodes[name] | {"comment": "changed by someone else"}
        await eventually(lambda: commented(name), "the comment is written again")
        await stage.ready()
        for _ in range(5):
            await stage.reconcile_again(operator)
            await asyncio.sleep(0.3)

    hostile.add_nodes("blue-[0-1]", "IDLE", "DYNAMIC_NORM")
    operator = await stage.operator()
    with traced(NODESET) as otherwise:
        await stage.nodeset(replicas=2)
        await stage.until_pods(*WORKERS)
        await stage.ready()
        await eventually(lambda: all(map(commented, WORKERS)), "comments are written")
        busy = {"state": ["ALLOCATED", "DYNAMIC_NORM"], "alloc_cpus": 1}
        for name in WORKERS:
            hostile.nodes[name] = hostile.nodes[name] | busy
        await stage.until(
            lambda pods: all(pod.metadata.labels.get(PROTECTED) == "true" for pod in pods.values()),
            "the busy workers are protected",
        )
        await kept("blue-0", 5)
    with traced(NODESET) as scaling_in:
        await stage.scale(1)
        await stage.says(NodeSet, "blue", "JobsRunning", "Progressing")
        (leaving,) = (name for name in WORKERS if "DRAIN" in hostile.nodes[name]["state"])
        idle = {"state": ["IDLE", "DRAIN", "DYNAMIC_NORM"], "alloc_cpus": 0}
        hostile.nodes[leaving] = hostile.nodes[leaving] | idle
        await stage.until_pods(*(name for name in WORKERS if name != leaving))
        # The operator sees the pod go later than this test does, and then runs something, too.
        await stage.ready()
        await stage.reconcile_again(operator)
    (left,) = {*WORKERS} - {leaving}
    with traced(NODESET) as afterwards:
        await kept(left, 6)
    found = {module for module, _ in scaling_in - otherwise - afterwards}
    listed = {*SCALE_IN.read_text(encoding="utf-8").split()}
    assert found <= listed, "list what has come in addition"
    decisions = f"{NODESET}.decide."
    assert [one for one in sorted(listed - found) if one.startswith(decisions)] == [], "no longer part of it"
