"""What the watch makes of failures, on virtual time."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.decide.node_list_trust import TrustRules
from slurm_operator.slurm.model.records import Ping
from slurm_operator.slurm.model.view import Absent, AnswerReason, Known, Unknown
from slurm_operator.slurm.watch.watcher import WatchTiming
from tests.support.slurm.memory_cluster import Cluster, now, watching
from tests.support.slurm.views import drained_node, node
from tests.support.virtual_time import virtual_time

DOWN = errors.RestUnreachable("connection refused")


@pytest.mark.parametrize("cap", [30.0, 900.0])
def test_failures_are_repeated_with_a_growing_pause(cap: float) -> None:
    """Pauses double from the base to the cap, each shortened by up to half at random."""

    @virtual_time
    async def run() -> None:
        cluster = Cluster(node("n1"))
        cluster.failures["nodes"] = DOWN
        async with watching(cluster, WatchTiming(failure_base=1.0, failure_cap=cap)):
            await asyncio.sleep(3 * 3600.0)
            pauses = [later - earlier for earlier, later in pairwise(cluster.times("nodes"))]
            bounds = [min(cap, 2.0**step) for step in range(len(pauses))]
            assert all(
                bound / 2 - 0.01 <= pause <= bound + 0.01 for bound, pause in zip(bounds, pauses, strict=True)
            )
            assert bounds[-1] == cap

    run()


REFUSED = errors.TokenRefused("signed with another key")


@virtual_time
async def test_a_refused_token_has_a_backoff_of_its_own() -> None:
    """Pauses after a refused token have their own base and cap, and begin again when the cause changes."""
    cluster = Cluster(node("n1"))
    timing = WatchTiming(failure_base=1.0, failure_cap=4.0, refused_base=100.0, refused_cap=400.0)
    cluster.failures["nodes"] = DOWN
    async with watching(cluster, timing):
        await asyncio.sleep(600.0)
        assert max(_pauses(cluster)[-50:]) <= 4.1
        cluster.failures["nodes"] = REFUSED
        await asyncio.sleep(4 * 3600.0)
        first = next(pause for pause in _pauses(cluster) if pause > 4.1)
        assert 50.0 <= first <= 100.1
        assert 200.0 <= _pauses(cluster)[-1] <= 400.1
        cluster.failures["nodes"] = DOWN
        await asyncio.sleep(600.0)
        assert max(_pauses(cluster)[-50:]) <= 4.1


def _pauses(cluster: Cluster) -> list[float]:
    return [later - earlier for earlier, later in pairwise(cluster.times("nodes"))]


@virtual_time
async def test_a_view_ages_while_nobody_answers() -> None:
    """After a failure what is known stays known until it is stale, which is told the moment it is."""
    cluster = Cluster(node("n1"))
    async with watching(cluster, WatchTiming(failure_base=600.0, failure_cap=600.0)) as watched:
        await watched.settle()
        cluster.failures["nodes"] = DOWN
        await watched.until(lambda: len(watched.updates) == 1)
        failed = watched.updates[0]
        assert (failed.changes, failed.view.failure) == ((), DOWN)
        assert isinstance(watched.watch.view.node("n1", now()), Known)
        polls = cluster.count("nodes")
        await watched.until(lambda: len(watched.updates) == 2)
        answer = watched.watch.view.node("n1", now())
        assert isinstance(answer, Unknown)
        assert answer.reason is AnswerReason.SLURM_UNREACHABLE
        assert "connection refused" in answer.message
        assert cluster.count("nodes") == polls


@virtual_time
async def test_a_view_ages_while_a_request_hangs() -> None:
    """That the view has grown stale is told at that moment, not when the answer that hangs is given up."""
    cluster = Cluster(node("n1"))
    async with watching(cluster, WatchTiming(call=600.0)) as watched:
        await watched.settle()
        cluster.seconds["nodes"] = 1e9
        await watched.until(lambda: bool(watched.updates), limit=45.0)
        answer = watched.updates[0].view.node("n1", now())
        assert isinstance(answer, Unknown)
        assert answer.reason is AnswerReason.VIEW_STALE
        assert watched.updates[0].changes == ()


@virtual_time
async def test_recovery_asks_for_everything_again() -> None:
    """The first success heals the view, and asks again for the whole list, the uptime and the jobs."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.failures["nodes"] = DOWN
        await watched.until(lambda: watched.watch.view.stale(now()))
        before = {what: cluster.count(what) for what in ("diag", "jobs", "reservations")}
        cluster.failures.clear()
        cluster.put(node("n1", "MIXED"))
        await watched.until(lambda: watched.watch.view.failure is None)
        assert {what: cluster.count(what) - count for what, count in before.items()} == dict.fromkeys(
            before, 1
        )
        assert [asked.since for asked in cluster.asked if asked.what == "nodes"][-1] is None
        assert isinstance(watched.watch.view.node("n1", now()), Known)
        assert watched.changed()[-1] == ["n1"]


@virtual_time
async def test_a_restart_during_an_outage_is_noticed() -> None:
    """A slurmctld that comes back young proves no absence for its first minute."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        assert watched.watch.view.complete
        cluster.failures["nodes"] = errors.ControllerDown("502")
        await watched.until(lambda: watched.watch.view.failure is not None)
        cluster.failures.clear()
        cluster.uptime = 2.0 - now()
        await watched.until(lambda: watched.watch.view.failure is None)
        answer = watched.watch.view.node("n2", now())
        assert isinstance(answer, Unknown)
        assert answer.reason is AnswerReason.CONTROLLER_JUST_STARTED


@virtual_time
async def test_after_an_outage_nothing_is_absent_before_the_uptime_is_known() -> None:
    """Between the first list after an outage and slurmctld's word on its uptime, no name is absent."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        assert isinstance(watched.watch.view.node("n2", now()), Absent)
        cluster.failures["nodes"] = errors.ControllerDown("502")
        await watched.until(lambda: watched.watch.view.failure is not None)
        cluster.failures.clear()
        cluster.seconds["diag"] = 2.0
        await watched.until(lambda: watched.watch.view.failure is None)
        answer = watched.watch.view.node("n2", now())
        assert isinstance(answer, Unknown)
        assert answer.reason is AnswerReason.CONTROLLER_JUST_STARTED
        await watched.until(lambda: isinstance(watched.watch.view.node("n2", now()), Absent), limit=10.0)


@virtual_time
async def test_a_dead_slurmctld_shows_in_the_pings() -> None:
    """While slurmctld does not answer, slurmrestd is still asked which of them respond."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.failures["nodes"] = errors.ControllerDown("502")
        cluster.controllers = (Ping(hostname="box", responding=False),)
        await watched.until(lambda: not watched.watch.view.controllers[0].responding)
        assert watched.watch.view.failure is not None
        assert watched.updates[-1].changes == ()


@virtual_time
async def test_an_open_circuit_hides_nothing() -> None:
    """While the client does not even ask, the view still says what went wrong before."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.failures["nodes"] = errors.TokenRefused("511")
        await watched.until(lambda: watched.watch.view.failure is not None)
        cluster.failures["nodes"] = errors.CircuitOpen("not sent", retry_after=5.0)
        await watched.until(lambda: watched.watch.view.stale(now()))
        answer = watched.watch.view.node("n1", now())
        assert isinstance(answer, Unknown)
        assert answer.reason is AnswerReason.TOKEN_REFUSED


@virtual_time
async def test_every_request_has_a_deadline() -> None:
    """A server that never answers is given up after the deadline, counts as unreachable, and can recover."""
    cluster = Cluster(node("n1"))
    cluster.seconds["nodes"] = 1e9
    async with watching(cluster, WatchTiming(call=60.0)) as watched:
        await watched.until(lambda: watched.watch.view.failure is not None)
        assert isinstance(watched.watch.view.failure, errors.RestUnreachable)
        cluster.seconds["nodes"] = 0.0
        await watched.until(lambda: isinstance(watched.watch.view.node("n1", now()), Known))


@virtual_time
async def test_a_defect_is_a_failure_like_any_other() -> None:
    """An exception that nobody foresaw ages the view and does not end the watch."""
    cluster = Cluster(node("n1"))
    cluster.failures["nodes"] = ZeroDivisionError("surprise")
    async with watching(cluster) as watched:
        await watched.until(lambda: watched.watch.view.failure is not None)
        assert isinstance(watched.watch.view.failure, errors.BadReply)
        cluster.failures.clear()
        await watched.until(lambda: isinstance(watched.watch.view.node("n1", now()), Known))


@pytest.mark.parametrize("part", ["jobs", "reservations", "ping", "diag"])
def test_one_part_that_fails_holds_up_no_other(part: str) -> None:
    """When one kind of question fails, the nodes stay known and the other parts stay fresh."""

    @virtual_time
    async def run() -> None:
        cluster = Cluster(node("n1"))
        async with watching(cluster) as watched:
            await watched.settle()
            cluster.failures[part] = errors.BadReply("half a reply")
            begun = now()
            await asyncio.sleep(120.0)
            view = watched.watch.view
            assert isinstance(view.node("n1", now()), Known)
            assert view.failure is None
            listed_at = {
                "jobs": view.jobs_listed_at,
                "reservations": view.reservations_listed_at,
                "ping": view.controllers_pinged_at,
            }
            for other, moment in listed_at.items():
                assert moment is not None
                assert (moment > begun) is (other != part)

    run()


@virtual_time
async def test_without_jobs_nothing_is_drained() -> None:
    """While the jobs cannot be listed no node is drained, and the verdict says why."""
    cluster = Cluster(drained_node("n1"))
    cluster.failures["jobs"] = errors.BadReply("truncated")
    async with watching(cluster) as watched:
        await asyncio.sleep(300.0)
        verdict = watched.watch.view.drained("n1", now())
        assert (verdict.drained, verdict.reason) == (False, AnswerReason.JOBS_UNKNOWN)
        assert "truncated" in verdict.message


@virtual_time
async def test_a_list_that_takes_long_is_asked_for_less_often() -> None:
    """Polling leaves slurmctld most of its time, but never so much that the view grows stale."""
    cluster = Cluster(node("n1", "MIXED", "DRAIN"))
    cluster.seconds["nodes"] = 0.5
    async with watching(cluster) as watched:
        await watched.settle()
        pauses = {
            round(later - earlier, 1) for earlier, later in pairwise(cluster.times("nodes", now() - 30.0))
        }
        assert pauses == {3.0}
        cluster.seconds["nodes"] = 8.0
        await asyncio.sleep(60.0)
        watched.updates.clear()
        await asyncio.sleep(300.0)
        assert watched.updates == []
        assert not watched.watch.view.stale(now())


@virtual_time
async def test_an_empty_list_for_a_minute() -> None:
    """A slurmctld that answers an empty list for a minute makes every node unknown, and none absent."""
    cluster = Cluster(*(drained_node(f"n{index}") for index in range(20)))
    kept = dict(cluster.entries)
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.drop(*kept)
        begun = now()
        await watched.until(lambda: watched.watch.view.suspicion is not None)
        while now() < begun + 60.0:
            view = watched.watch.view
            answers = [view.node(name, now()) for name in kept]
            assert {answer.reason for answer in answers if isinstance(answer, Unknown)} == {
                AnswerReason.LIST_SUSPICIOUS
            }
            assert all(isinstance(answer, Unknown) for answer in answers)
            assert not any(view.drained(name, now()).drained for name in kept)
            await asyncio.sleep(1.0)
        cluster.put(*kept.values())
        await watched.until(lambda: watched.watch.view.suspicion is None, limit=6.0)
        assert all(watched.watch.view.drained(name, now()).drained for name in kept)


@virtual_time
async def test_a_cluster_that_really_lost_its_nodes() -> None:
    """An empty list that lasts is believed in the end, with all the evidence in the answer."""
    trust = TrustRules()
    cluster = Cluster(*(node(f"n{index}") for index in range(5)))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.drop(*list(cluster.entries))
        await watched.until(lambda: not watched.watch.view.nodes)
        evidence = watched.watch.view.absent["n0"]
        assert evidence.lists >= trust.wide_lists
        assert watched.watch.view.listed_at is not None
        assert watched.watch.view.listed_at - evidence.since >= trust.wide_seconds
        assert sorted(watched.changed()[-1]) == [f"n{index}" for index in range(5)]


@virtual_time
async def test_a_reply_that_is_too_large_is_not_asked_for_all_the_time() -> None:
    """However often a fresh list is wanted: a reply that costs much to read is asked for ever less often."""
    cluster = Cluster()
    cluster.failures["nodes"] = errors.ReplyTooLarge("list nodes", "it lists more than 65536 nodes")
    async with watching(cluster) as watched:
        with pytest.raises(errors.Unavailable):
            await watched.watch.refreshed(now(), now() + 120.0)
    assert 4 <= cluster.count("nodes") <= 15
