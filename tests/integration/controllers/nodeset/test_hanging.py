"""While slurmrestd hangs: what a reconcile wants of Slurm is under way, and workers are made all the same."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import NodeSet
from slurm_operator.controllers import cluster, slurmclient
from slurm_operator.controllers.nodeset.controller import NodeSetController
from slurm_operator.controllers.nodeset.decide.deletion import LONGEST_SECONDS
from slurm_operator.controllers.nodeset.run.background import TaskKind
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import Key
from tests.support.controllers.request_gate import Gate
from tests.support.controllers.workload_namespace import running
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.runtime import controller as runtime
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd

IDLE = {"state": ["IDLE", "DYNAMIC_NORM"], "alloc_cpus": 0, "reason": ""}
BUSY = {"state": ["ALLOCATED", "DYNAMIC_NORM"], "alloc_cpus": 1, "reason": ""}
DRAINED = {"state": ["IDLE", "DRAIN", "DYNAMIC_NORM"], "alloc_cpus": 0}
# A machine that is too busy to make a pod before a request is given up gets another chance.
ATTEMPTS = 3


@pytest.fixture
async def gate(stage: Stage, hostile: HostileSlurmrestd) -> AsyncIterator[Gate]:
    """Connect the Controller to the stand-in for slurmrestd, through a gate."""
    hostile.nodes.data.clear()
    async with Gate(hostile.url) as made:
        await stage.secret("token", **{"auth-token": "t"})
        await stage.cluster("slurm", made.url)
        yield made


class Workers:
    """One NodeSet, and an operator that reconciles it."""

    def __init__(self, stage: Stage, hostile: HostileSlurmrestd, engine: NodeSetController) -> None:
        self.stage = stage
        self.hostile = hostile
        self._engine = engine
        self._key = Key(stage.namespace, "blue")
        self.replicas = 1
        self.before = ""

    async def update(self, label: str, **state: Any) -> None:
        """Ask for another revision, while the Slurm node of the first worker is in a state."""
        self.hostile.nodes.change("blue-0", **state)
        self.before = (await self.stage.pods())["blue-0"].metadata.uid
        template = {"metadata": {"labels": {"round": label}}}
        await self.stage.patch(NodeSet, "blue", {"spec": {"template": template}})

    async def updated(self) -> None:
        """Wait until the first worker has been replaced."""
        await self.stage.until(
            lambda pods: "blue-0" in pods and pods["blue-0"].metadata.uid != self.before, "the update goes on"
        )

    def background_task(self, kind: TaskKind) -> asyncio.Task[Any] | None:
        """Return the background task of a kind that is under way."""
        some = self._engine._background._tasks.get(self._key, {})
        return next((task for task, one in some.items() if one is kind), None)

    async def begun(self, kind: TaskKind) -> asyncio.Task[Any]:
        """Wait until a background task of a kind is under way, and return it."""
        await eventually(lambda: self.background_task(kind) is not None, f"to {kind.value} is under way")
        found = self.background_task(kind)
        assert found is not None
        return found

    async def grow(self) -> None:
        """Ask for one more worker, and wait until it is made; delete it, and wait until it is made again."""
        name = f"blue-{self.replicas}"
        self.replicas += 1
        await self.stage.scale(self.replicas)
        made = (await self.stage.until(lambda pods: name in pods, f"{name} is made"))[name]
        await self.stage.delete(Pod, name)
        await self.stage.until(
            lambda pods: name in pods and pods[name].metadata.uid != made.metadata.uid,
            f"{name} is made again",
        )


@asynccontextmanager
async def one_worker(stage: Stage, hostile: HostileSlurmrestd) -> AsyncIterator[Workers]:
    """Run an operator until there is one worker, of which Slurm knows all it has to."""
    made: list[NodeSetController] = []

    def build(wiring: Wiring) -> runtime.Controller:
        made.append(NodeSetController(wiring))
        return made[0].controller

    hostile.add_nodes("blue-0", "IDLE", "DYNAMIC_NORM")
    builds = (cluster.build, slurmclient.build, build)
    async with running(stage.config, stage.namespace, builds=builds):
        await stage.nodeset(replicas=1)
        await stage.ready()
        await eventually(lambda: '"podName"' in hostile.nodes["blue-0"]["comment"], "the comment is written")
        await stage.counts(slurm_idle=1)
        yield Workers(stage, hostile, made[0])


async def at_once(
    workers: Workers, kind: TaskKind, hang: Callable[[str], Awaitable[None]], gate: Gate
) -> None:
    """Fail unless workers are made while one and the same background task waits for an answer."""
    for attempt in range(ATTEMPTS):
        await hang(f"r{attempt}")
        background_task = await workers.begun(kind)
        await workers.grow()
        if not background_task.done():
            break
        gate.open()
        await workers.updated()
        await workers.stage.ready()
    else:
        raise AssertionError(f"no worker was made before a background task to {kind.value} was over")
    assert (await workers.stage.pods())["blue-0"].metadata.uid == workers.before
    gate.open()
    await workers.updated()


async def test_while_a_drain_hangs_workers_are_made(
    stage: Stage, hostile: HostileSlurmrestd, gate: Gate
) -> None:
    """A drain that slurmrestd does not answer keeps nobody from getting workers, or one back."""
    async with one_worker(stage, hostile) as workers:

        async def hang(label: str) -> None:
            gate.close("POST nodes")
            await workers.update(label, **IDLE)

        await at_once(workers, TaskKind.STATE, hang, gate)


async def test_while_a_confirmation_hangs_workers_are_made(
    stage: Stage, hostile: HostileSlurmrestd, gate: Gate
) -> None:
    """A list that slurmrestd owes before a deletion keeps nobody from getting workers; nobody is deleted."""
    async with one_worker(stage, hostile) as workers:

        async def hang(label: str) -> None:
            await workers.update(label, **BUSY)
            await stage.says(NodeSet, "blue", "JobsRunning", "Progressing")
            gate.close("GET nodes")
            await eventually(lambda: gate.waiting("GET nodes"), "a list is asked for")
            old = asyncio.get_running_loop().time() + LONGEST_SECONDS + 0.1
            await eventually(lambda: asyncio.get_running_loop().time() > old, "it takes too long to count")
            hostile.nodes.change("blue-0", **DRAINED)
            gate.let_one_in("GET nodes")

        await at_once(workers, TaskKind.ASK, hang, gate)
