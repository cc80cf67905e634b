"""The objects beside the workers: they are there, and come back as they should be."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import Controller, NodeSet
from slurm_operator.kube.errors import Invalid
from slurm_operator.kube.models.kinds import ConfigMap, Pod, PodDisruptionBudget, Secret, Service
from slurm_operator.objects.labels import recommended
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.controllers.nodeset_namespace import Stage

SERVICE = "slurm-workers-slurm"
BUDGET = "slurm-workers-pdb-slurm"


async def test_the_shared_objects_belong_to_all_nodesets_and_come_back(stage: Stage) -> None:
    """Service and budget have every NodeSet of the cluster as owner; edits and deletions are undone."""
    await stage.operator()
    await stage.nodeset("blue", replicas=1)
    await stage.nodeset("red", replicas=0)
    await stage.ready("blue")
    await stage.ready("red")

    both = {("blue", None), ("red", None)}

    async def owned(kind: type[Service | PodDisruptionBudget], name: str) -> bool:
        live = await stage.get(kind, name)
        found = () if live is None else live.metadata.owner_references
        return {(one.name, one.controller) for one in found} == both

    await eventually(lambda: owned(Service, SERVICE), "both own the Service")
    await eventually(lambda: owned(PodDisruptionBudget, BUDGET), "both own the budget")
    service = await stage.there(Service, SERVICE)
    assert service.spec.cluster_ip == "None"
    assert service.metadata.labels == recommended({})
    await stage.patch(Service, SERVICE, {"spec": {"selector": {"app.kubernetes.io/name": "nobody"}}})
    await eventually(lambda: _selects(stage, "slurmd"), "the selector is right again")
    await stage.patch(PodDisruptionBudget, BUDGET, {"spec": {"minAvailable": None, "maxUnavailable": 5}})

    async def strict() -> bool:
        budget = await stage.get(PodDisruptionBudget, BUDGET)
        return budget is not None and budget.spec.min_available == 2147483647

    await eventually(strict, "the budget is right again")
    await stage.delete(Service, SERVICE)
    await stage.delete(PodDisruptionBudget, BUDGET)
    await eventually(lambda: _selects(stage, "slurmd"), "the Service is back")
    await eventually(strict, "the budget is back")


async def test_sshd_has_its_configuration_while_some_pod_mounts_it(stage: Stage) -> None:
    """The ConfigMap comes with SSH, is kept right, and goes only when no worker mounts it any more."""
    await stage.secret("sssd", sssd__conf="[sssd]")
    await stage.operator()
    ssh = {"enabled": True, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}, "extraSshdConfig": "Port 22"}
    await stage.nodeset(replicas=1, ssh=ssh, updateStrategy={"type": "OnDelete"})
    await stage.ready()
    config = await stage.there(ConfigMap, "blue-ssh-config")
    assert "Port 22" in (config.data or {})["sshd_config"]
    await stage.delete(ConfigMap, "blue-ssh-config")
    await eventually(lambda: stage.get(ConfigMap, "blue-ssh-config"), "the ConfigMap is back")
    await stage.nodeset(replicas=1, updateStrategy={"type": "OnDelete"})
    await eventually(lambda: _observed(stage), "the change was seen")
    assert await stage.get(ConfigMap, "blue-ssh-config") is not None
    await stage.delete(Pod, "blue-0")
    await eventually(lambda: _missing(stage, ConfigMap, "blue-ssh-config"), "the ConfigMap is gone")


async def test_a_missing_controller_is_named_and_nothing_is_deleted(stage: Stage) -> None:
    """Without its Controller a NodeSet makes, changes and deletes nothing; it goes on when it is there."""
    await stage.operator()
    await stage.nodeset("green", controller="other", replicas=2)
    degraded = await stage.says(NodeSet, "green", "MissingReference", "Degraded")
    assert "'other'" in degraded.message
    assert await stage.pods("green") == {}
    await stage.tells("NodeSet", "Warning", "ControllerRefFailed", "Info")
    await stage.controller("other")
    await stage.until_pods("green-0", "green-1", nodeset="green")
    await stage.ready("green")
    before = await stage.pods("green")
    await stage.delete(Controller, "other")
    await stage.says(NodeSet, "green", "MissingReference", "Degraded")
    await stage.scale(0, "green")
    await eventually(lambda: _observed(stage, "green"), "the new number was seen")
    after = await stage.pods("green")
    assert {pod.metadata.uid for pod in after.values()} == {pod.metadata.uid for pod in before.values()}


async def test_a_missing_key_is_named(stage: Stage) -> None:
    """Without the Secret that workers mount none is made, and the field that names it is said; it heals."""
    await stage.delete(Secret, "keys")
    await stage.operator()
    await stage.nodeset(replicas=1)
    degraded = await stage.says(NodeSet, "blue", "MissingReference", "Degraded")
    assert "slurmKeyRef" in degraded.message
    assert "'keys'" in degraded.message
    await stage.keys()
    await stage.until_pods("blue-0")
    await stage.ready()


async def test_a_key_that_is_gone_makes_no_worker_newer(stage: Stage) -> None:
    """Workers with another key than the last that was there are old, also while there is none."""
    await stage.operator()
    await stage.nodeset(replicas=1, updateStrategy={"type": "OnDelete"})
    await stage.ready()
    await stage.counts(updated_replicas=1)
    await stage.keys(slurm="another")
    await stage.counts(updated_replicas=0)
    await stage.delete(Secret, "keys")
    await stage.says(NodeSet, "blue", "MissingReference", "Degraded")
    await stage.counts(replicas=1, updated_replicas=0)
    assert (await stage.status()).updated_replicas == 0
    await stage.keys()
    await stage.counts(updated_replicas=1)


_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodesets.slinky.slurm.net"


@asynccontextmanager
async def older_crd(stage: Stage) -> AsyncIterator[None]:
    """Have the CRD of an older version, with which controllerRef can be changed."""

    async def put(rules: list[Any]) -> list[Any]:
        live = msgspec.json.decode(await stage.client.raw("GET", _CRD))
        spec = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        before: list[Any] = spec["properties"]["controllerRef"].pop("x-kubernetes-validations", [])
        if rules:
            spec["properties"]["controllerRef"]["x-kubernetes-validations"] = rules
        await stage.client.raw("PUT", _CRD, body=live)
        return before

    rules = await put([])
    try:
        yield
    finally:
        await put(rules)


async def move(stage: Stage, name: str, **spec: Any) -> None:
    """Give a NodeSet another Controller."""

    async def moved() -> bool:
        try:
            await stage.nodeset(name, "other", **spec)
        except Invalid:
            return False  # the API server does not use the other CRD yet
        return True

    await eventually(moved, f"{name} has another Controller")


async def test_a_nodeset_that_moves_leaves_what_it_shared(stage: Stage) -> None:
    """What NodeSets of a cluster share stays with who is left there, and the Service goes with the last."""
    async with older_crd(stage):
        await _moves_and_leaves(stage)


async def _moves_and_leaves(stage: Stage) -> None:
    await stage.operator()
    await stage.controller("other")
    await stage.nodeset("blue", replicas=1)
    await stage.nodeset("red", replicas=0)
    await stage.ready("blue")
    await stage.ready("red")

    def owned(*names: str) -> Callable[[], Awaitable[bool]]:
        async def asked() -> bool:
            for kind, name in ((Service, SERVICE), (PodDisruptionBudget, BUDGET)):
                live = await stage.get(kind, name)
                owners = () if live is None else live.metadata.owner_references
                if {one.name for one in owners} != {*names}:
                    return False
            return True

        return asked

    await eventually(owned("blue", "red"), "both own what they share")
    await move(stage, "red", replicas=0)
    await eventually(owned("blue"), "one has left")
    await move(stage, "blue", replicas=1, updateStrategy={"type": "OnDelete"})
    await eventually(lambda: stage.get(PodDisruptionBudget, "slurm-workers-pdb-other"), "it has moved")
    await eventually(lambda: _observed(stage), "the change was seen")
    assert await owned("blue")(), "a worker of the former cluster needs them"
    await stage.delete(Pod, "blue-0")
    await eventually(lambda: _missing(stage, Service, SERVICE), "the last one has left")


async def _selects(stage: Stage, app: str) -> bool:
    service = await stage.get(Service, SERVICE)
    return service is not None and (service.spec.selector or {}).get("app.kubernetes.io/name") == app


async def _observed(stage: Stage, name: str = "blue") -> bool:
    live = await stage.there(NodeSet, name)
    return live.status.observed_generation == live.metadata.generation


async def _missing(stage: Stage, kind: type[ConfigMap | Service], name: str) -> bool:
    return await stage.get(kind, name) is None
