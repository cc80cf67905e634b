"""What is said when the API server refuses a change or a deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import Controller
from slurm_operator.kube.models.kinds import Service
from tests.support.controllers.refusing_policy import Denial
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.workload_namespace import Stage


async def test_a_change_and_a_deletion_that_are_refused_are_told(stage: Stage) -> None:
    """A Service that may be neither changed nor deleted is named in Events, and then both happen."""
    await stage.operator()
    await stage.keys()
    await stage.config_map("gres", gres__conf="Name=gpu")
    shared = {"enabled": True, "existingClaim": "shared"}
    await stage.controller(ha={"enabled": True, "backups": 1}, persistence=shared)
    own = "slurm-controller-0"
    await eventually(lambda: stage.get(Service, own), "the Service of one slurmctld")
    path = f"/api/v1/namespaces/{stage.namespace}/services/{own}"
    async with Denial(stage.client, stage.namespace, "services", "UPDATE", "DELETE") as denial:
        await denial.in_force("DELETE", path)
        spec = {"ha": None, "service": {"port": 7017}, "persistence": {"enabled": False}}
        await stage.patch(Controller, "slurm", {"spec": spec})
        await stage.tells("Controller", "Warning", "PatchFailed", "Patch")
        await stage.tells("Controller", "Warning", "DeleteFailed", "Delete")
        refused = await stage.says(Controller, "slurm", "ApplyFailed", "Degraded")
        assert Denial.MESSAGE in refused.message

    async def gone() -> bool:
        return await stage.get(Service, own) is None

    await eventually(gone, "the Service is deleted")
