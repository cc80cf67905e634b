"""The life of a node as the view tells it, in real clusters of both releases."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.model.view import Absent, AnswerReason, Known
from tests.support.slurm.fast_watch import CALM, EAGER, Watching, now, watching
from tests.support.slurm.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox.slurm import SlurmBox
    from slurm_operator.slurm.model.view import ViewUpdate

NODE = "n0"
OURS = "slurm-operator: scale-in"


@pytest.fixture
async def watched(box: SlurmBox) -> AsyncIterator[Watching]:
    """Hand out a watch of a real cluster whose node n0 is idle, and leave it idle."""
    async with watching(box.url, box.token, timing=CALM, settled=False) as running:
        await running.until(lambda: is_idle(running))
        try:
            yield running
        finally:
            await asyncio.to_thread(box.run, "scancel", "--full", "--user=alice")
            # Slurm refuses to resume a node that is not drained.
            resume = ("scontrol", "update", f"nodename={NODE}", "state=resume")
            await asyncio.to_thread(box.run, *resume, check=False)
            await running.until(lambda: is_idle(running))


def is_idle(running: Watching) -> bool:
    answer = running.answer(NODE)
    return isinstance(answer, Known) and "IDLE" in answer.node.state and "DRAIN" not in answer.node.state


async def drain(running: Watching, reason: str = OURS) -> float:
    """Drain the node as the operator does, and return the moment from which on a view counts."""
    await running.rest.update_nodes(NODE, NodeUpdate(state=("DRAIN",), reason=reason))
    running.watch.wake()
    return now()


async def job_state(box: SlurmBox, job: int) -> str:
    shown = await asyncio.to_thread(box.run, "scontrol", "--oneliner", "show", "job", str(job))
    return next(word for word in shown.stdout.split() if word.startswith("JobState=")).removeprefix(
        "JobState="
    )


async def start(box: SlurmBox, running: Watching, seconds: float = 100.0) -> int:
    """Run a job on the node and wait until the view has it."""
    job = await asyncio.to_thread(box.submit, seconds=seconds, nodes=[NODE], options=["--time=5"])
    await until(lambda: job_state(box, job), lambda state: state == "RUNNING")
    await running.until(lambda: NODE in running.view.jobs.by_node)
    return job


async def test_a_drain_with_a_job_on_it(box: SlurmBox, watched: Watching) -> None:
    """A node drains while its job runs, and is drained in the first list asked for after the job's end."""
    assert isinstance(watched.answer(NODE), Known)
    job = await start(box, watched)
    assert watched.view.jobs.by_node[NODE].jobs == (job,)
    end = watched.view.latest_end(NODE)
    drained_at = await drain(watched)
    await watched.until(lambda: watched.verdict(NODE, drained_at).reason is AnswerReason.JOBS_RUNNING)
    assert f"job {job}" in watched.verdict(NODE).message
    await watched.always(lambda: not watched.verdict(NODE).drained, rounds=5)
    assert end == watched.view.latest_end(NODE)

    await asyncio.to_thread(box.run, "scancel", str(job))
    await until(lambda: job_state(box, job), lambda state: state == "CANCELLED")
    over = now()
    await watched.until(lambda: watched.verdict(NODE, drained_at).drained)
    assert watched.polls(over) <= 1
    answer = watched.answer(NODE)
    assert isinstance(answer, Known)
    assert answer.node.reason == OURS
    assert watched.view.latest_end(NODE) is None

    def told() -> list[ViewUpdate]:
        return [update for update in watched.updates if update.view.drained(NODE, now(), drained_at).drained]

    # The view has it a moment before it is told: when all that was due in that round has been asked for.
    await watched.until(lambda: bool(told()))
    assert NODE in {change.name for change in told()[0].changes}


async def test_the_end_of_a_job_brings_the_next_list(box: SlurmBox) -> None:
    """Where lists are rare, the states of the jobs on a draining node tell when to ask for one."""
    rare = replace(CALM, busy=600.0, rest=600.0, lively=0.1, jobs=600.0, states=0.1, stale_after=3600.0)
    timing = replace(rare, jobs_stale_after=3600.0, whole=3600.0)
    job = await asyncio.to_thread(box.submit, nodes=[NODE])
    async with watching(box.url, box.token, timing=timing, settled=False) as running:
        await until(partial(job_state, box, job), lambda state: state == "RUNNING")
        await drain(running)
        asked = len(running.requests)
        await running.until(lambda: any(one[0] == "job_states" for one in running.requests[asked:]))
        assert running.verdict(NODE).reason is AnswerReason.JOBS_RUNNING
        await asyncio.to_thread(box.run, "scancel", str(job))
        await running.until(lambda: running.verdict(NODE).drained)
        await asyncio.to_thread(box.run, "scontrol", "update", f"nodename={NODE}", "state=resume")


@pytest.mark.parametrize("again", [False, True], ids=["one drain", "drained anew"])
async def test_the_states_of_its_jobs_take_the_place_of_another_list(box: SlurmBox, *, again: bool) -> None:
    """After a list of jobs from during the drain none is needed, unless the node was resumed in between."""
    rare = replace(CALM, busy=600.0, rest=600.0, lively=0.1, jobs=600.0, states=0.1, stale_after=3600.0)
    timing = replace(rare, jobs_stale_after=3600.0, whole=3600.0)
    update = ("scontrol", "update", f"nodename={NODE}")
    job = await asyncio.to_thread(box.submit, nodes=[NODE])
    await until(partial(job_state, box, job), lambda state: state == "RUNNING")
    await asyncio.to_thread(box.run, *update, "state=drain", f"reason={OURS}")
    # The list of jobs must be of a later second than the drain, and so must another drain.
    await asyncio.sleep(1.1)
    async with watching(box.url, box.token, timing=timing, settled=False) as running:
        await running.until(lambda: NODE in running.view.covered)
        if again:
            await asyncio.to_thread(box.run, *update, "state=resume")
            await asyncio.to_thread(box.run, *update, "state=drain", f"reason={OURS}")
        asked = len(running.requests)
        await asyncio.to_thread(box.run, "scancel", str(job))
        await running.until(lambda: running.verdict(NODE).drained)
        lists = [what for what, _, _ in running.requests[asked:] if what == "jobs"]
        assert bool(lists) == again
        await asyncio.to_thread(box.run, *update, "state=resume")


async def test_an_idle_node_is_drained_with_the_first_list_after_the_write(watched: Watching) -> None:
    """A view from before the drain, and one that was under way, say nothing; the next one says drained."""
    assert watched.verdict(NODE).reason is AnswerReason.NOT_DRAINING
    drained_at = await drain(watched)
    assert watched.verdict(NODE, drained_at).reason is AnswerReason.DRAIN_PENDING
    await watched.until(lambda: watched.verdict(NODE, drained_at).drained)
    assert watched.polls(drained_at) == 1


async def test_answers_of_unchanged(box: SlurmBox, watched: Watching) -> None:
    """What has not changed is not sent again, and a running job does not end by it."""
    job = await start(box, watched)
    begun = now()

    def asked(what: str, *outcomes: str) -> int:
        return sum(
            1 for name, sent, how in watched.requests if name == what and sent > begun and how in outcomes
        )

    # Slurm sends jobs that have not changed as an empty list; at least half of these were asked for that way.
    await watched.until(lambda: asked("jobs", "ok", "unchanged") >= 4 and asked("nodes", "unchanged") >= 2)
    assert watched.view.jobs.by_node[NODE].jobs == (job,)


async def test_a_drain_of_somebody_else_is_recognisable(box: SlurmBox, watched: Watching) -> None:
    """A drain that a person set is seen with the person's reason and name, and nothing here takes it away."""
    await asyncio.to_thread(
        box.run, "scontrol", "update", f"nodename={NODE}", "state=drain", "reason=bad memory, do not touch"
    )
    await watched.until(lambda: watched.verdict(NODE).drained)
    rounds = now()
    await watched.until(lambda: watched.polls(rounds) >= 4)
    answer = watched.answer(NODE)
    assert isinstance(answer, Known)
    assert answer.node.reason == "bad memory, do not touch"
    assert answer.node.reason_set_by_user == "root"
    assert "DRAIN" in answer.node.state


async def test_a_suspended_job_holds_its_node(box: SlurmBox, watched: Watching) -> None:
    """A suspended job has no CPU allocated any more, and still its node is not drained."""
    job = await start(box, watched)
    drained_at = await drain(watched)
    await asyncio.to_thread(box.run, "scontrol", "suspend", str(job))
    await until(lambda: job_state(box, job), lambda state: state == "SUSPENDED")
    suspended = now()
    await watched.until(lambda: watched.polls(suspended) >= 2)
    answer = watched.answer(NODE)
    assert isinstance(answer, Known)
    assert answer.node.alloc_cpus == 0
    assert "MIXED" in answer.node.state
    await watched.always(
        lambda: watched.verdict(NODE, drained_at).reason is AnswerReason.JOBS_RUNNING, rounds=5
    )


async def test_names_that_slurm_does_not_have(watched: Watching) -> None:
    """A name that no list has shown is absent, with the lists that say so."""
    await watched.until(lambda: isinstance(watched.answer("n999"), Absent))
    answer = watched.answer("n999")
    assert isinstance(answer, Absent)
    assert answer.lists >= 3
    assert watched.view.version.startswith(("26.05", "24.11"))
    assert [ping.responding for ping in watched.view.controllers] == [True]
    assert (watched.view.uptime(now()) or 0.0) >= EAGER.grace
