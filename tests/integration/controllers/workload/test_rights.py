"""What happens where the operator may not read or write something."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from slurm_operator.api import RestApi
from slurm_operator.controllers import restapi
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Service
from tests.support.controllers.workload_namespace import running
from tests.support.service_accounts import kubeconfig_with_token, service_account

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from tests.support.controllers.workload_namespace import Stage

KINDS = ("controllers", "accountings", "restapis")


def allow(box: Box, namespace: str, role: str, *rules: str) -> None:
    """Give the operator one more right."""
    inside = partial(box.kubectl, "--namespace", namespace, "create")
    inside("role", role, *rules)
    inside("rolebinding", role, f"--role={role}", f"--serviceaccount={namespace}:operator")


async def test_rights_that_come_one_by_one(stage: Stage, slinky_box: Box, tmp_path: Path) -> None:
    """A Secret that may not be read is unknown, a write that is refused is named, and each right heals."""
    grant = partial(allow, slinky_box, stage.namespace)
    token = service_account(slinky_box, stage.namespace, "operator")
    config = load_config(str(kubeconfig_with_token(slinky_box, tmp_path / "kubeconfig", token)))
    ours = [f"--resource={kind}.slinky.slurm.net" for kind in KINDS]
    grant("kinds", "--verb=get,list,watch", *ours)
    grant("status", "--verb=patch", "--resource=restapis.slinky.slurm.net/status")
    children = ("--resource=services", "--resource=deployments.apps", "--resource=pods")
    grant("children", "--verb=get,list,watch", *children)
    grant("events", "--verb=create,patch", "--resource=events.events.k8s.io")
    await stage.keys()
    await stage.controller()
    await stage.restapi()
    async with running(config, stage.namespace, builds=(restapi.build,)):
        unknown = await stage.says(RestApi, "slurm", "ReferenceUnreadable")
        assert unknown.status == "Unknown"
        assert "Forbidden" in unknown.message
        assert await stage.get(Service, "slurm-restapi") is None
        grant("keys", "--verb=list,watch", "--resource=secrets", "--resource-name=keys")
        refused = await stage.says(RestApi, "slurm", "ApplyFailed")
        assert refused.status == "False"
        assert "create Service 'slurm-restapi'" in refused.message
        assert "create Deployment 'slurm-restapi'" in refused.message
        grant("writes", "--verb=create,patch", "--resource=services", "--resource=deployments.apps")
        await stage.says(RestApi, "slurm", "Available")
    kinds = {(kind, reason) for kind, type_, reason, _ in await stage.events() if type_ == "Warning"}
    assert ("RestApi", "CreateFailed") in kinds
