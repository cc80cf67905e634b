"""What happens between a plan and its deletions, and what Slurm is told in the background."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import DeletePod, DrainNodes, UndrainNodes, WriteNodes
from slurm_operator.controllers.nodeset.decide.deletion import FRESH_SECONDS
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.controllers.nodeset.run.background import TaskKind
from slurm_operator.controllers.nodeset.run.pod_writes import ConfirmedRemovals
from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
from slurm_operator.kube.client.client import Client
from slurm_operator.slurm.decide.node_changes import Comment, Features
from slurm_operator.slurm.rest.connections import Connections
from tests.support.controllers.action_runner import (
    DRAINED,
    LEAVING,
    PATIENT,
    connect,
    connected,
    deletions,
    observe_leaving,
    old_view,
    work,
)
from tests.support.kube.scripted_server import OK, serving
from tests.support.processes import eventually
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.run.reconcile_state import PlannedWork
    from tests.support.controllers.action_runner import Hands


async def test_a_worker_that_is_free_goes(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """What Slurm has just said is done at once; what it said long ago, when it has said it again."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        await old_view(connection)
        assert await hands.delete(work(connection, observe_leaving(connection))) == []
        assert hands.under_way() == {TaskKind.ASK}
        at_hand = work(connection, observe_leaving(connection))

        async def gone() -> bool:
            # A machine that is too busy for two seconds has to ask again.
            await hands.called()
            return bool(await hands.delete(dataclasses.replace(at_hand, seen=observe_leaving(connection))))

        await eventually(gone, "the pod goes")


async def test_a_pass_does_not_wait_for_a_confirmation(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """While slurmrestd keeps silent, deletions are over at once: nobody is deleted, and it is asked."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        await old_view(connection)
        asked = len(hostile.seen("GET nodes"))
        hostile.fault = Fault.HANG
        at_hand = work(connection, observe_leaving(connection))
        assert await hands.delete(at_hand) == []
        assert hands.under_way() == {TaskKind.ASK}
        await hostile.asked("GET nodes", asked + 1)
        assert await hands.delete(at_hand) == []
        assert not at_hand.outcome.requeues, "the end of the background task is the event"
        hands.background.drop(LEAVING.key)
        await eventually(lambda: not hands.under_way(), "a NodeSet that is gone has no background task")
        assert not hands.news


async def test_a_list_that_was_just_asked_for_is_not_asked_for_again(
    hostile: HostileSlurmrestd, hands: Hands
) -> None:
    """Deletions that outlast their list go on with one that the watch has by then; nobody asks once more."""
    hostile.add_nodes("gpu-0", *DRAINED)
    clock = asyncio.get_running_loop().time
    async with connected(hostile) as connection, serving() as server, Client(server.config()) as client:
        server.script = [OK]

        async def spared() -> bool:
            await connection.watch.refreshed(clock(), clock() + 60.0)
            at_hand = work(connection, observe_leaving(connection))
            asked, listed_at = len(hostile.seen("GET nodes")), connection.view.listed_at or 0.0
            ordered = clock()
            # So many are to follow that the next list is asked for.
            batch = ConfirmedRemovals(
                deletions(at_hand.seen), until=clock() + 0.5, ask_at=clock(), more=10**6
            )
            await hands.pods(client)._delete_batch(at_hand, batch, defaultdict(list))
            await hands.called()
            confirmed = at_hand.state.evidence.confirmed
            assert confirmed is not None
            # On a machine that is too busy, that list was too old by then.
            if ordered - listed_at >= FRESH_SECONDS / 2:
                return False
            assert len(hostile.seen("GET nodes")) == asked
            return True

        await eventually(spared, "a list that is new enough")


async def test_a_few_deletions_ask_for_no_other_list(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """Also where it is time to ask: they are over before."""
    hostile.add_nodes("gpu-0", *DRAINED)
    clock = asyncio.get_running_loop().time
    async with connected(hostile) as connection, serving() as server, Client(server.config()) as client:
        server.script = [OK]

        async def over() -> bool:
            at_hand = work(connection, observe_leaving(connection))
            until = clock() + 5.0
            batch = ConfirmedRemovals(deletions(at_hand.seen), until, ask_at=clock())
            began = clock()
            assert await hands.pods(client)._delete_batch(at_hand, batch, defaultdict(list)) == []
            # On a machine that is too busy the deletion takes longer than that.
            asked = hands.under_way() or at_hand.state.evidence.confirmed is not None
            return clock() - began < 0.1 and not asked

        await eventually(over, "no list is asked for", 20.0)


async def test_more_removals_than_are_confirmed_at_once_all_happen(
    hostile: HostileSlurmrestd, hands: Hands
) -> None:
    """The rest is confirmed when the first thousand are deleted; each is deleted once."""
    count = 1020
    hostile.add_nodes(f"gpu-[0-{count - 1}]", *DRAINED)
    workers = [pod(number) for number in range(count)]
    async with connected(hostile) as connection, serving() as server, Client(server.config()) as client:
        server.script = [OK]

        def sent() -> list[str]:
            return [one.target.partition("?")[0].rpartition("/")[2] for one in server.requests]

        async def again() -> Observation:
            moment = asyncio.get_running_loop().time()
            return observe(*workers, nodeset=LEAVING, view=connection.view, now=moment)

        async def gone() -> bool:
            # A machine that is too busy for two seconds has to ask again.
            at_hand = dataclasses.replace(work(connection, await again()), observe_again=again)
            planned = [one for one in plan(at_hand.seen).actions if isinstance(one, DeletePod)]
            done = {*sent()}
            left = [one for one in planned if one.name not in done]
            await hands.pods(client).remove(at_hand, left)
            if hands.under_way():
                await hands.called()
            return len(server.requests) >= count

        await eventually(gone, "all go")
        assert sorted(sent()) == sorted(f"gpu-{number}" for number in range(count))


async def test_an_old_list_confirms_nothing(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """A list of some seconds ago does not do, although it was asked for after the plan was made."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        listed_at = connection.view.listed_at
        assert listed_at is not None
        planned = work(connection, observe_leaving(connection, listed_at - 0.1))
        await old_view(connection)
        hostile.nodes.change("gpu-0", state=["ALLOCATED", "DYNAMIC_NORM"], alloc_cpus=1)
        assert await hands.delete(planned) == []
        await hands.called()
        assert await hands.delete(planned) == [], "the new list does not allow it"
        assert planned.outcome.requeues


async def test_without_an_answer_nobody_goes(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """A connection that was closed between the plan and its deletions confirms nothing."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        planned = work(connection, observe_leaving(connection))

        async def replaced() -> Observation:
            return observe(pod(0), nodeset=LEAVING, view=None, now=asyncio.get_running_loop().time())

        moved = dataclasses.replace(planned, observe_again=replaced)
        assert await hands.delete(moved) == []


async def test_a_question_ends_with_its_connection(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """When Slurm moves, what its old address owes is forgotten, and the new one is asked without a pause."""
    async with HostileSlurmrestd() as moved:
        for server in (hostile, moved):
            server.add_nodes("gpu-0", *DRAINED)
        connections = Connections(reason_prefix=wellknown.REASON_PREFIX, timing=PATIENT)
        try:
            before = await connect(connections, hostile)
            await old_view(before)
            asked = len(hostile.seen("GET nodes"))
            hostile.fault = Fault.HANG
            at_hand = work(before, observe_leaving(before))
            assert await hands.delete(at_hand) == []
            await hostile.asked("GET nodes", asked + 1)
            after = await connect(connections, moved)
            await hands.called()
            assert at_hand.state.evidence.not_before == 0.0
            await old_view(after)
            moved.fault = Fault.HANG
            again = dataclasses.replace(work(after, observe_leaving(after)), state=at_hand.state)
            assert await hands.delete(again) == []
            assert hands.under_way() == {TaskKind.ASK}
        finally:
            await connections.close()


async def test_while_a_drain_is_under_way_nothing_is_known(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """From the order of a change until after its end no list counts, and what failed waits a moment."""
    hostile.add_nodes("gpu-0", "IDLE", "DYNAMIC_NORM")
    async with connected(hostile) as connection:
        at_hand = work(connection, observe_leaving(connection))
        nodes = at_hand.state.nodes
        hostile.fault, asked = Fault.HANG, len(hostile.log)
        hands.slurm.change_states(at_hand, [DrainNodes("why", ("gpu-0",))])
        assert [*nodes.changing] == ["gpu-0"]
        hands.slurm.change_states(at_hand, [UndrainNodes(("gpu-0",))])
        assert len(hands.background.under_way(LEAVING.key)) == 1
        await eventually(lambda: len(hostile.log) > asked, "Slurm is asked")
        hostile.fault = Fault.CLOSE
        hostile.cut()
        await hands.called()
        assert nodes.changing == {}
        assert nodes.written["gpu-0"] > (connection.view.listed_at or 0.0)
        blind = dataclasses.replace(at_hand, outcome=ReconcileOutcome())
        hands.slurm.recall(blind)
        assert 0.0 < min(blind.outcome.requeues) <= 5.0, "no event tells that a list shows nothing of it"
        drain = dataclasses.replace(at_hand, plan=Plan((DrainNodes("why", ("gpu-0",)),)))
        hands.slurm.recall(drain)
        assert [one.reason for one in drain.outcome.troubles] == ["SlurmWriteFailed"]
        hands.slurm.change_states(drain, [DrainNodes("why", ("gpu-0",))])
        assert not hands.under_way()
        assert min(drain.outcome.requeues) <= 5.0


async def test_one_bad_mark_does_not_keep_the_others(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """What Slurm cannot be told about one node waits alone, is a trouble, and recovers when it is fixed."""
    hostile.add_nodes("gpu-[0-1]", "IDLE", "DYNAMIC_NORM")
    async with connected(hostile) as connection:
        at_hand = work(connection, observe_leaving(connection))

        def tell(*actions: WriteNodes) -> PlannedWork:
            planned = dataclasses.replace(at_hand, plan=Plan(actions), outcome=ReconcileOutcome())
            hands.slurm.recall(planned)
            hands.slurm.tell(planned, actions)
            return planned

        bad = WriteNodes({"gpu-0": Features(("not one",), "k8s/")})
        tell(bad)
        await hands.called()
        planned = tell(bad, WriteNodes({"gpu-1": Comment("hello")}))
        assert [one.reason for one in planned.outcome.troubles] == ["SlurmWriteHeld"]
        await eventually(lambda: hostile.nodes["gpu-1"]["comment"] == "hello", "the other one is told")
        await eventually(lambda: not hands.under_way(), "all is said")
        planned = tell(WriteNodes({"gpu-0": Features(("one",), "k8s/")}))
        assert not planned.outcome.troubles
        await eventually(lambda: "k8s/one" in hostile.nodes["gpu-0"]["features"], "the fixed one is told")
