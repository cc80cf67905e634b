"""The status API of a running operator: what it shows, to whom, and what it costs others."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from slurm_operator.api import NodeSet
from tests.support.charts.chart_accounts import allow_lease, operator_kubeconfig
from tests.support.processes import LOOPBACK_FLAGS, MANAGER, Process, eventually
from tests.support.slurm.hostile_replies import job, number
from tests.support.slurm.hostile_server import Fault
from tests.support.status_client import StatusClient, status_client, token, viewer

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd


async def workers(status: StatusClient, query: str = "") -> dict[str, Any]:
    """Return the rows of workers, by pod."""
    return {row["pod"]: row for row in await status.items(f"workers{query}")}


async def running(stage: Stage, hostile: HostileSlurmrestd, replicas: int = 2) -> None:
    """Have some workers that run and are idle in Slurm."""
    hostile.add_nodes(f"blue-[0-{replicas - 1}]", "IDLE", "DYNAMIC_NORM")
    await stage.nodeset(replicas=replicas)
    await stage.until_pods(*(f"blue-{number}" for number in range(replicas)))
    await stage.ready()


async def check_overview(status: StatusClient, namespace: str) -> None:
    """Check what is shown on one screen while one of two workers waits for its job."""
    _, overview = await status.ask("overview")
    (cluster,), (nodeset,) = overview["clusters"], overview["nodesets"]
    assert (cluster["connected"], cluster["reason"], cluster["nodes"]["total"]) == (True, "Connected", 2)
    assert cluster["via"] == f"Cluster {namespace}/slurm"
    assert cluster["jobs"]["byState"] == {"PENDING": 1, "RUNNING": 2}
    assert (nodeset["desired"], nodeset["pods"], nodeset["blocked"]["byReason"]) == (
        1,
        2,
        {"JobsRunning": 1},
    )
    assert (overview["blockedTotal"], overview["blocked"][0]["pod"]) == (1, "blue-1")
    assert overview["scope"] == {"all": False, "namespaces": [namespace]}


async def check_jobs(status: StatusClient) -> None:
    """Check the details of a running and a pending job."""
    (jobs,) = await status.items("jobs")
    assert [(row["id"], row["workers"]) for row in jobs["jobs"]] == [
        (6, ["blue-0"]),
        (7, ["blue-1"]),
        (8, []),
    ]
    assert (jobs["jobs"][2]["user"], jobs["jobs"][2]["stateReason"]) == ("bob", "Resources")
    (some,) = await status.items("jobs?user=bob")
    assert (some["total"], some["matched"], some["shown"]) == (3, 1, 1)
    (on_node,) = await status.items("jobs?node=blue-1")
    assert [row["id"] for row in on_node["jobs"]] == [7]


async def test_a_blocked_worker_is_explained(
    slinky_box: Box, stage: Stage, hostile: HostileSlurmrestd, operator: Process
) -> None:
    """A worker that waits for its job has the plan's reason, the end of the job, and a next step."""
    bearer = await asyncio.to_thread(viewer, slinky_box, stage.namespace, "reader", stage.namespace)
    ends = int(time.time()) + 3600
    async with status_client(operator, bearer) as status:
        await running(stage, hostile)
        # The one whose job ends first is chosen.
        later = {
            "start_time": number(ends - 3600),
            "end_time": number(ends + 36_000),
            "time_limit": number(660),
        }
        times = {"start_time": number(ends - 3600), "end_time": number(ends), "time_limit": number(60)}
        pending = {"state_reason": "Resources", "user_name": "bob", "partition": "blue"}
        for row in (job(6, "blue-0", **later), job(7, "blue-1", **times), job(8, "", "PENDING", **pending)):
            hostile.jobs[row["job_id"]] = row
        for name in ("blue-0", "blue-1"):
            hostile.nodes.change(name, state=["MIXED", "DYNAMIC_NORM"], alloc_cpus=1)

        async def busy() -> bool:
            rows = await workers(status)
            return [rows[name]["jobs"] for name in sorted(rows)] == [[6], [7]]

        await eventually(busy, "both have a job")
        await stage.scale(1)

        async def held() -> Any:
            return (await workers(status, "?blocked=true")).get("blue-1")

        row = await eventually(held, "the busy one is blocked")
        assert (row["nodeset"], row["cluster"], row["kubernetesNode"] != "") == ("blue", "slurm", True)

        async def waits_for_the_job() -> Any:
            found = (await workers(status, "?name=blue-1"))["blue-1"]
            why = found["blocked"] or {}
            return found if (why.get("reason"), found["summary"]) == ("JobsRunning", "draining") else None

        row = await eventually(waits_for_the_job, "it waits for its job")
        why = row["blocked"]
        assert (why["action"], why["cause"], row["removal"]) == ("delete", "ScaleIn", "ScaleIn")
        assert "job 7 is on it" in why["message"]
        assert "It is deleted when its jobs have ended, at the latest at " in why["next"]
        assert (row["jobs"], row["drainedBy"], row["cordonedBy"]) == ([7], "operator", "ScaleIn")

        await check_overview(status, stage.namespace)
        await check_jobs(status)
        history = await status.items("history?kind=Pod&name=blue-1")
        told = {(row["type"], row["what"]) for row in history}
        assert {("decision", "CreatePod"), ("decision", "CordonPod"), ("decision", "DrainNode")} <= told
        assert ("blocked", "ScaleInBlocked") in told
        whole = await status.items("history?kind=NodeSet&name=blue")
        assert {"SuccessfulCreate", "ScalingDown"} <= {row["what"] for row in whole}

        del hostile.jobs[7]
        hostile.nodes.change("blue-1", state=["IDLE", "DRAIN", "DYNAMIC_NORM"], alloc_cpus=0)
        await stage.until_pods("blue-0")

        async def gone() -> bool:
            return {*await workers(status)} == {"blue-0"}

        await eventually(gone, "the row goes with the pod")
        history = await status.items("history?kind=Pod&name=blue-1")
        assert "DeletePod" in {row["what"] for row in history}


async def test_only_what_the_account_may_list_is_shown(slinky_box: Box, stage: Stage, tmp_path: Path) -> None:
    """Without a token, with a token for the API server, or without rights, nothing is shown."""
    space = stage.namespace
    with slinky_box.namespace() as other:
        spec = {"controllerRef": {"name": "slurm"}, "slurmd": {"image": "i"}, "replicas": 0}
        for name in (space, other):
            await stage.client.create(
                NodeSet, {"metadata": {"name": "blue", "namespace": name}, "spec": spec}
            )
        here = await asyncio.to_thread(viewer, slinky_box, space, "here", space)
        there = await asyncio.to_thread(viewer, slinky_box, space, "there", other)
        nowhere = await asyncio.to_thread(viewer, slinky_box, space, "nowhere")
        for_the_server = token(slinky_box, space, "here", audience="")
        arguments = [*MANAGER, *LOOPBACK_FLAGS, f"--namespaces={space},{other}"]
        account = str(operator_kubeconfig(slinky_box))
        with Process(None, tmp_path / "operator.log", arguments, KUBECONFIG=account) as process:
            await eventually(process.ready, "ready")

            async def answer(bearer: str, path: str = "nodesets") -> tuple[int, Any]:
                async with status_client(process, bearer) as status:
                    return await status.ask(path)

            async def leads() -> bool:
                return (await answer(here))[0] == 200

            await eventually(leads, "it answers")
            for bearer in ("", "no-token", for_the_server):
                status, content = await answer(bearer)
                assert (status, content["error"]["code"]) == (401, "Unauthenticated")
            assert (await answer(nowhere))[0] == 403
            assert (await answer(here, f"nodesets?namespace={other}"))[0] == 403
            assert (await answer(here, f"history?namespace={other}"))[0] == 403
            assert (await answer(here, f"stream?namespace={other}"))[0] == 403
            for bearer, seen in ((here, space), (there, other)):
                for path in ("nodesets", "clusters", "workers", "jobs", "history"):
                    status, content = await answer(bearer, path)
                    assert status == 200
                    for row in content["items"]:
                        assert row.get("namespace", row.get("object", {}).get("namespace")) == seen
                status, content = await answer(bearer, "nodesets")
                assert [row["namespace"] for row in content["items"]] == [seen]
                assert content["scope"] == {"all": False, "namespaces": [seen]}
            assert (await answer(here, "no-such-list"))[0] == 404
            assert (await answer(here, "history?limit=many"))[0] == 400
            assert not [secret for secret in (here, there, for_the_server) if secret in process.text()]


async def test_a_stream_shows_a_change_within_seconds(
    slinky_box: Box, stage: Stage, hostile: HostileSlurmrestd, operator: Process
) -> None:
    """The first event has everything, and later ones only what has changed or gone."""
    await running(stage, hostile)
    bearer = await asyncio.to_thread(viewer, slinky_box, stage.namespace, "reader", stage.namespace)
    async with status_client(operator, bearer) as status, asyncio.timeout(120):
        events = status.events()
        name, first = await anext(events)
        assert (name, {row["pod"] for row in first["workers"]}) == ("snapshot", {"blue-0", "blue-1"})
        assert first["clusters"][0]["name"] == "slurm"
        await stage.scale(1)
        seen: dict[str, list[Any]] = {"gone": [], "what": []}
        async for name, event in events:
            assert name == "update"
            seen["gone"] += event["removed"]["workers"]
            seen["what"] += [row["what"] for row in event["decisions"]]
            if f"{stage.namespace}/blue-1" in seen["gone"]:
                break
        assert "DrainNode" in seen["what"]
        await events.aclose()  # type: ignore[attr-defined]


async def test_a_slurmrestd_that_hangs_delays_nothing_else(
    slinky_box: Box, stage: Stage, hostile: HostileSlurmrestd, operator: Process
) -> None:
    """While Slurm does not list its jobs, a request for them ends in time with a reason, and workers come."""
    await running(stage, hostile)
    bearer = await asyncio.to_thread(viewer, slinky_box, stage.namespace, "reader", stage.namespace)
    hostile.fail(Fault.HANG, on="jobs")
    async with status_client(operator, bearer) as status:
        asking = [asyncio.create_task(status.items("jobs")) for _ in range(5)]
        hostile.add_nodes("blue-2", "IDLE", "DYNAMIC_NORM")
        await stage.scale(3)
        await stage.until_pods("blue-0", "blue-1", "blue-2")
        started = time.monotonic()
        assert (await status.ask("overview"))[0] == 200
        assert time.monotonic() - started < 10
        async with asyncio.timeout(60):
            replies = await asyncio.gather(*asking)
        for ((reply),) in replies:
            assert (reply["jobs"], reply["total"]) == ([], 0)
            assert "no answer within" in reply["error"]


async def test_a_standby_names_the_leader(slinky_box: Box, stage: Stage, tmp_path: Path) -> None:
    """A replica that does not lead shows nothing, and says which one does."""
    space = stage.namespace
    allow_lease(slinky_box, space)
    bearer = await asyncio.to_thread(viewer, slinky_box, space, "reader", space)
    lease = ("--leader-elect", f"--leader-elect-namespace={space}", f"--namespaces={space}")
    account = str(operator_kubeconfig(slinky_box))

    def replica(name: str) -> Process:
        flags = [*MANAGER, *LOOPBACK_FLAGS, *lease]
        return Process(None, tmp_path / f"{name}.log", flags, KUBECONFIG=account)

    with replica("first") as first:
        async with status_client(first, bearer) as status:

            async def leads() -> Any:
                code, content = await status.ask("overview")
                return content if code == 200 else None

            leader = (await eventually(leads, "the first leads"))["operator"]["identity"]
        with replica("second") as second:
            async with status_client(second, bearer) as status:

                async def knows() -> bool:
                    code, content = await status.ask("overview")
                    assert (code, content["error"]["code"]) == (503, "NotLeader")
                    return bool(content["error"]["leader"] == leader)

                await eventually(knows, "the second names the first")
