"""Accountings on a real control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import Accounting
from slurm_operator.controllers.workload.decide.read_models import StatefulSetDetails
from slurm_operator.kube.models.kinds import Secret, Service
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.workload_namespace import Stage


async def test_difference_1_password_is_missing_and_then_rotated(stage: Stage) -> None:
    """A missing password is named; a new one reaches slurmdbd.conf and restarts slurmdbd once."""
    await stage.operator()
    await stage.keys()
    await stage.accounting()
    missing = await stage.says(Accounting, "slurm", "MissingReference")
    assert "spec.storageConfig.passwordKeyRef: Secret 'db' " in missing.message
    assert await stage.get(Service, "slurm-accounting") is not None
    assert await stage.get(StatefulSetDetails, "slurm-accounting") is None
    await stage.password("old-one")
    await stage.says(Accounting, "slurm", "Available")
    first = await stage.there(StatefulSetDetails, "slurm-accounting")
    assert first.metadata.generation == 1
    await stage.password("new-one")
    said = await stage.says(Accounting, "slurm", "Restart", "Configured")
    assert "Secret 'db'" in said.message
    assert "new-one" not in said.message
    await stage.says(Accounting, "slurm", "Available")
    config = await stage.there(Secret, "slurm-accounting")
    assert b"StoragePass=new-one" in (config.data or {})["slurmdbd.conf"]
    assert (await stage.there(StatefulSetDetails, "slurm-accounting")).metadata.generation == 2


async def test_switched_to_external_and_back(stage: Stage) -> None:
    """What an external slurmdbd does not need is removed, and made again when it is needed again."""
    await stage.operator()
    await stage.keys()
    await stage.password("p")
    await stage.accounting()
    await stage.says(Accounting, "slurm", "Available")
    external = {"external": True, "externalConfig": {"host": "dbd.example.com", "port": 6819}}
    await stage.patch(Accounting, "slurm", {"spec": external})
    said = await stage.says(Accounting, "slurm", "External")
    assert said.status == "True"

    async def gone() -> bool:
        kinds = (StatefulSetDetails, Service, Secret)
        return not any([await stage.get(kind, "slurm-accounting") for kind in kinds])

    await eventually(gone, "nothing of it is left")
    await stage.patch(Accounting, "slurm", {"spec": {"external": False}})
    await stage.says(Accounting, "slurm", "Available")


async def test_deleted_accounting_leaves_its_children_to_kubernetes(stage: Stage) -> None:
    """While an Accounting is being deleted nothing of it is touched, and it is not recreated."""
    operator = await stage.operator()
    await stage.keys()
    await stage.password("p")
    await stage.accounting()
    await stage.says(Accounting, "slurm", "Available")
    await stage.patch(Accounting, "slurm", {"metadata": {"finalizers": ["test.invalid/hold"]}})
    await stage.delete(Accounting, "slurm")
    store = operator.wiring.manager.informer(Accounting).store
    await eventually(lambda: all(one.deleting for one in store.list(stage.namespace)), "the operator knows")
    await stage.delete(Service, "slurm-accounting")
    await operator.reconcile_again(3)
    assert await stage.get(Service, "slurm-accounting") is None
    await stage.patch(Accounting, "slurm", {"metadata": {"finalizers": None}})
    await eventually(lambda: not store.list(stage.namespace), "the operator knows that it is gone")
    await operator.reconcile_again(3)
    assert await stage.get(Service, "slurm-accounting") is None
