"""What is said when the API server refuses to delete a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import NodeSet
from tests.support.controllers.refusing_policy import Denial

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage

NOWHERE = {"spec": {"nodeSelector": {"no": "such"}}}


async def test_a_deletion_that_is_refused_is_told(stage: Stage) -> None:
    """A worker that may not be deleted stays, the Event says why, and it goes when it may."""
    await stage.operator()
    await stage.nodeset(replicas=1, template=NOWHERE)
    await stage.until_pods("blue-0")
    async with Denial(stage.client, stage.namespace, "pods", "DELETE") as denial:
        await denial.in_force("DELETE", f"/api/v1/namespaces/{stage.namespace}/pods/blue-0")
        await stage.scale(0)
        await stage.tells("NodeSet", "Warning", "FailedDelete", "Delete")
        degraded = await stage.says(NodeSet, "blue", "ApplyFailed", "Degraded")
        assert Denial.MESSAGE in degraded.message
    await stage.until_pods()
