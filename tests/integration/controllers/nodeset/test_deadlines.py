"""A deletion on Slurm's word leaves while that word counts, however long the API server lets it wait."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from slurm_operator.controllers.nodeset.decide.deletion import FRESH_SECONDS, LASTS_SECONDS
from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.errors import ConnectionFailed, DeadlineExceeded, TooManyRequests
from slurm_operator.kube.models.kinds import Pod
from tests.support.controllers.action_runner import DRAINED, LEAVING, connected, observe_leaving, work
from tests.support.kube.scripted_server import OK, Request, Server, reset, respond, serving, status
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.controllers.nodeset.run.reconcile_state import PlannedWork
    from slurm_operator.slurm.rest.connections import Connection
    from tests.support.controllers.action_runner import Hands
    from tests.support.slurm.hostile_server import HostileSlurmrestd

COUNTS_SECONDS = FRESH_SECONDS + LASTS_SECONDS
COME_LATER = respond(429, status(429, "TooManyRequests"), retry_after=f"{COUNTS_SECONDS + 1:.0f}")


def deletions(server: Server) -> list[Request]:
    """Return the deletions that reached the server."""
    return [one for one in server.requests if one.method == "DELETE"]


class Reconciles:
    """Reconciles over a NodeSet with one worker, which may go."""

    def __init__(self, hands: Hands, connection: Connection, client: Client) -> None:
        self._hands = hands
        self._connection = connection
        self._client = client
        self._at_hand = work(connection, observe_leaving(connection))

    @property
    def expected(self) -> tuple[str, ...]:
        """Return the pods whose end is expected."""
        return self._hands.expectations.pending(LEAVING.key).deletions

    async def until(self, reached: Callable[[], bool], what: str) -> tuple[asyncio.Task[None], PlannedWork]:
        """Let one reconcile follow the other until one has come somewhere; return it, and what it works on.

        On a machine that is too busy, what Slurm has said is old before the reconcile has begun.
        """
        while True:
            at_hand = dataclasses.replace(
                self._at_hand, seen=observe_leaving(self._connection), outcome=ReconcileOutcome()
            )
            begun = asyncio.create_task(self._hands.delete_with(self._client, at_hand))

            def somewhere(begun: asyncio.Task[None] = begun) -> bool:
                return reached() or begun.done()

            await eventually(somewhere, what)
            if reached():
                return begun, at_hand
            await begun
            await self._hands.called()


async def test_a_throttled_deletion_is_not_sent_when_the_evidence_is_over(
    hostile: HostileSlurmrestd, hands: Hands
) -> None:
    """Told to come back when Slurm's word counts no more, a reconcile ends, and the pod stays."""
    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection, serving() as server, Client(server.config()) as client:
        server.script = [COME_LATER, OK]
        reconciles = Reconciles(hands, connection, client)
        begun, at_hand = await reconciles.until(lambda: bool(deletions(server)), "a deletion is sent")
        await begun
        assert len(deletions(server)) == 1
        (error,) = at_hand.outcome.errors
        assert isinstance(error, TooManyRequests)
        assert reconciles.expected == ()


async def test_a_deletion_that_queued_too_long_is_not_sent(hostile: HostileSlurmrestd, hands: Hands) -> None:
    """What gets its turn among our own requests when Slurm's word counts no more waits for another word."""
    free = asyncio.Event()

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "GET":
            await free.wait()
        await OK(request, writer)

    hostile.add_nodes("gpu-0", *DRAINED)
    async with (
        connected(hostile) as connection,
        serving() as server,
        Client(server.config(), max_in_flight=1, timeout=600.0) as client,
    ):
        server.script = [answer]
        other = asyncio.create_task(client.get(Pod, "other", "slurm"))
        await eventually(lambda: server.requests, "another request is under way")
        reconciles = Reconciles(hands, connection, client)
        begun, at_hand = await reconciles.until(lambda: reconciles.expected == ("uid-0",), "a deletion waits")
        loop = asyncio.get_running_loop()
        over = loop.time() + COUNTS_SECONDS
        await eventually(lambda: loop.time() > over, "what Slurm said is old")
        free.set()
        await other
        await begun
        assert deletions(server) == []
        assert reconciles.expected == ()
        # On a machine that stood still, nothing was free before the whole call was over.
        assert all(isinstance(one, DeadlineExceeded) and not one.sent for one in at_hand.outcome.errors)
        assert hands.under_way() or hands.news or at_hand.outcome.requeues or at_hand.outcome.errors


async def test_without_an_answer_the_end_of_a_pod_is_expected(
    hostile: HostileSlurmrestd, hands: Hands
) -> None:
    """The API server is told when a deletion must be over; if its answer is lost, only the cache can tell."""
    lost = asyncio.Event()

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await lost.wait()
        await reset(request, writer)

    hostile.add_nodes("gpu-0", *DRAINED)
    async with connected(hostile) as connection, serving() as server, Client(server.config()) as client:
        server.script = [answer]
        reconciles = Reconciles(hands, connection, client)
        begun, at_hand = await reconciles.until(lambda: bool(deletions(server)), "a deletion is sent")
        (limit,) = parse_qs(urlsplit(deletions(server)[0].target).query)["timeout"]
        assert 0 < int(limit.removesuffix("ms")) <= 4000
        lost.set()
        await begun
        (error,) = at_hand.outcome.errors
        assert isinstance(error, ConnectionFailed)
        assert error.sent
        assert reconciles.expected == ("uid-0",)
