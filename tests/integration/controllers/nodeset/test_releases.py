"""Workers of the Slinky charts 1.0, 1.1 and 1.2, migrated while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import Controller, NodeSet, RestApi
from slurm_operator.kube.models.kinds import Pod
from tests.fixtures.slinky_releases import LEFT_BEHIND
from tests.integration.controllers.nodeset.test_rest import quiet
from tests.integration.controllers.nodeset.test_takeover import Migration
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.fixtures.golden import Case
    from tests.support.controllers.kubernetes_nodes import NodePool
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd

IMAGE = "registry.invalid/slurm:new"
PROTECT = "nodeset.slinky.slurm.net/pod-protect"


@pytest.mark.usefixtures("slurm_cluster")
@pytest.mark.parametrize("case", LEFT_BEHIND, ids=lambda case: case.name)
async def test_a_migration_replaces_no_worker(
    stage: Stage, node_pool: NodePool, hostile: HostileSlurmrestd, case: Case
) -> None:
    """Workers and revisions stay as they are; then they are scaled, updated and deleted, each drained."""
    await node_pool.add("kwok-00001")
    await stage.delete(Controller, "slurm")
    migration = Migration(stage, case.name)
    before = await migration.make()
    await migration.report()
    # Slurm answers at another address here, that of the Cluster.
    await stage.delete(RestApi, "slurm")
    name = migration.nodesets[-1]
    for nodeset in migration.nodesets:
        workers = await stage.pods(nodeset)
        names = [pod.spec.hostname for pod in workers.values()]
        for one in names:
            hostile.add_nodes(one, "IDLE", "DYNAMIC_NORM")
    operator = await stage.operator()
    for nodeset in migration.nodesets:
        await stage.ready(nodeset)
    await quiet(stage, operator)
    after = (await stage.client.list_all(Pod, stage.namespace)).items
    assert {pod.metadata.name: pod.metadata.uid for pod in after} == before
    assert all(pod.metadata.labels[PROTECT] == "true" for pod in after)
    revisions = {one.metadata.name for one in await stage.revisions()}
    assert revisions == case.made_names("ControllerRevision")
    status = await stage.status(name)
    assert status.updated_replicas == status.replicas

    more = status.replicas + 1
    await stage.scale(more, name)
    wide = await stage.until_pods(*(f"{name}-{ordinal}" for ordinal in range(more)), nodeset=name)
    hostile.add_nodes(wide[f"{name}-{more - 1}"].spec.hostname, "IDLE", "DYNAMIC_NORM")
    await stage.counts(name, slurm_idle=more)
    await stage.scale(1, name)
    await stage.until_pods(f"{name}-0", nodeset=name)
    assert (await stage.pods(name))[f"{name}-0"].metadata.uid == before[f"{name}-0"]
    await stage.patch(NodeSet, name, {"spec": {"slurmd": {"image": IMAGE}}})

    async def updated() -> bool:
        pods = await stage.pods(name)
        return {pod.metadata.name for pod in pods.values() if pod.metadata.uid not in before.values()} == {
            f"{name}-0"
        }

    await eventually(updated, "the worker is replaced by one of the new revision")
    await stage.delete(NodeSet, name)

    async def gone() -> bool:
        return await stage.get(NodeSet, name) is None and not await stage.pods(name)

    await eventually(gone, "the NodeSet is gone")
    left = (await stage.client.list_all(Pod, stage.namespace)).items
    assert {pod.metadata.uid for pod in left} == {
        before[pod] for pod in before if not pod.startswith(f"{name}-")
    }
