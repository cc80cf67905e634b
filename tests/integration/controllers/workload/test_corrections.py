"""Configuration of the Slinky operator that ours corrects: announced, and applied with the next change."""

from __future__ import annotations

import base64
import copy
from typing import TYPE_CHECKING, Any

from slurm_operator.api import Accounting, Controller, NodeSet, wellknown
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from tests.fixtures.golden import CASES, Case
from tests.integration.controllers.workload.test_takeover import (
    all_run,
    left_behind,
    pods,
    taken_over,
    templates,
)
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.workload_namespace import Stage

PASSWORD = "two words#1"  # noqa: S105 - of a database that does not exist
PORT = 7000
PENDING = "CorrectionsPending"
CONSENT = "slinky.slurm.net/apply-corrections"
IMAGE = "registry.invalid/slurm:new"


def _corrected_case() -> Case:
    """Return a recorded case with a port and a password that the Slinky operator writes wrongly."""
    (recorded,) = (case for case in CASES if case.name == "02-accounting")
    case = copy.deepcopy(recorded)
    for item in case.inputs:
        if item["kind"] == "Accounting":
            item["spec"]["service"] = {"port": PORT}
        if item["metadata"]["name"] == "db":
            item["data"]["password"] = base64.b64encode(PASSWORD.encode()).decode()
    for item in case.made:
        if item["kind"] == "Service" and item["metadata"]["name"] == "acct-accounting":
            item["spec"]["ports"][0]["port"] = PORT
        if item["kind"] == "Secret" and "slurmdbd.conf" in item["data"]:
            text = base64.b64decode(item["data"]["slurmdbd.conf"]).decode()
            text = text.replace("StoragePass=s3cret\n", f"StoragePass={PASSWORD}\n")
            item["data"]["slurmdbd.conf"] = base64.b64encode(text.encode()).decode()
    return case


async def _files(stage: Stage) -> tuple[str, str]:
    """Return slurm.conf and slurmdbd.conf as they are written."""
    config, secret = (
        await stage.there(ConfigMap, "slurm-config"),
        await stage.there(Secret, "acct-accounting"),
    )
    assert config.data is not None
    assert secret.data is not None
    return config.data["slurm.conf"], secret.data["slurmdbd.conf"].decode()


async def _message(stage: Stage, kind: type[Any], name: str) -> str:
    said = await stage.condition(kind, name, "Configured")
    assert said is not None
    assert said.reason == PENDING
    message: str = said.message
    return message


async def test_corrections_wait_for_a_change_or_for_consent(stage: Stage) -> None:
    """No daemon restarts for them; the conditions and events name them, and the way to have them."""
    await left_behind(stage, _corrected_case())
    await eventually(lambda: all_run(stage), "everything runs")
    before, running, written = await templates(stage), await pods(stage), await _files(stage)
    async with stage.for_a_while() as operator:
        await taken_over(stage, operator)
    operator = await stage.operator()
    await taken_over(stage, operator)
    assert await templates(stage) == before
    assert await pods(stage) == running
    assert await _files(stage) == written
    said = await _message(stage, Controller, "slurm")
    assert f"AccountingStoragePort=6819 becomes AccountingStoragePort={PORT}" in said
    assert f"annotate controllers.slinky.slurm.net slurm {CONSENT}=true" in said
    said = await _message(stage, Accounting, "acct")
    assert "StoragePass" in said
    assert PASSWORD not in said
    told = await stage.events()
    assert {(kind, "Warning", PENDING, "Sync") for kind in ("Controller", "Accounting")} <= told

    consent = {"metadata": {"annotations": {CONSENT: "true"}}}
    await stage.patch(Accounting, "acct", consent)
    await stage.says(Accounting, "acct", "Restart", "Configured")
    await taken_over(stage, operator)
    await stage.patch(Controller, "slurm", {"spec": {"slurmctld": {"image": IMAGE}}})
    await stage.says(Controller, "slurm", "Restart", "Configured")
    await taken_over(stage, operator)
    await eventually(lambda: all_run(stage), "everything runs")
    slurm, slurmdbd = await _files(stage)
    assert f"AccountingStoragePort={PORT}\n" in slurm
    assert f'StoragePass="{PASSWORD.replace("#", chr(92) + "#")}"\n' in slurmdbd
    after = await templates(stage)
    name = "StatefulSet slurm-controller"
    assert after[name]["metadata"]["labels"][wellknown.LABEL_CONTROLLER_ACTIVE] == "true"
    assert after["Deployment slurm-restapi"] == before["Deployment slurm-restapi"]
    now = await pods(stage)
    assert {pod for pod in running if now.get(pod) != running[pod]} == {
        "slurm-controller-0",
        "acct-accounting-0",
    }


async def test_corrections_come_with_a_change_made_meanwhile(stage: Stage) -> None:
    """What the user changed while no operator ran is applied at once, and the corrections with it."""
    await left_behind(stage, _corrected_case())
    await eventually(lambda: all_run(stage), "everything runs")
    await stage.patch(NodeSet, "compute", {"spec": {"partition": {"enabled": True}}})
    operator = await stage.operator()
    await taken_over(stage, operator)
    slurm, _ = await _files(stage)
    assert "PartitionName=compute" in slurm
    assert f"AccountingStoragePort={PORT}\n" in slurm
    said = await stage.condition(Controller, "slurm", "Configured")
    assert said is not None
    assert said.reason == "Restart"
