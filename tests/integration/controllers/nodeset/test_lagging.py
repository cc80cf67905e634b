"""While the caches show nothing new: what was written once is not written again."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from slurm_operator.api import Controller, NodeSet
from slurm_operator.api.shared import Condition
from slurm_operator.controllers.nodeset.controller import NodeSetController
from slurm_operator.controllers.nodeset.run.report import FIELD_MANAGER
from slurm_operator.controllers.nodeset.run.template import _owner
from slurm_operator.flags import Parser, add_manager_flags, manager_options, parse
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.manifests.revisions import HASH_LABEL
from slurm_operator.kube.models.kinds import ControllerRevision, Pod
from slurm_operator.kube.runtime.manager import Manager
from slurm_operator.kube.runtime.revision_history import new_controller_revision
from slurm_operator.objects import slurmd_revision
from slurm_operator.process import wire
from tests.support.controllers.workload_namespace import Operator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.kube.models.meta import Key
    from tests.support.controllers.nodeset_namespace import Stage


NO_WINDOW = Condition(
    type="ReservationCreated",
    status="False",
    reason="NotExists",
    message="No maintenance window exists",
    last_transition_time=datetime(2026, 1, 1, tzinfo=UTC),
)


class Frozen(Operator):
    """A controller whose caches show what is put into them, and nothing else."""

    engine: NodeSetController

    async def reconcile(self, key: Key, times: int = 3) -> Counter[str]:
        """Reconcile a NodeSet some times; return what has been written, statuses aside."""
        for _ in range(times):
            await self.engine.reconcile(key)
        return Counter(write for write in self.writes if write != "apply nodesets/status")


@pytest.fixture
async def frozen(stage: Stage) -> AsyncIterator[Frozen]:
    """Hand out a controller of NodeSets that knows the Controller, and hears of nothing."""
    async with standing_still(stage) as made:
        caches = made.engine._caches
        caches.controllers.store.put(await stage.there(Controller, "slurm"))
        yield made


@asynccontextmanager
async def standing_still(stage: Stage) -> AsyncIterator[Frozen]:
    """Wire a controller without its informers; what it reads by name it does read."""
    parser = Parser(prog="manager", usage="", description="")
    add_manager_flags(parser)
    options = manager_options(parse(parser, [f"--namespaces={stage.namespace}"]))
    requests: list[Any] = []
    async with Client(stage.config, observe=requests.append) as client:
        manager = Manager(client, namespaces=options.namespaces)
        wiring = wire(manager, client, options, CollectorRegistry())
        engine = NodeSetController(wiring)
        made = Frozen(wiring, [engine.controller], requests)
        made.engine = engine
        tasks = [asyncio.create_task(one.run()) for one in (wiring.secrets, engine._caches.services)]
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def test_a_new_nodeset_is_made_once(stage: Stage, frozen: Frozen) -> None:
    """Finalizer, revision, budget, claims and pods are written once, however late the caches are."""
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    await stage.nodeset(replicas=2, volumeClaimTemplates=[claim])
    live = await stage.there(NodeSet, "blue")
    frozen.engine._caches.nodesets.store.put(live)
    assert await frozen.reconcile(live.key) == {
        "patch nodesets": 1,
        "create controllerrevisions": 1,
        "apply poddisruptionbudgets": 1,
        "apply services": 1,
        "create persistentvolumeclaims": 2,
        "create pods": 2,
    }


async def test_what_another_operator_made_is_taken_over_once(stage: Stage, frozen: Frozen) -> None:
    """A revision gets its labels once, an orphan its owner once, also when the status says more by then."""
    await stage.nodeset(replicas=1)
    live = await stage.there(NodeSet, "blue")
    made = new_controller_revision(_owner(live), slurmd_revision.revision_data(live), 1, 0)
    metadata = made["metadata"]
    metadata["labels"] = {HASH_LABEL: metadata["labels"][HASH_LABEL]}
    revision = await stage.client.create(ControllerRevision, made)
    container = {"name": "slurmd", "image": "registry.invalid/slurm:1"}
    labels = {"app.kubernetes.io/name": "slurmd", "app.kubernetes.io/instance": "blue"}
    orphan = await stage.client.create(
        Pod,
        {
            "metadata": {"name": "blue-0", "namespace": stage.namespace, "labels": labels},
            # So that nobody else writes to it.
            "spec": {"containers": [container], "schedulingGates": [{"name": "tests/stays"}]},
        },
    )
    caches = frozen.engine._caches
    caches.nodesets.store.put(live)
    caches.revisions.store.put(revision)
    caches.pods.store.put(orphan)
    assert await frozen.reconcile(live.key) == {
        "patch nodesets": 1,
        "patch controllerrevisions": 1,
        "patch pods": 1,
        "apply poddisruptionbudgets": 1,
        "apply services": 1,
    }
    assert (await stage.status()).node_set_hash == metadata["labels"][HASH_LABEL]


async def test_a_status_of_the_past_replaces_none(stage: Stage) -> None:
    """An operator that restarts with an old list does not drop a condition that came after it."""
    await stage.nodeset(replicas=0)
    async with standing_still(stage) as first:
        caches = first.engine._caches
        caches.controllers.store.put(await stage.there(Controller, "slurm"))
        caches.nodesets.store.put(await stage.there(NodeSet, "blue"))
        await first.engine.reconcile((await stage.there(NodeSet, "blue")).key)
    past = await stage.there(NodeSet, "blue")
    told = msgspec.structs.replace(past.status, conditions=(*past.status.conditions, NO_WINDOW))
    status = msgspec.to_builtins(told)
    body = {"metadata": {"name": "blue", "namespace": stage.namespace}, "status": status}
    await stage.client.apply(NodeSet, body, field_manager=FIELD_MANAGER, subresource="status")
    await stage.patch(NodeSet, "blue", {"spec": {"replicas": 1}})
    async with standing_still(stage) as restarted:
        caches = restarted.engine._caches
        caches.controllers.store.put(await stage.there(Controller, "slurm"))
        # As the past would be with another status: there is something to write.
        caches.nodesets.store.put(
            msgspec.structs.replace(past, status=msgspec.structs.replace(past.status, replicas=7))
        )
        again = await restarted.engine.reconcile(past.key)
        assert again is not None
        assert NO_WINDOW in (await stage.status()).conditions
        caches.nodesets.store.put(await stage.there(NodeSet, "blue"))
        await restarted.engine.reconcile(past.key)
    found = await stage.status()
    assert found.observed_generation == past.metadata.generation + 1
    assert "ReservationCreated" in {one.type for one in found.conditions}
