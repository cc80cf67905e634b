"""What happens between a plan and its deletions, and what Slurm is told in the background."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.actions import DeletePod, DrainNodes, UndrainNodes, WriteNodes
from slurm_operator.controllers.nodeset.engine.asking import Asking
from slurm_operator.controllers.nodeset.engine.claims import Claims
from slurm_operator.controllers.nodeset.engine.errands import Errands, Kind
from slurm_operator.controllers.nodeset.engine.memory import Memory
from slurm_operator.controllers.nodeset.engine.observe import Ground
from slurm_operator.controllers.nodeset.engine.outcome import Outcome
from slurm_operator.controllers.nodeset.engine.pods import Pods
from slurm_operator.controllers.nodeset.engine.slurm import Slurm
from slurm_operator.controllers.nodeset.engine.template import Master
from slurm_operator.controllers.nodeset.engine.work import Work
from slurm_operator.controllers.nodeset.observation import EVERYWHERE, Fate
from slurm_operator.controllers.nodeset.plan import Plan, plan
from slurm_operator.kube.client import Client
from slurm_operator.kube.events import EventRecorder
from slurm_operator.kube.expectations import Expectations
from slurm_operator.kube.sources import Channel
from slurm_operator.slurm.clients import ConnectionKey, Connections, Target
from slurm_operator.slurm.watch import WatchTiming
from slurm_operator.slurm.wishes import Comment, Features
from tests.integration.kube.scripted import OK, serving
from tests.integration.programs.running import eventually
from tests.integration.slurm.hostile import Fault
from tests.unit.nodeset.clustermodel import make_nodeset
from tests.unit.nodeset.making import observe, pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.controllers.nodeset.observation import Observation
    from slurm_operator.kube.meta import Key
    from slurm_operator.slurm.clients import Connection
    from tests.integration.slurm.hostile import HostileSlurmrestd

DRAINED = ("IDLE", "DRAIN", "DYNAMIC_NORM")
# It asks when it is told to, and not by itself.
PATIENT = WatchTiming(busy=600.0, rest=600.0, doubt=600.0, lively=0.0)
LEAVING = make_nodeset(replicas=0, finalizers=(f"{wellknown.NODESET_PREFIX}drain",))


@asynccontextmanager
async def connected(hostile: HostileSlurmrestd) -> AsyncIterator[Connection]:
    """Hand out a connection with a whole view."""
    connections = Connections(reason_prefix=wellknown.REASON_PREFIX, timing=PATIENT)
    try:
        target = Target(hostile.url, "", lambda: "t")
        made = connections.set(ConnectionKey("Controller", "slurm", "slurm"), target)
        await eventually(lambda: made.view.taken is not None and made.view.jobs_taken is not None, "a view")
        yield made
    finally:
        await connections.close()


def look(connection: Connection, now: float | None = None) -> Observation:
    """Return what one look at a NodeSet without wanted workers sees, of which one is left."""
    moment = asyncio.get_running_loop().time() if now is None else now
    return observe(pod(0), nodeset=LEAVING, view=connection.view, now=moment)


def work(connection: Connection, seen: Observation) -> Work:
    """Return a plan with its surroundings."""

    async def again() -> Observation:
        return look(connection)

    return Work(
        ground=Ground(seen.nodeset, Master(None, Fate.STAYS), seen.revision, EVERYWHERE, {}, certain=True),
        seen=seen,
        plan=Plan(),
        template=None,
        connection=connection,
        memory=Memory(seen.nodeset.metadata.uid),
        outcome=Outcome(),
        look=again,
    )


class Hands:
    """Carries out deletions with an API server that agrees to everything, and runs errands."""

    def __init__(self) -> None:
        self.news: list[Key] = []
        again: Channel[Key] = Channel()
        again.subscribe(self.news.append)
        self.errands = Errands(again)
        self.slurm = Slurm(self.errands)

    async def delete(self, at_hand: Work) -> list[str]:
        """Carry out the deletions that are planned; return the requests that went to the API server."""
        deletions = [one for one in plan(at_hand.seen).actions if isinstance(one, DeletePod)]
        assert [one.name for one in deletions] == ["gpu-0"]
        async with serving() as server, Client(server.config()) as client:
            server.script = [OK]
            asking = Asking(self.errands)
            pods = Pods(client, EventRecorder(client), Expectations(), Claims(client), asking)
            await pods.delete(at_hand, deletions)
            return [f"{one.method} {one.target}" for one in server.requests]

    def under_way(self) -> set[Kind]:
        """Return what is under way."""
        return {*self.errands.under_way(LEAVING.key)}

    async def called(self) -> None:
        """Wait until an errand has ended and called for another pass."""
        await eventually(lambda: self.news and not self.under_way(), "the errand is over")
        self.news.clear()


@pytest.fixture
async def hands() -> AsyncIterator[Hands]:
    """Hand out somebody who carries out plans."""
    made = Hands()
    background = asyncio.create_task(made.errands.run())
    # Else it would be cancelled before it has begun, and end nothing.
    await asyncio.sleep(0)
    yield made
    background.cancel()
    await asyncio.wait({background})


async def old_view(connection: Connection) -> None:
    """Wait until the view is too old for a deletion."""
    await eventually(lambda: connection.view.age(asyncio.get_running_loop().time()) > 1.0, "a second")


async def test_a_worker_that_is_free_goes(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """What Slurm has just said is done at once; what it said long ago, when it has said it again."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        await old_view(connection)
        assert await hands.delete(work(connection, look(connection))) == []
        assert hands.under_way() == {Kind.ASK}
        at_hand = work(connection, look(connection))

        async def gone() -> bool:
            # A machine that is too busy for two seconds has to ask again.
            await hands.called()
            return bool(await hands.delete(dataclasses.replace(at_hand, seen=look(connection))))

        await eventually(gone, "the pod goes")


async def test_a_pass_does_not_wait_for_a_confirmation(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """While slurmrestd keeps silent, deletions are over at once: nobody is deleted, and it is asked."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        await old_view(connection)
        asked = len(hostile.seen("GET nodes"))
        hostile.fault = Fault.HANG
        at_hand = work(connection, look(connection))
        assert await hands.delete(at_hand) == []
        assert hands.under_way() == {Kind.ASK}
        await hostile.asked("GET nodes", asked + 1)
        assert await hands.delete(at_hand) == []
        assert not at_hand.outcome.looks, "the end of the errand is the event"
        hands.errands.drop(LEAVING.key)
        await eventually(lambda: not hands.under_way(), "a NodeSet that is gone has no errands")
        assert not hands.news


async def test_an_old_list_confirms_nothing(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """A list of more than a second ago does not do, although it was asked for after the plan was made."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        taken = connection.view.taken
        assert taken is not None
        planned = work(connection, look(connection, taken - 0.1))
        await old_view(connection)
        hostile.nodes.change("gpu-0", state=["ALLOCATED", "DYNAMIC_NORM"], alloc_cpus=1)
        assert await hands.delete(planned) == []
        await hands.called()
        assert await hands.delete(planned) == [], "the new list does not allow it"
        assert planned.outcome.looks


async def test_without_an_answer_nobody_goes(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """A connection that was closed between the plan and its deletions confirms nothing."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        planned = work(connection, look(connection))

        async def replaced() -> Observation:
            return observe(pod(0), nodeset=LEAVING, view=None, now=asyncio.get_running_loop().time())

        moved = dataclasses.replace(planned, look=replaced)
        assert await hands.delete(moved) == []


async def test_while_a_drain_is_under_way_nothing_is_known(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """From the order of a change until after its end no list counts, and what failed waits a moment."""
    hostile.add_nodes("gpu-0", "IDLE", "DYNAMIC_NORM")
    async with connected(hostile) as connection:
        at_hand = work(connection, look(connection))
        memory = at_hand.memory
        hostile.fault, asked = Fault.HANG, len(hostile.log)
        hands.slurm.change_states(at_hand, [DrainNodes("why", ("gpu-0",))])
        assert [*memory.changing] == ["gpu-0"]
        hands.slurm.change_states(at_hand, [UndrainNodes(("gpu-0",))])
        assert len(hands.errands.under_way(LEAVING.key)) == 1
        await eventually(lambda: len(hostile.log) > asked, "Slurm is asked")
        hostile.fault = Fault.CLOSE
        hostile.cut()
        await hands.called()
        assert memory.changing == {}
        assert memory.written["gpu-0"] > (connection.view.taken or 0.0)
        blind = dataclasses.replace(at_hand, outcome=Outcome())
        hands.slurm.recall(blind)
        assert 0.0 < min(blind.outcome.looks) <= 5.0, "no event tells that a list shows nothing of it"
        drain = dataclasses.replace(at_hand, plan=Plan((DrainNodes("why", ("gpu-0",)),)))
        hands.slurm.recall(drain)
        assert [one.reason for one in drain.outcome.troubles] == ["SlurmWriteFailed"]
        hands.slurm.change_states(drain, [DrainNodes("why", ("gpu-0",))])
        assert not hands.under_way()
        assert min(drain.outcome.looks) <= 5.0


async def test_one_bad_mark_does_not_keep_the_others(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """What Slurm cannot be told about one node waits alone, is a trouble, and heals when it is mended."""
    hostile.add_nodes("gpu-[0-1]", "IDLE", "DYNAMIC_NORM")
    async with connected(hostile) as connection:
        at_hand = work(connection, look(connection))

        def tell(*actions: WriteNodes) -> Work:
            planned = dataclasses.replace(at_hand, plan=Plan(actions), outcome=Outcome())
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
        await eventually(lambda: "k8s/one" in hostile.nodes["gpu-0"]["features"], "the mended one is told")
