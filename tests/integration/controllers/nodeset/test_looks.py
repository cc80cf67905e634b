"""A reconcile that fails keeps the requeue it asked for, beside the pause after an error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.controllers import cluster, slurmclient
from slurm_operator.controllers.nodeset.controller import NodeSetController
from slurm_operator.kube.decide.expectations import EXPIRY
from slurm_operator.kube.errors import Forbidden
from slurm_operator.kube.models.meta import Key
from tests.support.controllers.workload_namespace import running
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.runtime import controller as runtime
    from tests.support.controllers.nodeset_namespace import Stage


async def test_a_reconcile_that_fails_is_followed_by_the_one_it_asked_for(stage: Stage) -> None:
    """One worker is made, the next one refused: the first one is looked after whenever its time has come."""
    made: list[NodeSetController] = []

    def by_hand(wiring: Wiring) -> runtime.Controller:
        # It has its caches, but does not run: its reconciles are those of the test.
        made.append(NodeSetController(wiring))
        return cluster.build(wiring)

    key = Key(stage.namespace, "blue")
    await stage.quota(pods=1)
    await stage.nodeset(replicas=2)
    async with running(stage.config, stage.namespace, builds=(by_hand, slurmclient.build)):
        (engine,) = made
        queue = engine.controller.queue
        refusals: list[Forbidden] = []

        async def refused() -> bool:
            assert queue.core.delayed == 0
            try:
                await engine.reconcile(key)
            except Forbidden as error:
                refusals.append(error)
            return bool(refusals)

        await eventually(refused, "a worker is refused")
        assert "exceeded quota" in str(refusals[0])
        assert {*await stage.pods()} == {"blue-0"}
        now = asyncio.get_running_loop().time()
        due = queue.core.next_due(now)
        assert due is not None
        assert due <= now + EXPIRY + 1.0
