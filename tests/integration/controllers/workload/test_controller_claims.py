"""The volume with slurmctld's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import Controller
from slurm_operator.controllers.workload.decide.read_models import (
    StatefulSetDetails,
    StorageClass,
    VolumeClaim,
)
from tests.support.controllers.volumes import storage_class, volume
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.workload_namespace import Operator, Stage

CLAIM = "statesave-slurm-controller-0"


async def with_volume(stage: Stage, *, grows: bool) -> Operator:
    """Run a slurmctld whose claim is bound."""
    operator = await stage.operator()
    name = await storage_class(stage, grows=grows)
    await volume(stage, CLAIM, class_name=name)
    await stage.keys()
    await stage.controller(persistence={"enabled": True, "storageClassName": name})
    await stage.says(Controller, "slurm", "Available")
    return operator


async def requested(stage: Stage) -> str:
    return (await stage.there(VolumeClaim, CLAIM)).requested


async def ask_for(stage: Stage, storage: str) -> None:
    resources = {"requests": {"storage": storage}}
    await stage.patch(Controller, "slurm", {"spec": {"persistence": {"resources": resources}}})


async def test_difference_7_default_claim(stage: Stage) -> None:
    """`persistence.enabled` without claim fields gets a claim of 4Gi that one node can mount."""
    await stage.operator()
    await stage.keys()
    await stage.controller(persistence={"enabled": True})
    await eventually(lambda: stage.get(StatefulSetDetails, "slurm-controller"), "the StatefulSet is made")
    await eventually(lambda: stage.get(VolumeClaim, CLAIM), "its claim is made")
    claim = await stage.there(VolumeClaim, CLAIM)
    assert (claim.requested, claim.spec.access_modes) == ("4Gi", ("ReadWriteOnce",))


async def test_difference_7_claim_grows(stage: Stage) -> None:
    """More space is asked for in the claim itself, and nothing restarts for it."""
    operator = await with_volume(stage, grows=True)
    await ask_for(stage, "20Gi")
    await eventually(lambda: _is(stage, "20Gi"), "the claim asks for more")
    await stage.says(Controller, "slurm", "AsExpected", "Degraded")
    await stage.says(Controller, "slurm", "Available")
    found = await stage.there(StatefulSetDetails, "slurm-controller")
    assert found.metadata.generation == 1
    await eventually(operator.rests, "nothing is left to write")


async def _is(stage: Stage, storage: str) -> bool:
    return await requested(stage) == storage


async def test_difference_7_claim_that_cannot_grow(stage: Stage) -> None:
    """Where the storage class forbids it, a condition says so, and nothing is sent in vain."""
    operator = await with_volume(stage, grows=False)
    await ask_for(stage, "20Gi")
    said = await stage.says(Controller, "slurm", "ImmutableField", "Degraded")
    assert "spec.persistence.resources" in said.message
    assert "allowVolumeExpansion" in said.message
    assert (await stage.says(Controller, "slurm", "Available")).status == "True"
    await eventually(operator.rests, "nothing is left to write")
    assert await requested(stage) == "4Gi"
    await stage.patch(StorageClass, f"{stage.namespace}-fixed", {"allowVolumeExpansion": True})
    await operator.reconcile_again()
    await eventually(lambda: _is(stage, "20Gi"), "the claim asks for more")
    await stage.says(Controller, "slurm", "AsExpected", "Degraded")


async def test_difference_7_claim_that_cannot_be_changed(stage: Stage) -> None:
    """Wishes that no claim can fulfil are a condition, and everything else is still applied."""
    await with_volume(stage, grows=True)
    await ask_for(stage, "1Gi")
    said = await stage.says(Controller, "slurm", "ImmutableField", "Degraded")
    assert "spec.persistence.resources: " in said.message
    await stage.patch(Controller, "slurm", {"spec": {"extraConf": "SlurmctldDebug=debug"}})
    await stage.says(Controller, "slurm", "Restart", "Configured")
    await stage.says(Controller, "slurm", "Available")
    await stage.patch(
        Controller,
        "slurm",
        {"spec": {"persistence": {"resources": None, "accessModes": ["ReadWriteMany"]}}},
    )

    async def names_the_modes() -> bool:
        found = await stage.condition(Controller, "slurm", "Degraded")
        return found is not None and "spec.persistence.accessModes" in found.message

    await eventually(names_the_modes, "the access modes are named")
    await stage.patch(Controller, "slurm", {"spec": {"persistence": {"enabled": False}}})

    async def names_the_volume() -> bool:
        found = await stage.condition(Controller, "slurm", "Degraded")
        return found is not None and "spec.persistence: " in found.message

    await eventually(names_the_volume, "the volume is named")
