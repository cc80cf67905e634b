"""What the tests of this folder rely on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.controllers.restapi import RestApiController
from tests.support.controllers.workload_namespace import running
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.api import RestApi
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.controllers.workload.reconcile import WorkloadPlan
    from slurm_operator.kube.runtime import controller as runtime
    from tests.support.controllers.workload_namespace import Stage


class Counted(RestApiController):
    """Counts reconciles that are under way at the same time; none ends before the gate is open."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__(wiring)
        self.gate = asyncio.Event()
        self.under_way = self.most = 0

    async def plan(self, live: RestApi) -> WorkloadPlan:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            async with asyncio.timeout(60):
                await self.gate.wait()
            return await super().plan(live)
        finally:
            self.under_way -= 1


async def test_a_look_waits_for_its_turn(stage: Stage) -> None:
    """A reconcile on request does not run beside that of an event, which would write the same again."""
    made: list[Counted] = []

    def build(wiring: Wiring) -> runtime.Controller:
        made.append(Counted(wiring))
        return made[0].controller

    async with running(stage.config, stage.namespace, builds=(build,)) as operator:
        (counted,) = made
        await stage.restapi()
        await eventually(lambda: counted.under_way, "the reconcile of an event is under way")
        again = asyncio.create_task(operator.reconcile_again())
        for _ in range(10):
            await asyncio.sleep(0)
        counted.gate.set()
        await again
        assert counted.most == 1
