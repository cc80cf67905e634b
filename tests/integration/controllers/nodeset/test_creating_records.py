"""Records that the operator creates in Slurm, for a NodeSet that only the API server knows as it is now."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import NodeSet
from slurm_operator.controllers.nodeset.decide.actions import CreateRecords
from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
from slurm_operator.controllers.nodeset.run.report import NodeSetReporter
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.runtime.events import EventRecorder
from tests.support.controllers.action_runner import connected, work
from tests.support.processes import eventually
from tests.support.simulation.observations import observe

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.slurm.rest.connections import Connection
    from tests.support.controllers.action_runner import Hands
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd

ACTION = CreateRecords(("blue-0",), "NodeName=blue-0 CPUs=1 State=CLOUD", "CPUs=1")
SAYS = {
    "type": "Autoscaling",
    "status": "True",
    "reason": "Active",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize("since", ["nothing", "switched off", "deleted"])
async def test_records_are_created_only_while_the_api_server_has_autoscaling_on(
    stage: Stage, hostile: HostileSlurmrestd, hands: Hands, since: str
) -> None:
    """A cache may show the past; then the next reconcile works on what the API server said."""
    hostile.add_nodes("other-0", "IDLE", "DYNAMIC_NORM")
    planned = await _scaled(stage)
    if since == "switched off":
        await stage.patch(NodeSet, "blue", {"spec": {"autoscaling": None}})
    elif since == "deleted":
        await stage.delete(NodeSet, "blue")
    reporter = NodeSetReporter(stage.client, EventRecorder(stage.client))
    async with connected(hostile) as connection:
        records = hands.records(reporter.read)
        seen = _observe(planned, connection)
        at_hand = work(connection, seen)
        records.create(at_hand, ACTION)
        assert _observe(planned, connection).now < at_hand.state.records.created_at
        await eventually(lambda: hands.news, "the background task is over")
    assert len(hostile.seen("POST new/node")) == (1 if since == "nothing" else 0)
    assert reporter.newest(planned).autoscaled == (since != "switched off")


async def test_records_that_slurm_does_not_list_are_not_created_with_every_list(
    stage: Stage, hostile: HostileSlurmrestd, hands: Hands
) -> None:
    """Slurm accepted them. If its lists show the past, the next attempt comes some seconds later."""
    hostile.add_nodes("other-0", "IDLE", "DYNAMIC_NORM")
    planned = await _scaled(stage)
    reporter = NodeSetReporter(stage.client, EventRecorder(stage.client))
    async with connected(hostile) as connection:
        records, loop = hands.records(reporter.read), asyncio.get_running_loop()
        at_hand = work(connection, _observe(planned, connection))
        records.create(at_hand, ACTION)
        await eventually(lambda: hands.news, "the background task is over")
        for _ in range(3):
            await connection.watch.refreshed(loop.time(), loop.time() + 10)
            later = dataclasses.replace(
                at_hand, seen=_observe(planned, connection), outcome=ReconcileOutcome()
            )
            records.create(later, ACTION)
            again = later.outcome.requeue()
            assert again is not None
            assert 3.0 < again <= 5.0
    assert len(hostile.seen("POST new/node")) == 1


async def _scaled(stage: Stage) -> NodeSet:
    """Create a NodeSet that Slurm scales, and whose status says so."""
    await stage.nodeset(autoscaling={"maxReplicas": 1})
    body = {"status": {"conditions": [SAYS]}}
    return await stage.client.patch(
        NodeSet, "blue", stage.namespace, body, type=PatchType.MERGE, subresource="status"
    )


def _observe(nodeset: NodeSet, connection: Connection) -> Observation:
    return observe(nodeset=nodeset, view=connection.view, now=asyncio.get_running_loop().time())
