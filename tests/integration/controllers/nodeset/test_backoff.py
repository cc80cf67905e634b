"""A worker whose pods keep ending, on a real API server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from slurm_operator.api import NodeSet
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.models.kinds import Pod

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage

NOWHERE = {"spec": {"nodeSelector": {"no": "such"}}}
FAILURES = "nodeset.slinky.slurm.net/pod-failures"


async def test_a_worker_that_keeps_failing_is_counted_across_a_restart(stage: Stage) -> None:
    """Each pod of a worker says how many ended before it, so that a new process goes on with the pause."""
    await stage.nodeset(replicas=1, template=NOWHERE)

    async def fail(expected: str | None) -> None:
        pods = await stage.until(bool, "the worker is there")
        pod = pods["blue-0"]
        assert pod.metadata.annotations.get(FAILURES) == expected
        await stage.client.patch(
            Pod,
            "blue-0",
            stage.namespace,
            {"status": {"phase": "Failed"}},
            type=PatchType.STRATEGIC,
            subresource="status",
        )

        def replaced(found: dict[str, Pod]) -> bool:
            return "blue-0" in found and found["blue-0"].metadata.uid != pod.metadata.uid

        await stage.until(replaced, "its next pod is there")

    async with stage.for_a_while():
        await fail(None)
        await fail("1")
    async with stage.for_a_while():
        await fail("2")
        pods = await stage.until_pods("blue-0")
        assert pods["blue-0"].metadata.annotations[FAILURES] == "3"
        annotation = {"metadata": {"annotations": {FAILURES: "9"}}}
        await stage.client.patch(Pod, "blue-0", stage.namespace, annotation, type=PatchType.MERGE)
        await stage.client.patch(
            Pod,
            "blue-0",
            stage.namespace,
            {"status": {"phase": "Failed"}},
            type=PatchType.STRATEGIC,
            subresource="status",
        )
        waiting = await stage.says(NodeSet, "blue", "BackingOff", "Progressing")
        unknown = messages.backing_off("blue-0", 10, datetime.now(UTC)).rpartition(" ")[0]
        assert f"; {unknown} 20" in waiting.message
