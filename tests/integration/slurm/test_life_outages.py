"""What the view says while parts of a real cluster are gone, and after they are back, in both releases."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kubebox.slurm import SlurmBox, SlurmSpec
from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.model.view import Absent, AnswerReason, Unknown
from tests.support.slurm.fast_watch import EAGER, Watching, now, watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

# slurmrestd gives up on a slurmctld that is down after this many seconds, 10 unless configured.
CONF = "MessageTimeout=1\nEpilog=/home/epilog"
EPILOG = "#!/bin/sh\nwhile [ -e /home/hold ]; do sleep 0.1; done\n"
NODES = ("n0", "n1", "n2")


@pytest.fixture(scope="module", params=["26.05", "24.11"])
def breakable(request: pytest.FixtureRequest) -> Iterator[SlurmBox]:
    """Keep a cluster that nobody else uses."""
    with SlurmBox.up(SlurmSpec(release=request.param, extra_conf=CONF)) as box:
        script = box.home / "epilog"
        script.write_text(EPILOG, encoding="utf-8")
        script.chmod(0o755)
        yield box


@pytest.fixture
def own(breakable: SlurmBox) -> Iterator[SlurmBox]:
    """Hand out a cluster that may be broken, and have it run again afterwards, whatever a test has left."""
    yield breakable
    (breakable.home / "hold").unlink(missing_ok=True)
    for daemon in ("slurmctld", "slurmrestd"):
        if daemon not in breakable.pids:
            breakable.start(daemon)


@pytest.fixture
async def watched(own: SlurmBox) -> AsyncIterator[Watching]:
    """Hand out a watch of it."""
    async with watching(own.url, own.token) as running:
        yield running


def reasons(running: Watching) -> set[str]:
    """Return what is said about the nodes: the reasons why they are unknown, or how they are known."""
    answers = (running.answer(name) for name in NODES)
    return {answer.reason if isinstance(answer, Unknown) else type(answer).__name__ for answer in answers}


async def all_known(running: Watching) -> None:
    await running.until(lambda: reasons(running) == {"Known"})


async def drain(running: Watching, name: str) -> float:
    await running.rest.update_nodes(name, NodeUpdate(state=("DRAIN",), reason="slurm-operator: test"))
    running.watch.wake()
    return now()


async def test_an_epilog_holds_its_node(own: SlurmBox, watched: Watching) -> None:
    """While a job's epilog runs its node looks idle, but it is drained only when the epilog has ended."""
    hold = own.home / "hold"
    hold.touch()
    job = await asyncio.to_thread(own.submit, seconds=0, nodes=["n0"])
    await watched.until(lambda: "n0" in watched.view.jobs.by_node)
    drained_at = await drain(watched, "n0")
    await watched.until(lambda: watched.verdict("n0", drained_at).reason is AnswerReason.JOBS_COMPLETING)
    node = watched.view.nodes["n0"]
    assert {"IDLE", "DRAIN", "COMPLETING"} <= set(node.state)
    assert node.alloc_cpus == 0
    await watched.until(lambda: watched.view.jobs.by_node["n0"].jobs == (job,))
    await watched.always(lambda: not watched.verdict("n0").drained, rounds=5)
    await watched.until(lambda: watched.verdict("n0").reason is AnswerReason.JOBS_COMPLETING)
    hold.unlink()
    await watched.until(lambda: watched.verdict("n0", drained_at).drained)
    await watched.rest.update_nodes("n0", NodeUpdate(state=("UNDRAIN",)))
    await watched.until(lambda: watched.verdict("n0").reason is AnswerReason.NOT_DRAINING)


async def test_slurmctld_stopped_and_started(own: SlurmBox, watched: Watching) -> None:
    """Without slurmctld a view grows stale and says why; with it all is known again, the job included."""
    job = await asyncio.to_thread(own.submit, seconds=300, nodes=["n1"])
    await watched.until(lambda: "n1" in watched.view.jobs.by_node)
    drained_at = await drain(watched, "n1")
    await watched.until(lambda: watched.verdict("n1", drained_at).reason is AnswerReason.JOBS_RUNNING)
    await asyncio.to_thread(own.stop, "slurmctld")
    await watched.until(lambda: reasons(watched) == {AnswerReason.SLURMCTLD_DOWN})
    assert watched.verdict("n1", drained_at).reason is AnswerReason.SLURMCTLD_DOWN
    assert isinstance(watched.answer("n999"), Unknown)
    await watched.until(lambda: not watched.view.controllers[0].responding)
    before = watched.view.up_since
    assert before is not None

    watched.updates.clear()
    await asyncio.to_thread(own.start, "slurmctld")
    await all_known(watched)
    await watched.until(lambda: watched.verdict("n1", drained_at).reason is AnswerReason.JOBS_RUNNING)
    await watched.until(lambda: any(update.view.failure is None for update in watched.updates))
    first = next(update.view for update in watched.updates if update.view.failure is None)
    assert first.listed_at is not None
    assert first.up_since is not None
    assert first.up_since > before
    young = first.node("n999", first.listed_at)
    assert isinstance(young, Unknown)
    # Usually the former; the latter if this machine was so busy that slurmctld is no longer young.
    assert young.reason is (
        AnswerReason.CONTROLLER_JUST_STARTED if first.just_started else AnswerReason.NODE_MISSING
    )
    await watched.until(lambda: isinstance(watched.answer("n999"), Absent))

    await asyncio.to_thread(own.run, "scancel", str(job))
    await watched.until(lambda: watched.verdict("n1", drained_at).drained)
    await watched.rest.update_nodes("n1", NodeUpdate(state=("UNDRAIN",)))
    await watched.until(lambda: watched.verdict("n1").reason is AnswerReason.NOT_DRAINING)


async def test_slurmrestd_stopped_and_started(own: SlurmBox, watched: Watching) -> None:
    """Without slurmrestd nothing is known once the view is old, and everything when it is back."""
    await asyncio.to_thread(own.stop, "slurmrestd")
    assert (reasons(watched) == {"Known"}) is not watched.view.stale(now())
    await watched.until(lambda: reasons(watched) == {AnswerReason.SLURM_UNREACHABLE})
    assert isinstance(watched.answer("n999"), Unknown)
    await asyncio.to_thread(own.start, "slurmrestd")
    await all_known(watched)


async def test_the_jwt_key_is_rotated(own: SlurmBox) -> None:
    """With a token of the former key nothing is known, and the reason is the token; a new one heals it."""
    token = own.token()
    async with watching(own.url, lambda: token) as watched:
        await asyncio.to_thread(own.rotate_jwt_key)
        await watched.until(lambda: reasons(watched) == {AnswerReason.TOKEN_REFUSED})
        assert token not in str(watched.answer("n0"))
        assert token not in repr(watched.view)
        token = own.token()
        await all_known(watched)


async def test_a_token_expires(own: SlurmBox) -> None:
    """A token that expires makes everything unknown, with the token as the reason; a new one heals it."""
    token = own.token()
    async with watching(own.url, lambda: token, settled=False) as watched:
        await all_known(watched)
        token = own.token(lifetime=2.0)
        await watched.until(lambda: reasons(watched) == {AnswerReason.TOKEN_REFUSED})
        token = own.token()
        await all_known(watched)


async def test_slurmctld_lost_its_state(own: SlurmBox, watched: Watching) -> None:
    """A slurmctld that lost its state shows no node: nothing is known, and for long nothing is absent."""
    await asyncio.to_thread(own.submit, seconds=300, nodes=["n2"])
    await watched.until(lambda: "n2" in watched.view.jobs.by_node)
    drained_at = await drain(watched, "n2")
    await asyncio.to_thread(own.lose_state)
    await watched.until(
        lambda: (
            reasons(watched) == {AnswerReason.LIST_SUSPICIOUS}
            and watched.verdict("n2", drained_at).reason is AnswerReason.LIST_SUSPICIOUS
        )
    )
    lost = now()
    while not all(isinstance(watched.answer(name), Absent) for name in NODES):
        assert now() < lost + 120.0
        assert reasons(watched) <= {
            AnswerReason.LIST_SUSPICIOUS,
            AnswerReason.VIEW_STALE,
            AnswerReason.SLURMCTLD_DOWN,
            "Absent",
        }
        assert not any(watched.verdict(name).drained for name in NODES)
        await asyncio.sleep(0.02)
    absent = watched.answer("n2")
    assert isinstance(absent, Absent)
    assert absent.lists >= EAGER.wide_lists
    assert absent.at - absent.since >= EAGER.wide_seconds
    assert watched.view.up_since is not None
    # Slurm counts its uptime in whole seconds.
    assert absent.since >= watched.view.up_since + EAGER.grace - 1.0

    await asyncio.gather(*(asyncio.to_thread(own.restart, f"slurmd-{name}") for name in NODES))
    await all_known(watched)
    await watched.until(lambda: watched.verdict("n2", drained_at).reason is AnswerReason.NOT_DRAINING)
