"""Hands that carry out what a plan says about one worker, with Slurm and the API server on loopback."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import DeletePod
from slurm_operator.controllers.nodeset.decide.observation import EVERYWHERE, Fate
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.controllers.nodeset.run.background import Asking, Errands, Kind
from slurm_operator.controllers.nodeset.run.claim_writes import Claims
from slurm_operator.controllers.nodeset.run.observe import Ground
from slurm_operator.controllers.nodeset.run.one_pass import Outcome, Work
from slurm_operator.controllers.nodeset.run.pod_writes import Pods
from slurm_operator.controllers.nodeset.run.slurm_nodes import Slurm
from slurm_operator.controllers.nodeset.run.state import Memory
from slurm_operator.controllers.nodeset.run.template import Master
from slurm_operator.kube.client import Client
from slurm_operator.kube.events import EventRecorder
from slurm_operator.kube.expectations import Expectations
from slurm_operator.kube.sources import Channel
from slurm_operator.slurm.clients import ConnectionKey, Connections, Target
from slurm_operator.slurm.watch import WatchTiming
from tests.integration.kube.scripted import OK, serving
from tests.integration.programs.running import eventually
from tests.unit.nodeset.clustermodel import make_nodeset
from tests.unit.nodeset.making import observe, pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.controllers.nodeset.decide.observation import Observation
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
        yield await connect(connections, hostile)
    finally:
        await connections.close()


async def connect(connections: Connections, hostile: HostileSlurmrestd) -> Connection:
    """Return a connection with a whole view, in place of the one that is there."""
    target = Target(hostile.url, "", lambda: "t")
    made = connections.set(ConnectionKey("Controller", "slurm", "slurm"), target)
    await eventually(lambda: made.view.taken is not None and made.view.jobs_taken is not None, "a view")
    return made


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


def deletions(seen: Observation) -> list[DeletePod]:
    """Return the deletions that are planned."""
    found = [one for one in plan(seen).actions if isinstance(one, DeletePod)]
    assert [one.name for one in found] == ["gpu-0"]
    return found


class Hands:
    """Carries out deletions with a server on loopback in place of the API server, and runs errands."""

    def __init__(self) -> None:
        self.news: list[Key] = []
        again: Channel[Key] = Channel()
        again.subscribe(self.news.append)
        self.errands = Errands(again)
        self.slurm = Slurm(self.errands)
        self.expectations: Expectations[Key] = Expectations()

    async def delete(self, at_hand: Work) -> list[str]:
        """Carry out the deletions that are planned; return the requests that went to the API server.

        It agrees to everything.
        """
        async with serving() as server, Client(server.config()) as client:
            server.script = [OK]
            await self.delete_with(client, at_hand)
            return [f"{one.method} {one.target}" for one in server.requests]

    async def delete_with(self, client: Client, at_hand: Work) -> None:
        """Carry out the deletions that are planned."""
        await self.pods(client).remove(at_hand, deletions(at_hand.seen))

    def pods(self, client: Client) -> Pods:
        """Return who writes pods with a client."""
        asking = Asking(self.errands)
        events = EventRecorder(client)
        return Pods(client, events, self.expectations, Claims(client, events), asking)

    def under_way(self) -> set[Kind]:
        """Return what is under way."""
        return {*self.errands.under_way(LEAVING.key)}

    async def called(self) -> None:
        """Wait until an errand has ended and called for another pass."""
        await eventually(lambda: self.news and not self.under_way(), "the errand is over")
        self.news.clear()


async def old_view(connection: Connection) -> None:
    """Wait until the view is too old for a deletion."""
    await eventually(lambda: connection.view.age(asyncio.get_running_loop().time()) > 1.0, "a second")
