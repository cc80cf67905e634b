"""A pass that fails keeps what it asked for: when to look again, beside the pause after an error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.controllers import cluster, slurmclient
from slurm_operator.controllers.nodeset.controller import NodeSetController
from slurm_operator.kube.errors import Forbidden
from slurm_operator.kube.expectations import EXPIRY
from slurm_operator.kube.meta import Key
from tests.integration.controllers.workload.stage import running
from tests.integration.programs.running import eventually

if TYPE_CHECKING:
    from slurm_operator.controllers.wiring import Wiring
    from slurm_operator.kube import controller as runtime
    from tests.integration.controllers.nodeset.stage import Stage


async def test_a_pass_that_fails_is_followed_by_the_look_it_asked_for(stage: Stage) -> None:
    """One worker is made, the next one refused: the first one is looked after whenever its time has come."""
    made: list[NodeSetController] = []

    def by_hand(wiring: Wiring) -> runtime.Controller:
        # It has its caches, but nobody runs it: its passes are those of the test.
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
