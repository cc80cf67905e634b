"""`kubectl slurm` and a running operator: the whole way, through the pod proxy of a real API server."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from tests.support.charts.chart_accounts import operator_kubeconfig
from tests.support.plugin.bench import Bench
from tests.support.plugin.fake_manager import own_address
from tests.support.processes import LOOPBACK_FLAGS, MANAGER, Process, eventually
from tests.support.slurm.hostile_replies import job, number
from tests.support.status_client import viewer

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd


def show_pod(bench: Bench, port: int) -> None:
    """Create the pod that the operator would run in."""
    labels = {"app.kubernetes.io/name": "slurm-operator", "app.kubernetes.io/part-of": "slurm-operator"}
    container = {"name": "slurm-operator", "image": "x", "ports": [{"name": "status", "containerPort": port}]}
    metadata = {"name": "operator", "labels": labels}
    # On no node, so that no controller of the test bed changes its address.
    spec = {"containers": [container], "schedulerName": "none"}
    bench.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    address = own_address()
    bench.status("pod", "operator", phase="Running", podIP=address, podIPs=[{"ip": address}])


async def test_the_command_shows_what_the_operator_decides(
    slinky_box: Box, stage: Stage, hostile: HostileSlurmrestd, tmp_path: Path
) -> None:
    """A worker that waits for its job is blocked in `status`, and `explain` has the plan's own reason."""
    bench = Bench(slinky_box, stage.namespace, tmp_path)
    await asyncio.to_thread(viewer, slinky_box, stage.namespace, "slurm-operator-viewer", stage.namespace)
    arguments = [
        *MANAGER,
        *LOOPBACK_FLAGS,
        f"--status-addr={own_address()}:0",
        f"--namespaces={stage.namespace}",
    ]
    account = str(operator_kubeconfig(slinky_box))
    with Process(None, tmp_path / "operator.log", arguments, KUBECONFIG=account) as operator:
        await eventually(operator.ready, "ready")
        show_pod(bench, await operator.port("status"))
        hostile.add_nodes("blue-0", "IDLE", "DYNAMIC_NORM")
        await stage.nodeset(replicas=1)
        await stage.until_pods("blue-0")
        await stage.ready()
        ends = int(time.time()) + 3600
        times = {"start_time": number(ends - 3600), "end_time": number(ends), "time_limit": number(60)}
        for row in (
            job(7, "blue-0", **times),
            job(8, "", "PENDING", state_reason="Resources", partition="blue"),
        ):
            hostile.jobs[row["job_id"]] = row
        hostile.nodes.change("blue-0", state=["MIXED", "DYNAMIC_NORM"], alloc_cpus=1, partitions=["blue"])

        async def explained() -> Any:
            ended = await bench.run("explain", "pod", "blue-0", "-o", "json")
            assert ended.code == 0, ended
            found = json.loads(ended.out)
            return found if found["waitsFor"] else None

        await eventually(lambda: _has_job(bench), "the job is seen")
        await stage.scale(0)
        found = await eventually(explained, "the worker is blocked")
        assert found["waitsFor"][0].startswith("JobsRunning: ")
        assert found["limited"] == ""
        status = await bench.run("status")
        assert (status.code, "JobsRunning" in status.out, "Limited" in status.out) == (0, True, False), status
        pending = await bench.run("explain", "job", "8")
        assert "Resources: The job is next in line" in pending.out
        assert "drained by the operator" in pending.out
        history = await bench.run("history", "nodeset", "blue")
        assert (history.code, "Nothing is recorded" in history.out) == (0, False)
        refused = await bench.run("undrain", "blue-0", "--force")
        assert (refused.code, "drained by the operator (ScaleIn)" in refused.err) == (1, True)


async def _has_job(bench: Bench) -> bool:
    ended = await bench.run("nodes", "-o", "json")
    rows = json.loads(ended.out)["items"]
    return bool(rows) and rows[0]["jobs"] == [7]
