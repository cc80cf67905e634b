"""RestApis on a real control plane."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from slurm_operator.api import Accounting, Controller, LoginSet, RestApi
from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails
from slurm_operator.kube.models.kinds import Secret, Service
from tests.support.controllers.whole_cluster import make_whole_cluster
from tests.support.processes import eventually

if TYPE_CHECKING:
    from kubebox import Box
    from tests.support.controllers.workload_namespace import Stage


async def test_from_nothing_to_ready(stage: Stage) -> None:
    """Each thing that is missing is named, the rest is made already, and what appears heals at once."""
    await stage.operator()
    await stage.restapi()
    missing = await stage.says(RestApi, "slurm", "MissingReference")
    assert missing.status == "False"
    assert "'slurm'" in missing.message
    assert "spec.controllerRef" in missing.message
    assert await stage.get(Service, "slurm-restapi") is not None
    assert await stage.get(DeploymentDetails, "slurm-restapi") is None
    await stage.controller()

    async def names_the_key() -> bool:
        found = await stage.condition(RestApi, "slurm")
        return found is not None and "'keys'" in found.message

    await eventually(names_the_key, "the missing Secret is named")
    await stage.config_map("slurm-config", slurm__conf="")
    await stage.keys()
    ready = await stage.says(RestApi, "slurm", "Available")
    assert ready.status == "True"
    assert (await stage.says(RestApi, "slurm", "Complete", "Progressing")).status == "False"
    assert (await stage.says(RestApi, "slurm", "AsExpected", "Degraded")).status == "False"
    assert (await stage.there(RestApi, "slurm")).status.observed_generation == 1
    await eventually(
        lambda: _has_event(stage, ("RestApi", "Normal", "CreateSucceeded", "Create")), "an Event says so"
    )
    await eventually(
        lambda: _has_event(stage, ("RestApi", "Warning", "SyncFailed", "Sync")), "and what was missing"
    )


async def _has_event(stage: Stage, event: tuple[str, str, str, str]) -> bool:
    return event in await stage.events()


async def test_pods_that_cannot_run(stage: Stage) -> None:
    """A pod that no node can take is named, with what Kubernetes says of it, until it can run."""
    await stage.operator()
    await stage.keys()
    await stage.controller()
    await stage.restapi(template={"spec": {"nodeSelector": {"example.com/none": "x"}}})
    failing = await stage.says(RestApi, "slurm", "PodsFailing")
    assert "Pod 'slurm-restapi-" in failing.message
    assert (await stage.says(RestApi, "slurm", "PodsFailing", "Degraded")).status == "True"
    await stage.restapi(template={"spec": {}})
    await stage.says(RestApi, "slurm", "Available")
    await stage.says(RestApi, "slurm", "AsExpected", "Degraded")


EVERYTHING: list[tuple[type[Any], str]] = [
    (Controller, "slurm"),
    (Accounting, "slurm"),
    (RestApi, "slurm"),
    (LoginSet, "login"),
]


async def test_difference_9_kubectl_wait(stage: Stage, slinky_box: Box) -> None:
    """`kubectl wait` returns when an edit is rolled out, for all four kinds, and columns show it."""
    await stage.operator()
    await make_whole_cluster(stage)
    kubectl = partial(slinky_box.kubectl, "--namespace", stage.namespace)
    wait = ("wait", "--for=condition=Ready", "--timeout=60s")
    everything = [f"{kind.RESOURCE.plural}.{kind.RESOURCE.group}/{name}" for kind, name in EVERYTHING]
    await asyncio.to_thread(kubectl, *wait, *everything)
    for kind, name in EVERYTHING:
        live = await stage.there(kind, name)
        assert live.status.observed_generation == live.metadata.generation
        said = {one.type: (one.status, one.reason) for one in live.status.conditions}
        assert said["Ready"] == ("True", "Available")
        assert said["Progressing"] == ("False", "Complete")
        assert said["Degraded"] == ("False", "AsExpected")
    await stage.patch(RestApi, "slurm", {"spec": {"replicas": 3}})
    await asyncio.to_thread(kubectl, *wait, "restapi/slurm")
    assert (await stage.there(DeploymentDetails, "slurm-restapi")).status.available_replicas == 3
    for one in everything:
        shown = (await asyncio.to_thread(kubectl, "get", one, "--no-headers", "-o", "wide")).split()
        assert "True" in shown
        assert "Available" in shown


async def test_key_that_goes_or_changes(stage: Stage) -> None:
    """A deleted key changes no pod and is named; another key replaces the pods once and says so."""
    await stage.operator()
    await stage.keys()
    await stage.controller()
    await stage.restapi()
    await stage.says(RestApi, "slurm", "Available")
    before = await stage.there(DeploymentDetails, "slurm-restapi")
    await stage.delete(Secret, "keys")
    gone = await stage.says(RestApi, "slurm", "MissingReference")
    assert "Meanwhile slurmrestd " in gone.message
    await stage.keys()
    await stage.says(RestApi, "slurm", "Available")
    same = await stage.there(DeploymentDetails, "slurm-restapi")
    assert same.metadata.generation == before.metadata.generation
    await stage.keys(slurm="another")
    said = await stage.says(RestApi, "slurm", "Restart", "Configured")
    assert "Secret 'keys'" in said.message

    async def replaced() -> bool:
        after = await stage.there(DeploymentDetails, "slurm-restapi")
        return after.metadata.generation == before.metadata.generation + 1

    # It is announced before it is done.
    await eventually(replaced, "the pods are replaced")
    await stage.says(RestApi, "slurm", "Available")
