"""What happens between a plan and its deletions, and what Slurm is told in the background."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.actions import DeletePod, WriteNodes
from slurm_operator.controllers.nodeset.engine.claims import Claims
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


async def delete(at_hand: Work, **options: float) -> list[str]:
    """Carry out the deletions that are planned; return the requests that went to the API server."""
    deletions = [one for one in plan(at_hand.seen).actions if isinstance(one, DeletePod)]
    assert [one.name for one in deletions] == ["gpu-0"]
    async with serving() as server, Client(server.config()) as client:
        server.script = [OK]
        pods = Pods(client, EventRecorder(client), Expectations(), Claims(client), **options)
        await pods.delete(at_hand, deletions)
        return [f"{one.method} {one.target}" for one in server.requests]


async def test_a_worker_that_is_free_goes(hostile: HostileSlurmrestd) -> None:
    """What Slurm says again, right before, is done."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        assert await delete(work(connection, look(connection))) == [
            "DELETE /api/v1/namespaces/slurm/pods/gpu-0"
        ]


async def test_an_old_list_confirms_nothing(hostile: HostileSlurmrestd) -> None:
    """A list of more than a second ago does not do, although it was asked for after the plan was made."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        taken = connection.view.taken
        assert taken is not None
        planned = work(connection, look(connection, taken - 0.1))
        await eventually(lambda: connection.view.age(asyncio.get_running_loop().time()) > 1.0, "a second")
        hostile.nodes.change("gpu-0", state=["ALLOCATED", "DYNAMIC_NORM"], alloc_cpus=1)
        assert await delete(planned) == []
        assert planned.outcome.looks


async def test_without_an_answer_nobody_goes(hostile: HostileSlurmrestd) -> None:
    """A connection that was closed between the plan and its deletions confirms nothing."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        planned = work(connection, look(connection))

        async def replaced() -> Observation:
            return observe(pod(0), nodeset=LEAVING, view=None, now=asyncio.get_running_loop().time())

        moved = dataclasses.replace(planned, look=replaced)
        assert await delete(moved) == []


async def test_a_confirmation_does_not_last(hostile: HostileSlurmrestd) -> None:
    """What was not sent in its time is not sent on the old word; it is planned again, soon."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection:
        planned = work(connection, look(connection))
        assert await delete(planned, valid=0.0) == []
        assert min(planned.outcome.looks) < 1.0


async def test_one_bad_mark_does_not_keep_the_others(hostile: HostileSlurmrestd) -> None:
    """What Slurm cannot be told about one node waits alone, is a trouble, and heals when it is mended."""
    hostile.add_nodes("gpu-[0-1]", "IDLE", "DYNAMIC_NORM")
    again: Channel[Key] = Channel()
    news: list[Key] = []
    again.subscribe(news.append)
    async with connected(hostile) as connection:
        slurm = Slurm(again)
        background = asyncio.create_task(slurm.run())
        at_hand = work(connection, look(connection))
        bad = WriteNodes({"gpu-0": Features(("not one",), "k8s/")})
        slurm.tell(at_hand, [bad])
        await eventually(lambda: news, "the refusal")
        slurm.tell(at_hand, [bad, WriteNodes({"gpu-1": Comment("hello")})])
        assert [one.reason for one in at_hand.outcome.troubles] == ["SlurmWriteHeld"]
        await eventually(lambda: hostile.nodes["gpu-1"]["comment"] == "hello", "the other one is told")
        await eventually(lambda: not slurm._tasks, "all is said")
        slurm.tell(at_hand, [WriteNodes({"gpu-0": Features(("one",), "k8s/")})])
        await eventually(lambda: "k8s/one" in hostile.nodes["gpu-0"]["features"], "the mended one is told")
        assert at_hand.memory.refused is None
        background.cancel()
        await asyncio.wait({background})
