"""Hands that carry out what a plan says about one worker, with Slurm and the API server on loopback."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import DeletePod
from slurm_operator.controllers.nodeset.decide.deletion import FRESH_SECONDS, LASTS_SECONDS
from slurm_operator.controllers.nodeset.decide.observation import EVERYWHERE, ControllerState
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.controllers.nodeset.run.background import BackgroundTasks, SlurmQuestions, TaskKind
from slurm_operator.controllers.nodeset.run.claim_writes import ClaimWriter
from slurm_operator.controllers.nodeset.run.observe import ReconcileInputs
from slurm_operator.controllers.nodeset.run.pod_writes import Pods
from slurm_operator.controllers.nodeset.run.reconcile_state import NodeSetState, PlannedWork, ReconcileOutcome
from slurm_operator.controllers.nodeset.run.slurm_nodes import Slurm
from slurm_operator.controllers.nodeset.run.slurm_records import Records
from slurm_operator.controllers.nodeset.run.template import ControllerRef
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.decide.expectations import Expectations
from slurm_operator.kube.errors import ConnectionFailed
from slurm_operator.kube.models.store import Store
from slurm_operator.kube.runtime.events import EventRecorder
from slurm_operator.kube.runtime.sources import Channel
from slurm_operator.slurm.rest.connections import ConnectionKey, Connections, ConnectionTarget
from slurm_operator.slurm.watch.watcher import WatchTiming
from tests.support.kube.scripted_server import OK, serving
from tests.support.processes import eventually
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import observe, pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.kube.models.kinds import Pod
    from slurm_operator.kube.models.meta import Key
    from slurm_operator.slurm.rest.connections import Connection
    from tests.support.slurm.hostile_server import HostileSlurmrestd

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
    target = ConnectionTarget(hostile.url, "", lambda: "t")
    made = connections.set(ConnectionKey("Controller", "slurm", "slurm"), target)
    await eventually(
        lambda: made.view.listed_at is not None and made.view.jobs_listed_at is not None, "a view"
    )
    return made


def observe_leaving(connection: Connection, now: float | None = None) -> Observation:
    """Return what one reconcile sees of a NodeSet that wants no workers, and has one left."""
    moment = asyncio.get_running_loop().time() if now is None else now
    return observe(pod(0), nodeset=LEAVING, view=connection.view, now=moment)


def work(connection: Connection, seen: Observation) -> PlannedWork:
    """Return a plan with its surroundings."""

    async def again() -> Observation:
        return observe_leaving(connection)

    return PlannedWork(
        inputs=ReconcileInputs(
            seen.nodeset,
            ControllerRef(None, ControllerState.STAYS),
            seen.revision,
            EVERYWHERE,
            {},
            certain=True,
        ),
        seen=seen,
        plan=Plan(),
        template=None,
        connection=connection,
        state=NodeSetState(seen.nodeset.metadata.uid),
        outcome=ReconcileOutcome(),
        observe_again=again,
        generation=lambda: seen.nodeset.metadata.generation,
    )


def deletions(seen: Observation) -> list[DeletePod]:
    """Return the deletions that are planned."""
    found = [one for one in plan(seen).actions if isinstance(one, DeletePod)]
    assert [one.name for one in found] == ["gpu-0"]
    return found


class Hands:
    """Carries out deletions with a server on loopback as the API server, and runs background tasks."""

    def __init__(self) -> None:
        self.news: list[Key] = []
        again: Channel[Key] = Channel()
        again.subscribe(self.news.append)
        self.background = BackgroundTasks(again)
        self.slurm = Slurm(self.background)
        self.expectations: Expectations[Key] = Expectations()
        self.cached: Store[Pod] = Store()

    async def delete(self, at_hand: PlannedWork) -> list[str]:
        """Carry out the deletions that are planned; return the requests that went to the API server.

        It agrees to everything.
        """
        async with serving() as server, Client(server.config()) as client:
            server.script = [OK]
            await self.delete_with(client, at_hand)
            return [f"{one.method} {one.target}" for one in server.requests]

    async def delete_with(self, client: Client, at_hand: PlannedWork) -> None:
        """Carry out the deletions that are planned."""
        await self.pods(client).remove(at_hand, deletions(at_hand.seen))

    def pods(self, client: Client) -> Pods:
        """Return who writes pods with a client."""
        asking = SlurmQuestions(self.background)
        events = EventRecorder(client)
        claims = ClaimWriter(client, events)
        return Pods(client, events, self.expectations, claims, asking, self.cached.get)

    def records(self, read: Callable[[NodeSet], Awaitable[NodeSet]] | None = None) -> Records:
        """Return who writes records; without a way to read a NodeSet it creates none."""
        return Records(self.background, SlurmQuestions(self.background), read or _unreadable)

    def under_way(self) -> set[TaskKind]:
        """Return what is under way."""
        return {*self.background.under_way(LEAVING.key)}

    async def called(self) -> None:
        """Wait until a background task has ended and requested another reconcile."""
        await eventually(lambda: self.news and not self.under_way(), "the background task is over")
        self.news.clear()


async def _unreadable(_nodeset: NodeSet) -> NodeSet:
    raise ConnectionFailed("no API server")


async def old_view(connection: Connection) -> None:
    """Wait until the view is too old for a deletion."""
    seconds = FRESH_SECONDS + LASTS_SECONDS
    await eventually(lambda: connection.view.age(asyncio.get_running_loop().time()) > seconds, "some seconds")
