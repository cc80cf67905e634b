"""The PodDisruptionBudget of the workers cannot be applied, on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import NodeSet
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.kube.models.kinds import ConfigMap, PodDisruptionBudget
from tests.support.controllers.refusing_policy import Denial

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage

NAME = "slurm-workers-pdb-slurm"
NOWHERE = {"spec": {"nodeSelector": {"no": "such"}}}


async def test_no_worker_is_made_while_others_have_the_name_of_the_budget(stage: Stage) -> None:
    """A budget of somebody else is left alone; the condition names it, and workers come when it is gone."""
    owner = await stage.client.create(
        ConfigMap, {"metadata": {"name": "owner", "namespace": stage.namespace}}
    )
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner.metadata.uid,
        "controller": True,
    }
    body = {
        "metadata": {"name": NAME, "namespace": stage.namespace, "ownerReferences": [reference]},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "other"}}},
    }
    await stage.client.create(PodDisruptionBudget, body)
    await stage.operator()
    await stage.nodeset(replicas=1, template=NOWHERE)
    degraded = await stage.says(NodeSet, "blue", "NameTaken", "Degraded")
    taken = write_messages.child_taken(f"PodDisruptionBudget {NAME!r}", "ConfigMap 'owner'")
    assert degraded.message == f"{taken}; {messages.budget_missing(NAME)}"
    await stage.tells("NodeSet", "Warning", "BudgetMissing", "Info")
    assert await stage.pods() == {}
    await stage.delete(PodDisruptionBudget, NAME)
    await stage.until_pods("blue-0")


async def test_no_worker_is_made_while_the_budget_is_refused(stage: Stage) -> None:
    """A webhook or quota refuses the budget: nothing is made, workers that exist stay, and go if asked."""
    await stage.operator()
    await stage.nodeset(replicas=1, template=NOWHERE)
    await stage.until_pods("blue-0")
    plural = PodDisruptionBudget.RESOURCE.plural
    path = f"/apis/policy/v1/namespaces/{stage.namespace}/{plural}"
    body = {"metadata": {"name": "try"}, "spec": {"maxUnavailable": 1}}
    async with Denial(stage.client, stage.namespace, plural, "CREATE", "UPDATE", group="policy") as denial:
        await denial.in_force("POST", path, body)
        await stage.delete(PodDisruptionBudget, NAME)
        degraded = await stage.says(NodeSet, "blue", "ApplyFailed", "Degraded")
        assert Denial.MESSAGE in degraded.message
        await stage.scale(2)
        await stage.tells("NodeSet", "Warning", "BudgetMissing", "Info")
        assert {*await stage.pods()} == {"blue-0"}
        await stage.scale(0)
        await stage.until_pods()
        await stage.scale(1)
    await stage.until_pods("blue-0")
