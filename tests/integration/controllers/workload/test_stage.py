"""What the tests of this folder rely on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.controllers.restapi import RestApiController
from tests.integration.controllers.workload.stage import running
from tests.integration.programs.running import eventually

if TYPE_CHECKING:
    from slurm_operator.api import RestApi
    from slurm_operator.controllers.wiring import Wiring
    from slurm_operator.controllers.workload.engine import Plan
    from slurm_operator.kube import controller as runtime
    from tests.integration.controllers.workload.stage import Stage


class Counted(RestApiController):
    """Counts passes that are under way at the same time; none ends before the gate is open."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__(wiring)
        self.gate = asyncio.Event()
        self.under_way = self.most = 0

    async def plan(self, live: RestApi) -> Plan:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            async with asyncio.timeout(60):
                await self.gate.wait()
            return await super().plan(live)
        finally:
            self.under_way -= 1


async def test_a_look_waits_for_its_turn(stage: Stage) -> None:
    """A look at an object does not run beside the pass of an event, which would write the same again."""
    made: list[Counted] = []

    def build(wiring: Wiring) -> runtime.Controller:
        made.append(Counted(wiring))
        return made[0].controller

    async with running(stage.config, stage.namespace, builds=(build,)) as operator:
        (counted,) = made
        await stage.restapi()
        await eventually(lambda: counted.under_way, "the pass of an event is under way")
        look = asyncio.create_task(operator.look_again())
        for _ in range(10):
            await asyncio.sleep(0)
        counted.gate.set()
        await look
        assert counted.most == 1
