"""Without the finalizer that keeps a NodeSet until its workers are drained, no worker is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.controllers.nodeset.run import write_messages
from tests.support.controllers.refusing_policy import Denial

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage

WHEN = (
    "has(object.metadata.finalizers) && "
    f"object.metadata.finalizers.exists(one, one == '{wellknown.FINALIZER_DRAIN}')"
)


async def test_no_worker_is_made_unguarded(stage: Stage) -> None:
    """While the finalizer is refused no pod is made, and the condition says so; then all is made."""
    await stage.nodeset(replicas=2)
    group, plural = NodeSet.RESOURCE.group, NodeSet.RESOURCE.plural
    path = f"/apis/{NodeSet.RESOURCE.api_version}/namespaces/{stage.namespace}/{plural}/blue"
    body = {"metadata": {"finalizers": [wellknown.FINALIZER_DRAIN]}}
    async with Denial(stage.client, stage.namespace, plural, "UPDATE", group=group, when=WHEN) as denial:
        await denial.in_force("PATCH", path, body)
        await stage.operator()
        degraded = await stage.says(NodeSet, "blue", "ApplyFailed", "Degraded")
        assert Denial.MESSAGE in degraded.message
        assert write_messages.NOT_GUARDED in degraded.message
        assert await stage.pods() == {}
        await stage.tells("NodeSet", "Warning", "SyncFinalizerFailed", "SyncFinalizer")
    await stage.until_pods("blue-0", "blue-1")
    await stage.ready()
    assert wellknown.FINALIZER_DRAIN in (await stage.there(NodeSet, "blue")).metadata.finalizers
