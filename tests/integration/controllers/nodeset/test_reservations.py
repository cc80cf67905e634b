"""The reservation of a maintenance window on a Slurm that takes what it is told and lists something else."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import WriteReservation
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
from tests.support.controllers.action_runner import connected, work
from tests.support.processes import eventually
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.hostile_server import HostileSlurmrestd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.slurm.rest.connections import Connection
    from tests.support.controllers.action_runner import Hands
    from tests.support.slurm.hostile_replies import Reply
    from tests.support.slurm.hostile_server import Seen

NAME = "SlurmOperatorMaint-gpu"


class Stubborn(HostileSlurmrestd):
    """A slurmrestd that takes reservations and leaves all flags but one out."""

    def _written(self, seen: Seen) -> Reply:
        reply = super()._written(seen)
        if (seen.method, seen.endpoint) == ("POST", "reservation"):
            self.reservations.change(NAME, flags=["MAINT"])
        return reply


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    """Hand out such a slurmrestd, with one node."""
    async with Stubborn() as server:
        server.add_nodes("gpu-0", "IDLE", "DYNAMIC_NORM")
        yield server


def scheduled(duration: str) -> NodeSet:
    """Return a NodeSet with a maintenance window the day after tomorrow."""
    start = datetime.now(UTC) + timedelta(days=2)
    window = {"startTime": start.strftime("%Y-%m-%dT00:00:00Z"), "duration": duration}
    return make_nodeset(
        replicas=1,
        finalizers=(wellknown.FINALIZER_DRAIN, wellknown.FINALIZER_RESERVATION),
        updateStrategy={"type": "ScheduledUpdate", "scheduledUpdate": window},
    )


class Clerk:
    """Lets reconciles keep the reservation, one after the other."""

    def __init__(self, hands: Hands, connection: Connection) -> None:
        self._hands = hands
        self._connection = connection
        self._records = hands.records()
        self.up_since = -math.inf
        """Since when slurmctld is up, by the time of the loop."""
        self._work = work(connection, self._look(scheduled("1h")))

    def _look(self, nodeset: NodeSet) -> Observation:
        now = asyncio.get_running_loop().time()
        view = dataclasses.replace(self._connection.view, up_since=self.up_since)
        return observe(pod(0), nodeset=nodeset, view=view, now=now, wall=datetime.now(UTC), since=0.0)

    async def reconcile(self, nodeset: NodeSet) -> list[str]:
        """Let one reconcile do what it plans, wait until that is listed; return the problems it reports."""
        decided = plan(seen := self._look(nodeset))
        at_hand = dataclasses.replace(self._work, seen=seen, plan=decided, outcome=ReconcileOutcome())
        self._records.recall(at_hand)
        for action in decided.actions:
            if isinstance(action, WriteReservation):
                self._records.write_reservation(at_hand, action)
        await eventually(lambda: not self._hands.under_way(), "the background task is over")
        await self.listed(at_hand.state.reservation.written_at)
        return [one.reason for one in at_hand.outcome.troubles]

    async def listed(self, after: float) -> None:
        """Wait for a list of reservations that is newer than a moment."""

        def newer() -> bool:
            # More than once: a list that took long is not asked for again at once.
            self._connection.watch.wake(reservations=True)
            return (self._connection.view.reservations_listed_at or 0.0) > after

        await eventually(newer, "a newer list")

    async def changed(self) -> None:
        """Wait until what somebody else did is listed."""
        await self.listed(asyncio.get_running_loop().time())


async def test_a_reservation_that_slurm_lists_otherwise_is_written_again_once(
    stubborn: Stubborn, hands: Hands
) -> None:
    """Then people hear of it, and nothing is sent until the list, the wish or slurmctld is another one."""
    hour, hours = scheduled("1h"), scheduled("2h")

    def written() -> int:
        return len(stubborn.seen("POST reservation"))

    async with connected(stubborn) as connection:
        clerk = Clerk(hands, connection)
        assert await clerk.reconcile(hour) == []
        assert await clerk.reconcile(hour) == []
        assert written() == 2
        for _ in range(3):
            assert await clerk.reconcile(hour) == ["ReservationFailed"]
            await clerk.changed()
        assert written() == 2
        clerk.up_since = asyncio.get_running_loop().time()
        assert await clerk.reconcile(hour) == []
        assert written() == 3, "another slurmctld"
        assert await clerk.reconcile(hour) == ["ReservationFailed"]
        assert await clerk.reconcile(hours) == []
        assert written() == 4, "another wish"
        assert await clerk.reconcile(hours) == ["ReservationFailed"]
        stubborn.reservations.change(NAME, flags=["IGNORE_JOBS", "MAINT", "SPEC_NODES"])
        await clerk.changed()
        assert await clerk.reconcile(hours) == [], "a user has fixed it"
        stubborn.reservations.change(NAME, flags=["MAINT"])
        await clerk.changed()
        assert await clerk.reconcile(hours) == []
        assert written() == 5, "somebody has undone that"
