"""After the last change nothing is written; after a crash everything ends as without one."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import NodeSet
from tests.support.charts.chart_accounts import operator_kubeconfig
from tests.support.processes import LOOPBACK_FLAGS, MANAGER, Process, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.controllers.workload_namespace import Operator
    from tests.support.slurm.hostile_server import HostileSlurmrestd


async def quiet(stage: Stage, operator: Operator, rounds: int = 20) -> None:
    """Wait until nothing has been written for a while, and looking again writes nothing."""
    calm, last = 0, -1

    async def still() -> bool:
        nonlocal calm, last
        now = len(operator.writes)
        calm, last = (calm + 1 if now == last else 0), now
        if calm < rounds:
            return False
        await stage.reconcile_again(operator)
        calm = 0
        return len(operator.writes) == now

    await eventually(still, "silence")


@pytest.mark.usefixtures("slurm_cluster")
async def test_at_rest_nothing_is_written(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """Once all is as it should be, looking again, however often, sends nothing to Kubernetes or Slurm."""
    hostile.add_nodes("blue-[0-3]", "IDLE", "DYNAMIC_NORM")
    operator = await stage.operator()
    await stage.nodeset(replicas=4)
    await stage.until_pods(*(f"blue-{number}" for number in range(4)))
    await stage.ready()
    await stage.until(
        lambda pods: all(pod.condition("SlurmNodeStateIdle") for pod in pods.values()),
        "Slurm's word is on them",
    )
    await quiet(stage, operator)
    before, told = [*operator.writes], len(hostile.seen("POST nodes"))
    for _ in range(20):
        await stage.reconcile_again(operator)
        await asyncio.sleep(0)
    assert operator.writes == before
    assert len(hostile.seen("POST nodes")) == told


async def test_a_new_process_finishes_what_a_killed_one_began(
    stage: Stage, slinky_box: Box, tmp_path: Path
) -> None:
    """An operator killed in the middle of a scale-out leaves what the next one completes, without doubles."""
    flags = (*MANAGER, *LOOPBACK_FLAGS, f"--namespaces={stage.namespace}", "--leader-elect=false")
    # As the chart gives it.
    account = str(operator_kubeconfig(slinky_box))
    names = {f"blue-{number}" for number in range(30)}
    # A quota stops the first one in the middle.
    await stage.quota(pods=10)
    await stage.nodeset(replicas=len(names))
    with Process(None, tmp_path / "first.log", flags, KUBECONFIG=account) as first:
        degraded = await stage.says(NodeSet, "blue", "ApplyFailed", "Degraded")
        assert "exceeded quota" in degraded.message
        await stage.tells("NodeSet", "Warning", "FailedCreate", "Create")
        first.signal(signal.SIGKILL)
        await first.ended()
    left = await stage.pods()
    assert 0 < len(left) <= 10
    await stage.client.raw("DELETE", stage.quota_path)
    with Process(None, tmp_path / "second.log", flags, KUBECONFIG=account):
        pods = await stage.until_pods(*names)
        await stage.ready()
    assert {name: pods[name].metadata.uid for name in left} == {
        name: pod.metadata.uid for name, pod in left.items()
    }
