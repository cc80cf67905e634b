"""Records of Slurm nodes whose workers are gone for good."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import DeleteRecord
from slurm_operator.controllers.nodeset.run.background import TaskKind
from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
from slurm_operator.slurm.rest.connections import ConnectionKey, Connections, ConnectionTarget
from tests.support.controllers.action_runner import PATIENT, observe_leaving, work
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.action_runner import Hands
    from tests.support.slurm.hostile_server import HostileSlurmrestd


@pytest.mark.parametrize("returns", [False, True], ids=["gone for good", "comes back"])
async def test_a_record_whose_worker_comes_back_is_left_alone(
    hostile: HostileSlurmrestd, hands: Hands, *, returns: bool
) -> None:
    """Also if that is known only when the request that deletes it waits for its turn or its connection."""
    hostile.add_nodes("gpu-9", "DOWN", "DYNAMIC_NORM")

    def token() -> str:
        # Asked for on the way from the background task to the connection.
        if returns and at_hand is not None:
            at_hand.state.records.deleting.clear()
        return "t"

    at_hand = None
    connections = Connections(reason_prefix=wellknown.REASON_PREFIX, timing=PATIENT)
    try:
        connection = connections.set(
            ConnectionKey("Controller", "slurm", "slurm"), ConnectionTarget(hostile.url, "", token)
        )
        await eventually(lambda: connection.view.listed_at is not None, "a view")
        at_hand = work(connection, observe_leaving(connection))
        records = hands.records()
        begun = False
        # More than once on a machine that is too busy: what Slurm has said is old before it is used.
        while not (begun if returns else hostile.seen("DELETE node")):
            at_hand = dataclasses.replace(
                at_hand, seen=observe_leaving(connection), outcome=ReconcileOutcome()
            )
            records.delete(at_hand, [DeleteRecord("gpu-9")])
            begun = TaskKind.DELETE_RECORDS in hands.under_way()
            await hands.called()
    finally:
        await connections.close()
    assert len(hostile.seen("DELETE node")) == (0 if returns else 1)
