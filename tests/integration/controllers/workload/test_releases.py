"""Clusters of the Slinky charts 1.0, 1.1 and 1.2, migrated with everything in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import Accounting, Controller, LoginSet, RestApi, wellknown
from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails, StatefulSetDetails
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from tests.fixtures.slinky_releases import LEFT_BEHIND
from tests.integration.controllers.workload.test_takeover import (
    all_run,
    left_behind,
    pods,
    templates,
    workloads,
)
from tests.support.processes import eventually
from tests.support.rendering_comparison import differences

if TYPE_CHECKING:
    from tests.fixtures.golden import Case
    from tests.support.controllers.workload_namespace import Operator, Stage

IMAGE = "registry.invalid/slurm:new"
SLURMCTLD = "StatefulSet slurm-controller"


def _login(case: Case) -> str:
    (name,) = (item["metadata"]["name"] for item in case.inputs if item["kind"] == "LoginSet")
    return str(name)


async def _migrated(stage: Stage, operator: Operator, case: Case) -> None:
    """Wait until every object says that it is ready, and nothing is left to write."""
    kinds: list[tuple[type[Any], str]] = [
        (Controller, "slurm"), (Accounting, "slurm"), (RestApi, "slurm"), (LoginSet, _login(case)),
    ]  # fmt: skip
    for kind, name in kinds:
        await stage.says(kind, name, "Available")
    await eventually(operator.rests, "nothing is left to write")


async def _files(stage: Stage) -> tuple[Any, Any]:
    config = await stage.there(ConfigMap, "slurm-config")
    return config.data, (await stage.there(Secret, "slurm-accounting")).data


def _can_go_back(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Check that the Slinky operator finds its objects again, and can change each of them."""
    assert theirs.keys() <= ours.keys()
    assert {*ours} - {*theirs} == {"Service slurm-controller-internal"}
    for name, item in theirs.items():
        now, metadata = ours[name], item["metadata"]
        assert now["metadata"]["ownerReferences"] == metadata["ownerReferences"]
        assert metadata["labels"].items() <= now["metadata"]["labels"].items()
        assert metadata.get("annotations", {}).items() <= now["metadata"].get("annotations", {}).items()
        assert "finalizers" not in now["metadata"]
        assert now.get("immutable") == item.get("immutable")
        if name.startswith(("StatefulSet", "Deployment")):
            assert now["spec"] == item["spec"]
        if name.startswith(("ConfigMap", "Secret")):
            assert now["data"] == item["data"]


@pytest.mark.parametrize("case", LEFT_BEHIND, ids=lambda case: case.name)
async def test_a_migration_restarts_no_daemon(stage: Stage, case: Case) -> None:
    """No pod template and no file changes; then updates, scaling and deletion work, with one restart each."""
    await left_behind(stage, case)
    await eventually(lambda: all_run(stage), "everything runs")
    before, running, written = await templates(stage), await pods(stage), await _files(stage)
    theirs = await stage.children()
    assert before
    async with stage.for_a_while() as operator:
        await _migrated(stage, operator, case)
    operator = await stage.operator()
    await _migrated(stage, operator, case)
    after = await templates(stage)
    assert {name: [*differences(after[name], before[name])] for name in before} == {
        name: [] for name in before
    }
    assert after == before
    assert await pods(stage) == running
    assert await _files(stage) == written
    _can_go_back(theirs, await stage.children())
    said = await stage.condition(Controller, "slurm", "Configured")
    assert said is not None
    assert said.reason == "CorrectionsPending"
    assert "SlurmctldHost=" in said.message

    await stage.patch(LoginSet, _login(case), {"spec": {"replicas": 2}})
    await stage.patch(Controller, "slurm", {"spec": {"slurmctld": {"image": IMAGE}}})

    async def updated() -> bool:
        found = await stage.get(StatefulSetDetails, "slurm-controller")
        return found is not None and found.spec.service_name == "slurm-controller-internal"

    await eventually(updated, "the StatefulSet has its new Service")
    await _migrated(stage, operator, case)
    await eventually(lambda: all_run(stage), "everything runs")
    now, later = await pods(stage), await workloads(stage)
    assert {pod for pod in running if now.get(pod) != running[pod]} == {"slurm-controller-0"}
    assert later[f"Deployment {_login(case)}"]["spec"]["template"] == before[f"Deployment {_login(case)}"]
    metadata = later[SLURMCTLD]["spec"]["template"]["metadata"]
    assert metadata["labels"][wellknown.LABEL_CONTROLLER_ACTIVE] == "true"
    config, _ = await _files(stage)
    assert "SlurmctldAddr=slurm-controller." in config["slurm.conf"]
    assert "jwt_hs256" not in config["slurm.conf"]

    await stage.delete(RestApi, "slurm")

    async def gone() -> bool:
        return await stage.get(DeploymentDetails, "slurm-restapi") is None

    await eventually(gone, "what belongs to a deleted object goes with it")
    assert await stage.get(StatefulSetDetails, "slurm-controller") is not None
