"""What cannot be read, does not start, or is not where it is looked for: said, and never taken for gone."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import Controller, NodeSet
from slurm_operator.controllers.nodeset.controller import NodeSetController
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.observation import EVERYWHERE, ControllerState, Revision
from slurm_operator.controllers.nodeset.run.observe import ReconcileInputs
from slurm_operator.controllers.nodeset.run.template import ControllerRef
from slurm_operator.controllers.nodeset.run.watches import WORKERS
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import Key
from tests.integration.controllers.nodeset.test_rest import quiet
from tests.support.controllers.workload_namespace import running
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.runtime import controller as runtime
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.controllers.workload_namespace import Operator
    from tests.support.slurm.hostile_server import HostileSlurmrestd

NOWHERE = {"spec": {"nodeSelector": {"no": "such"}}}


async def wake(stage: Stage) -> None:
    """Have the NodeSet reconciled, as any event would; it may be gone, after a reconcile without an event."""
    with contextlib.suppress(NotFound):
        await stage.patch(NodeSet, "blue", {"metadata": {"labels": {"look": "again"}}})


async def test_while_a_pod_cannot_be_read_nobody_is_counted(stage: Stage) -> None:
    """A pod that exists and cannot be read may be a worker: none is made or removed until it is known."""
    operator = await stage.operator()
    await stage.nodeset(replicas=1)
    await stage.until_pods("blue-0")
    await stage.ready()
    store = operator.wiring.manager.informer(Pod, labels=WORKERS).store
    store.mark_unreadable(Key(stage.namespace, "blue-1"), "of a later version")
    await stage.scale(2)
    await stage.says(NodeSet, "blue", "CacheBehind", "Progressing")
    assert {*await stage.pods()} == {"blue-0"}
    store.remove(Key(stage.namespace, "blue-1"))
    await wake(stage)
    await stage.until_pods("blue-0", "blue-1")
    await stage.ready()


async def test_a_controller_that_cannot_be_read_is_not_gone(stage: Stage) -> None:
    """A deleted NodeSet goes at once if its Controller is gone, but not if that only cannot be read."""
    operator = await stage.operator()
    controllers = operator.wiring.manager.informer(Controller)
    await eventually(lambda: controllers.synced, "the cache is filled")
    store, later = controllers.store, Key(stage.namespace, "later")
    store.mark_unreadable(later, "of a later version")
    await stage.nodeset(controller="later", replicas=1)
    degraded = await stage.says(NodeSet, "blue", "ReferenceUnreadable", "Degraded")
    assert "Controller 'later'" in degraded.message
    await stage.delete(NodeSet, "blue")
    await stage.says(NodeSet, "blue", "Deleting")
    store.remove(later)
    await wake(stage)

    async def gone() -> bool:
        return await stage.get(NodeSet, "blue") is None

    await eventually(gone, "the NodeSet is gone")


async def test_pods_that_do_not_start_are_a_trouble(stage: Stage) -> None:
    """A pod for which there has been no Kubernetes node for a while is named, with the scheduler's words."""
    await stage.operator()
    await stage.nodeset(replicas=1, template=NOWHERE)
    await stage.until(
        lambda pods: bool(pods) and pods["blue-0"].condition("PodScheduled"), "the scheduler has given up"
    )
    # Nobody waits for half a minute here: the scheduler keeps the moment of a condition that stays.
    long_ago = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    body = {"status": {"conditions": [long_ago]}}
    await stage.client.patch(
        Pod, "blue-0", stage.namespace, body, type=PatchType.STRATEGIC, subresource="status"
    )
    degraded = await stage.says(NodeSet, "blue", "PodsFailing", "Degraded")
    assert messages.pods_not_running(1, "blue-0", "") in degraded.message
    assert "0/3 nodes are available" in degraded.message
    await stage.tells("NodeSet", "Warning", "SyncFailed", "Sync")
    await stage.scale(0)
    await stage.until_pods()
    await stage.says(NodeSet, "blue", "AsExpected", "Degraded")


@pytest.mark.usefixtures("slurm_cluster")
async def test_a_nodeset_does_not_go_with_a_pod_that_nobody_sees(
    stage: Stage, hostile: HostileSlurmrestd
) -> None:
    """A worker that lost its labels would be deleted with its owner: the NodeSet stays, and names it."""
    hostile.add_nodes("blue-0", "IDLE", "DYNAMIC_NORM")
    await stage.operator()
    await stage.nodeset(replicas=1)
    await stage.until_pods("blue-0")
    await stage.ready()
    await stage.patch(Pod, "blue-0", {"metadata": {"labels": {"app.kubernetes.io/name": "mine"}}})
    await stage.delete(NodeSet, "blue")
    degraded = await stage.says(NodeSet, "blue", "PodsLeft", "Degraded")
    assert "blue-0" in degraded.message
    assert not (await stage.there(Pod, "blue-0")).deleting
    await stage.patch(Pod, "blue-0", {"metadata": {"ownerReferences": None}})
    # What has no label of ours sends no event.
    await wake(stage)

    async def gone() -> bool:
        return await stage.get(NodeSet, "blue") is None

    await eventually(gone, "the NodeSet is gone")
    assert not (await stage.there(Pod, "blue-0")).deleting


@asynccontextmanager
async def at_rest(stage: Stage) -> AsyncIterator[tuple[NodeSetController, Operator]]:
    """Run the controller of NodeSets until one worker is there and nothing is left to do."""
    made: list[NodeSetController] = []

    def build(wiring: Wiring) -> runtime.Controller:
        made.append(NodeSetController(wiring))
        return made[0].controller

    async with running(stage.config, stage.namespace, builds=(build,)) as operator:
        await stage.nodeset(replicas=1)
        await stage.ready()
        await quiet(stage, operator)
        yield made[0], operator


async def test_a_nodeset_that_has_gone_is_left_alone(stage: Stage) -> None:
    """One that ends between two reconciles gets no other, and what it left is not its any more."""
    async with at_rest(stage) as (engine, operator):
        key, live = Key(stage.namespace, "blue"), await stage.there(NodeSet, "blue")
        state = engine._states.of(key, live.metadata.uid)
        reference = ControllerRef(await stage.there(Controller, "slurm"), ControllerState.STAYS)
        inputs = ReconcileInputs(live, reference, Revision("", frozenset()), EVERYWHERE, {}, certain=True)
        assert [one.name for one in (await engine._observe_again(inputs, state)).workers] == ["blue-0"]
        state.pace.cost, state.pace.ended = 60.0, asyncio.get_running_loop().time()
        ended = state.pace.ended
        waiting = asyncio.create_task(engine.reconcile(key))
        await asyncio.sleep(0)
        operator.wiring.manager.informer(NodeSet).store.remove(key)
        assert await waiting is None
        assert state.pace.ended == ended
        assert (await engine._observe_again(inputs, state)).workers == ()


async def test_a_pass_that_is_cut_off_leaves_its_notes_behind(stage: Stage) -> None:
    """A thread that decides cannot be cancelled, so the next reconcile must not share a memo with it."""
    async with at_rest(stage) as (engine, _):
        key, live = Key(stage.namespace, "blue"), await stage.there(NodeSet, "blue")
        state = engine._states.of(key, live.metadata.uid)
        state.pace.cost, state.pace.ended, memo = 0.0, 0.0, state.read.memo
        cut = asyncio.create_task(engine.reconcile(key))
        await asyncio.sleep(0)
        cut.cancel()
        await asyncio.wait({cut})
        assert cut.cancelled()
        assert state.read.memo is not memo
