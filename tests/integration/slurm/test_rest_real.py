"""Every method of the client against real slurmrestd and slurmctld, 26.05 and 24.11."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
import pytest

from slurm_operator.slurm.decode.refusals import Question, Reply
from slurm_operator.slurm.decode.replies import JobsReply, read
from slurm_operator.slurm.errors import NotInSlurm, Refused, TokenRefused, Unsupported
from slurm_operator.slurm.model.hostlist import expand
from slurm_operator.slurm.model.records import (
    Job,
    JobStateList,
    Node,
    NodeUpdate,
    Reservation,
    ReservationSpec,
)
from slurm_operator.slurm.rest.client import RestClient
from tests.support.slurm.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox.slurm import SlurmBox

PREFIX = "slurm-operator: "


async def listed(client: RestClient, name: str) -> Node | None:
    nodes = await client.nodes()
    assert nodes is not None
    return next((node for node in nodes.nodes if node.name == name), None)


async def at_rest(client: RestClient) -> int | None:
    """Return a moment since which no node has changed, if there is one."""
    nodes = await client.nodes()
    assert nodes is not None
    return nodes.last_update if await client.nodes(nodes.last_update) is None else None


async def known(client: RestClient, name: str) -> Node:
    node = await listed(client, name)
    assert node is not None
    return node


async def job_of(client: RestClient, job_id: int) -> Job | None:
    jobs = await client.jobs()
    assert jobs is not None
    return next((job for job in jobs.jobs if job.job_id == job_id), None)


async def reservation_of(client: RestClient, name: str) -> Reservation | None:
    held = await client.reservations()
    assert held is not None
    return next((entry for entry in held.reservations if entry.name == name), None)


def old(box: SlurmBox) -> bool:
    return box.spec.release == "24.11"


@asynccontextmanager
async def extra_node(box: SlurmBox, client: RestClient, name: str) -> AsyncIterator[None]:
    """Add a node with a slurmd of its own for a while."""
    await asyncio.to_thread(box.add_node, name)
    try:
        await until(partial(listed, client, name), lambda node: node is not None and node.state[0] == "IDLE")
        yield
    finally:
        await asyncio.to_thread(box.remove_node, name)


async def test_the_version_is_the_newest_of_the_release(box: SlurmBox, real: RestClient) -> None:
    """The newest version that both sides know is agreed on, and the release is known."""
    pings = await real.ping(require=True)
    assert [ping.responding for ping in pings] == [True]
    assert pings[0].primary
    assert real.version == ("v0.0.42" if old(box) else "v0.0.45")
    assert real.release.startswith(box.spec.release)


async def test_nodes_are_listed_with_all_that_is_read(box: SlurmBox, real: RestClient) -> None:
    """The list has every node with its state, partition, times and version."""
    nodes = await real.nodes()
    assert nodes is not None
    names = [node.name for node in nodes.nodes]
    assert {*box.spec.node_names} <= {*names}
    assert len({*names}) == len(names)
    node = await until(partial(known, real, "n0"), lambda node: node.state[0] == "IDLE")
    assert node.alloc_cpus == 0
    assert node.partitions
    assert node.slurmd_start_time.time is not None
    assert node.boot_time.time is not None
    assert node.version.startswith(box.spec.release)
    assert abs(nodes.last_update - datetime.now(UTC).timestamp()) < 60


async def test_unchanged_lists_are_none(box: SlurmBox, real: RestClient) -> None:
    """Asked for changes since a moment after the last one, all three lists say that there are none."""
    del box
    future = int(datetime.now(UTC).timestamp()) + 3600
    assert await real.nodes(future) is None
    assert await real.jobs(future) is None
    assert await real.reservations(future) is None
    assert await real.nodes(1) is not None
    assert await real.jobs(1) is not None


async def test_a_change_ends_what_is_unchanged(box: SlurmBox, real: RestClient) -> None:
    """A list that was unchanged comes whole again as soon as one node changes."""
    del box
    for comment in ("changed", ""):
        # Once the list of nodes is unchanged, that of partitions is too: there 24.11 stumbles.
        since = await until(partial(at_rest, real), lambda moment: moment is not None)
        await real.update_nodes("n0", NodeUpdate(comment=comment))
        changed = await until(partial(real.nodes, since), lambda answer: answer is not None)
        assert changed is not None
        assert {node.name: node.comment for node in changed.nodes}["n0"] == comment


async def test_nodes_are_updated_in_bulk(box: SlurmBox, real: RestClient) -> None:
    """One request drains several nodes with a reason and changes comment and features; another undoes it."""
    del box
    before = await known(real, "n1")
    update = NodeUpdate(
        state=("DRAIN",),
        reason=f"{PREFIX}schöner Test",
        comment='{"a":1}',
        features=("blue", "red"),
        features_act=("red",),
    )
    await real.update_nodes("n[0-1]", update)
    for name in ("n0", "n1"):
        node = await until(partial(known, real, name), lambda node: "DRAIN" in node.state)
        assert node.reason == f"{PREFIX}schöner Test"
        assert node.reason_set_by_user == "slurm"
        assert node.reason_changed_at.time is not None
        assert node.comment == '{"a":1}'
        assert (node.features, node.active_features) == (("blue", "red"), ("red",))
    assert "DRAIN" not in (await known(real, "n2")).state
    await real.update_nodes("n[0-1]", NodeUpdate(state=("UNDRAIN",), comment=""))
    for name in ("n0", "n1"):
        node = await until(partial(known, real, name), lambda node: "DRAIN" not in node.state)
        assert node.comment == ""
    if before.features:
        await real.update_nodes("n[0-1]", NodeUpdate(features=before.features, features_act=before.features))


async def test_what_does_not_exist_is_not_found(box: SlurmBox, real: RestClient) -> None:
    """Reading, updating and deleting a node that does not exist is NotFound, whatever the status is."""
    del box
    for call in (
        real.node("no-such-node"),
        real.update_nodes("no-such-node", NodeUpdate(comment="x")),
        real.delete_node("no-such-node"),
    ):
        with pytest.raises(NotInSlurm, match="no-such-node"):
            await call
    assert (await real.node("n2")).name == "n2"


async def test_a_bulk_update_with_an_unknown_name_is_refused(box: SlurmBox, real: RestClient) -> None:
    """If one of several names is unknown the request is refused, and only a list tells about the others."""
    del box
    with pytest.raises(NotInSlurm) as caught:
        await real.update_nodes("n2,no-such-node", NodeUpdate(comment="partly"))
    assert caught.value.numbers == {2018}
    assert (await known(real, "n2")).comment in ("", "partly")
    await real.update_nodes("n2", NodeUpdate(comment=""))


async def test_a_state_that_does_not_exist_is_refused(box: SlurmBox, real: RestClient) -> None:
    """What Slurm does not understand is Refused with its words."""
    del box
    with pytest.raises(Refused, match="SILLY") as caught:
        await real.update_nodes("n2", NodeUpdate(state=("SILLY",)))
    assert type(caught.value) is Refused


async def test_a_job_is_followed_from_start_to_end(box: SlurmBox, real: RestClient) -> None:
    """A running job holds its nodes until an end that is known, and a cancelled one lets go of them."""
    job_id = await asyncio.to_thread(box.submit, seconds=300, nodes=["n0", "n1"], options=["--time=10"])
    running = await until(
        partial(job_of, real, job_id), lambda job: job is not None and "RUNNING" in job.job_state
    )
    assert running is not None
    assert not running.finished
    assert {*expand(running.nodes)} == {"n0", "n1"}
    start, end = running.start_time.time, running.end_time.time
    assert start is not None
    assert end is not None
    assert end - start == timedelta(minutes=10)
    assert running.time_limit.value == 10
    assert running.partition
    busy = await until(partial(known, real, "n0"), lambda node: node.state[0] in ("MIXED", "ALLOCATED"))
    assert busy.alloc_cpus
    with pytest.raises(Refused, match="busy") as caught:
        await real.delete_node("n0")
    assert caught.value.numbers == {2016}
    await asyncio.to_thread(box.run, "scancel", str(job_id))
    ended = await until(partial(job_of, real, job_id), lambda job: job is not None and job.finished)
    assert ended is not None
    assert ended.job_state == ("CANCELLED",)
    await until(
        partial(known, real, "n0"), lambda node: node.state[0] == "IDLE" and "COMPLETING" not in node.state
    )


async def test_jobs_are_listed_without_their_cores(box: SlurmBox) -> None:
    """The client's list of jobs leaves out which cores a job has; all that is read of a job is the same."""
    job_id = await asyncio.to_thread(box.submit, seconds=300, nodes=["n0", "n1"])
    sizes: list[int] = []
    async with RestClient(box.url, box.token, observe=lambda info: sizes.append(info.size)) as client:
        await until(
            partial(job_of, client, job_id), lambda job: job is not None and job.job_state == ("RUNNING",)
        )
        asked = await client.jobs()
        version = client.version
    path, headers = f"{box.url}/slurm/{version}/jobs/", {"X-SLURM-USER-TOKEN": box.token()}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(path) as answer:
        body = await answer.read()
    full = read(Reply(200, "application/json", body), JobsReply, Question("list jobs"))
    assert asked is not None
    assert {job.job_id: job for job in asked.jobs} == {job.job_id: job for job in full.jobs}
    assert b'"job_resources"' in body
    # Other parts of the reply differ by a few bytes, such as the number of a port.
    assert sizes[-1] < len(body) - 1000
    await asyncio.to_thread(box.run, "scancel", str(job_id))


async def test_the_states_of_jobs_say_which_are_unfinished(box: SlurmBox, real: RestClient) -> None:
    """Of the jobs that are asked about, those that run come back, tasks of an array by their own numbers."""
    single = await asyncio.to_thread(box.submit, seconds=300, nodes=["n0"])
    pending = await asyncio.to_thread(box.submit, options=["--hold"])
    array = await asyncio.to_thread(box.submit, seconds=300, nodes=["n1"], options=["--array=0-1"])

    async def running() -> set[int]:
        jobs = await real.jobs()
        assert jobs is not None
        return {job.job_id for job in jobs.jobs if "RUNNING" in job.job_state}

    held = await until(running, lambda found: single in found and array in found and len(found) >= 3)
    (task,) = held - {single, array}
    found = await real.job_states([single, pending, array, task, 2**31])
    assert found.unfinished == {single, array, task}
    assert not found.ended
    nodes = await real.nodes()
    assert nodes is not None
    assert found.cluster == nodes.cluster != ""
    assert (await real.job_states([task])).unfinished == {task}
    await asyncio.to_thread(box.run, "scancel", str(pending), str(single), f"{array}_0")
    ended = await until(
        partial(real.job_states, [single, array, task]), lambda found: len(found.unfinished) == 1
    )
    left = ended.unfinished
    assert left <= {array, task}
    assert ended.ended == {single, array, task} - left
    # One that never ran has ended as well; one that does not exist is left out.
    found = await real.job_states([single, pending, 2**31])
    assert found.ended == {single, pending}
    assert not found.unfinished
    found = await real.job_states([*left, *range(10**8, 10**8 + 1999)])
    assert found.unfinished == left
    assert not found.ended
    await asyncio.to_thread(box.run, "scancel", str(array))
    await until(partial(real.job_states, [array, task]), lambda found: found.ended == {array, task})


async def test_a_job_that_waits_anew_has_not_ended(box: SlurmBox, real: RestClient) -> None:
    """A requeued job holds no node, and is not said to have ended, until it has."""
    job = await asyncio.to_thread(box.submit, seconds=300, nodes=["n0"], options=["--requeue"])
    await until(partial(job_of, real, job), lambda one: one is not None and one.job_state == ("RUNNING",))
    await asyncio.to_thread(box.run, "scontrol", "requeuehold", str(job))
    seen = []

    async def states() -> JobStateList:
        seen.append(await real.job_states([job]))
        return seen[-1]

    await until(states, lambda found: not found.unfinished)
    assert not any(found.ended for found in seen)
    await asyncio.to_thread(box.run, "scancel", str(job))
    await until(states, lambda found: found.ended == {job})


async def test_the_parts_of_a_job_of_several_have_states_of_their_own(
    box: SlurmBox, real: RestClient
) -> None:
    """Each part is asked about by its own number, and has ended when it has, not when the first part has."""
    script = "#!/bin/sh\n#SBATCH --nodelist=n0\n#SBATCH hetjob\n#SBATCH --nodelist=n1\nexec sleep 300\n"
    first = await asyncio.to_thread(box.submit, script)

    async def running() -> set[int]:
        jobs = await real.jobs()
        assert jobs is not None
        return {job.job_id for job in jobs.jobs if job.job_state == ("RUNNING",) and job.job_id >= first}

    parts = await until(running, lambda found: len(found) == 2)
    assert first in parts
    (second,) = parts - {first}
    assert (await real.job_states([second])).unfinished == {second}
    assert (await real.job_states([first])).unfinished == {first}
    await asyncio.to_thread(box.run, "scancel", str(first))
    await until(partial(real.job_states, [*parts]), lambda found: found.ended == parts)


async def test_pending_and_suspended_jobs(box: SlurmBox, real: RestClient) -> None:
    """A job that waits holds nothing; one that is suspended holds its node, though the node may look idle."""
    pending = await asyncio.to_thread(box.submit, options=["--hold"])
    waiting = await until(partial(job_of, real, pending), lambda job: job is not None)
    assert waiting is not None
    assert waiting.finished
    assert waiting.nodes == ""
    job_id = await asyncio.to_thread(box.submit, seconds=300, nodes=["n2"])
    await until(partial(job_of, real, job_id), lambda job: job is not None and job.job_state == ("RUNNING",))
    await asyncio.to_thread(box.run, "scontrol", "suspend", str(job_id))
    held = await until(
        partial(job_of, real, job_id), lambda job: job is not None and "SUSPENDED" in job.job_state
    )
    assert held is not None
    assert not held.finished
    assert held.nodes == "n2"
    await asyncio.to_thread(box.run, "scancel", str(pending), str(job_id))
    await until(partial(job_of, real, job_id), lambda job: job is not None and job.finished)


async def test_the_record_of_a_slurmd_that_is_gone_can_be_deleted(box: SlurmBox, real: RestClient) -> None:
    """A node whose slurmd has ended stays in the list until its record is deleted."""
    async with extra_node(box, real, "gone"):
        assert "DYNAMIC_NORM" in (await known(real, "gone")).state
    assert await listed(real, "gone") is not None
    await real.delete_node("gone")
    assert await until(partial(listed, real, "gone"), lambda node: node is None) is None


async def test_nodes_are_created_where_slurm_can(box: SlurmBox, real: RestClient) -> None:
    """New nodes need 25.11; there they are created, given a topology, and deleted, and not created twice."""
    conf = "NodeName=x[1-3] CPUs=1 RealMemory=100 State=CLOUD"
    if old(box):
        with pytest.raises(Unsupported, match=r"25\.11 or later"):
            await real.create_nodes(conf)
        with pytest.raises(Unsupported, match=r"25\.05 or later"):
            await real.update_nodes("n0", NodeUpdate(topology_str="default:s1"))
        return
    await real.create_nodes(conf)
    with pytest.raises(Refused, match="already exists"):
        await real.create_nodes(conf)
    await real.update_nodes("x[1-3]", NodeUpdate(topology_str="default:s1"))
    assert (await known(real, "x2")).topology == "default:s1"
    for name in ("x1", "x2", "x3"):
        await real.delete_node(name)
    assert await listed(real, "x2") is None


async def test_reservations_are_made_where_slurm_can(box: SlurmBox, real: RestClient) -> None:
    """Reservations can be listed everywhere, and created, changed and deleted from 25.05 on."""
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    spec = ReservationSpec(
        name="upkeep",
        node_list="n[0-1]",
        users=("root",),
        start_time=start,
        duration_minutes=30,
        flags=("MAINT", "IGNORE_JOBS"),
    )
    longer = ReservationSpec(name="upkeep", end_time=start + timedelta(hours=2), node_list="n2")
    if old(box):
        for call in (
            real.create_reservation(spec),
            real.update_reservation(longer),
            real.delete_reservation("x"),
        ):
            with pytest.raises(Unsupported, match=r"25\.05 or later"):
                await call
        assert await real.reservations() is not None
        return
    with pytest.raises(NotInSlurm):
        await real.update_reservation(longer)
    await real.create_reservation(spec)
    made = await reservation_of(real, "upkeep")
    assert made is not None
    assert (made.node_list, made.users) == ("n[0-1]", "root")
    assert (made.start_time.time, made.end_time.time) == (start, start + timedelta(minutes=30))
    assert {"MAINT", "IGNORE_JOBS"} <= {*made.flags}
    await real.update_reservation(longer)
    changed = await reservation_of(real, "upkeep")
    assert changed is not None
    assert (changed.node_list, changed.end_time.time) == ("n2", start + timedelta(hours=2))
    await real.delete_reservation("upkeep")
    assert await reservation_of(real, "upkeep") is None
    with pytest.raises(NotInSlurm):
        await real.delete_reservation("upkeep")
    with pytest.raises(Refused, match="Invalid node name"):
        await real.create_reservation(
            ReservationSpec(name="y", node_list="zz9", users=("root",), start_time=start, duration_minutes=5)
        )


async def test_partitions_statistics_and_reconfigure(box: SlurmBox, real: RestClient) -> None:
    """Partitions have names, slurmctld tells how long it is up at least, and reads its files again."""
    del box
    assert all(partition.name for partition in await real.partitions())
    assert await real.partitions()
    diag = await real.diag()
    assert diag.uptime is not None
    assert diag.server_started is not None
    assert diag.server_started <= datetime.now(UTC) + timedelta(seconds=2)
    await real.reconfigure()
    await until(real.ping, lambda pings: any(ping.responding for ping in pings))


async def test_tokens_that_are_refused(box: SlurmBox) -> None:
    """Expired tokens and those of another key are refused; an unprivileged user may not change nodes."""
    for token in (box.token(lifetime=-60), box.token(key=b"x" * 32), "nonsense"):
        async with RestClient(box.url, partial(str, token)) as client:
            for ask in (client.nodes, client.jobs, client.diag, partial(client.ping, require=True)):
                with pytest.raises(TokenRefused) as caught:
                    await ask()
                assert token not in str(caught.value)
            assert not any(ping.responding for ping in await client.ping())
    async with RestClient(box.url, partial(box.token, "alice")) as client:
        assert await client.nodes() is not None
        with pytest.raises(Refused):
            await client.update_nodes("n0", NodeUpdate(comment="mine"))


async def test_many_requests_share_few_connections(box: SlurmBox, real: RestClient) -> None:
    """Refusals, which slurmrestd answers with bytes to spare, do not disturb what is asked beside them."""
    del box
    for _ in range(5):
        outcomes = await asyncio.gather(
            *(real.nodes() for _ in range(5)),
            *(real.delete_node("no-such-node") for _ in range(5)),
            return_exceptions=True,
        )
        assert all(not isinstance(outcome, BaseException) for outcome in outcomes[:5])
        assert all(isinstance(outcome, NotInSlurm) for outcome in outcomes[5:])
