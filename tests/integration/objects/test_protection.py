"""The budget and the tolerations of workers on a real API server, and what Kubernetes makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import NodeSet
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import Invalid, TooManyRequests
from slurm_operator.kube.models.kinds import Pod, PodDisruptionBudget
from slurm_operator.kube.runtime.apply import Applier
from slurm_operator.objects import slurmd_shared
from slurm_operator.objects.node_fit import overdue_tolerations
from tests.support.kube.counted_client import managers, raw
from tests.support.objects.resources import node_set
from tests.support.processes import await_kinds, eventually, install_crds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box
    from slurm_operator.objects.desired import Manifest

NAME = "slurm-workers-pdb-slurm"
ALL = 2147483647
OWNER = "8f2f54a2-0000-4000-8000-000000000001"
OURS = ("slurm-operator", "Apply")
LABELS = {"nodeset.slinky.slurm.net/pod-protect": "true", "slinky.slurm.net/cluster": "slurm"}
SILENT = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


@pytest.fixture
async def client(kube_box: Box) -> AsyncIterator[Client]:
    """Hand out an open client on the shared API server."""
    async with Client(load_config(str(kube_box.kubeconfig))) as opened:
        yield opened


def _budget(namespace: str) -> Manifest:
    owners = [{"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "gpu", "uid": OWNER}]
    made = slurmd_shared.disruption_budget(node_set("gpu"), owners)
    made["metadata"]["namespace"] = namespace
    return made


def _older(namespace: str) -> Manifest:
    """Return the budget as Slinky slurm-operator and older versions of this one make it."""
    made = _budget(namespace)
    spec = {name: value for name, value in made["spec"].items() if name != "minAvailable"}
    return {**made, "spec": {**spec, "maxUnavailable": 0}}


async def _applied(client: Client, before: PodDisruptionBudget) -> dict[str, Any]:
    """Apply today's budget as an operator that has just started, and return what is stored."""
    namespace = before.metadata.namespace
    applier = Applier(client)
    await applier.apply(_budget(namespace), before, PodDisruptionBudget)
    stored = await raw(client, PodDisruptionBudget, NAME, namespace)
    assert stored["metadata"]["uid"] == before.metadata.uid
    assert stored["spec"] == _budget(namespace)["spec"]
    live = await client.get(PodDisruptionBudget, NAME, namespace)
    assert applier.is_applied(_budget(namespace), live)
    return stored


# ----------------------------------------------------------------------------------------------- migration


async def test_a_budget_of_the_go_operator_is_changed_in_place(client: Client, kube_namespace: str) -> None:
    """One change of the spec replaces the one field by the other; the object stays and becomes ours."""
    live = await client.create(PodDisruptionBudget, _older(kube_namespace), field_manager="manager")
    with pytest.raises(Invalid, match="cannot be both set"):
        await client.apply(PodDisruptionBudget, _budget(kube_namespace), field_manager="x")
    stored = await _applied(client, live)
    assert stored["metadata"]["generation"] == live.metadata.generation + 1
    assert managers(stored) == {OURS}


async def test_a_budget_of_an_older_version_is_changed_in_place(client: Client, kube_namespace: str) -> None:
    """What an older version applied goes with the apply of this one; going back works as well."""
    applied = await Applier(client).apply(_older(kube_namespace), None, PodDisruptionBudget)
    assert applied.object is not None
    stored = await _applied(client, applied.object)
    assert stored["metadata"]["generation"] == applied.object.metadata.generation + 1
    assert managers(stored) == {OURS}
    live = await client.get(PodDisruptionBudget, NAME, kube_namespace)
    await Applier(client).apply(_older(kube_namespace), live, PodDisruptionBudget)
    back = await client.get(PodDisruptionBudget, NAME, kube_namespace)
    assert (back.spec.max_unavailable, back.spec.min_available) == (0, None)


async def test_a_budget_that_was_edited_is_put_back(client: Client, kube_namespace: str) -> None:
    """Whoever sets the other field, ours replaces it; what else was set stays with its owner."""
    await Applier(client).apply(_budget(kube_namespace), None, PodDisruptionBudget)
    edit = {
        "metadata": {"labels": {"theirs": "1"}},
        "spec": {"minAvailable": None, "maxUnavailable": 5, "unhealthyPodEvictionPolicy": "IfHealthyBudget"},
    }
    live = await client.patch(
        PodDisruptionBudget, NAME, kube_namespace, edit, type=PatchType.MERGE, field_manager="kubectl-edit"
    )
    applier = Applier(client)
    await applier.apply(_budget(kube_namespace), live, PodDisruptionBudget)
    stored = await raw(client, PodDisruptionBudget, NAME, kube_namespace)
    assert stored["spec"]["minAvailable"] == ALL
    assert "maxUnavailable" not in stored["spec"]
    assert stored["spec"]["unhealthyPodEvictionPolicy"] == "IfHealthyBudget"
    assert stored["metadata"]["labels"]["theirs"] == "1"
    assert managers(stored) == {OURS, ("kubectl-edit", "Update")}


# ------------------------------------------------------------------------------- what Kubernetes makes of it


async def test_no_eviction_is_allowed_whatever_the_scale_and_readiness(kube_cluster: Box) -> None:
    """Three protected pods of a NodeSet with one replica: none can be evicted, also one that is not Ready."""
    install_crds(kube_cluster)
    await_kinds(kube_cluster)
    with kube_cluster.namespace() as namespace:
        async with Client(load_config(str(kube_cluster.kubeconfig))) as client:
            spec = {"controllerRef": {"name": "slurm"}, "replicas": 1, "slurmd": {}, "logfile": {}}
            nodeset = await client.create(
                NodeSet, {"metadata": {"name": "gpu", "namespace": namespace}, "spec": spec}
            )
            owner = {
                "apiVersion": "slinky.slurm.net/v1beta1",
                "kind": "NodeSet",
                "name": "gpu",
                "uid": nodeset.metadata.uid,
                "controller": True,
            }
            for number in range(3):
                await _run(client, namespace, f"gpu-{number}", owner, ready=number < 2)
            budget = _budget(namespace)
            budget["metadata"]["ownerReferences"] = [
                {name: value for name, value in owner.items() if name != "controller"}
            ]
            await Applier(client).apply(budget, None, PodDisruptionBudget)
            await eventually(lambda: _counted(client, namespace), "the disruption controller has counted")
            found = await client.get(PodDisruptionBudget, NAME, namespace)
            assert found.status.disruptions_allowed == 0
            assert (found.status.expected_pods, found.status.current_healthy) == (3, 2)
            for number in range(3):
                with pytest.raises(TooManyRequests):
                    await client.evict(f"gpu-{number}", namespace)


async def _counted(client: Client, namespace: str) -> bool:
    found = await client.get(PodDisruptionBudget, NAME, namespace)
    return found.status.observed_generation == found.metadata.generation and found.status.expected_pods == 3


async def _run(client: Client, namespace: str, name: str, owner: dict[str, Any], *, ready: bool) -> None:
    """Make a pod that runs, on a node that does not exist: no kubelet and no kwok changes its status."""
    body = _pod(namespace, name)
    body["metadata"]["ownerReferences"] = [owner]
    body["spec"]["nodeName"] = "nowhere"
    await client.create(Pod, body)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    await client.patch_status(Pod, name, namespace, status)


def _pod(namespace: str, name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        "spec": {"containers": [{"name": "slurmd", "image": "registry.invalid/slurmd:1"}], **spec},
    }


# ------------------------------------------------------------------------------------------- tolerations

USER = [
    {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
    {"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
    {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    {"key": "c", "operator": "Exists"},
]


@pytest.mark.parametrize("tolerations", [[], USER[:2], USER], ids=["default", "own", "all with a limit"])
@pytest.mark.parametrize("patch", [PatchType.MERGE, PatchType.STRATEGIC])
async def test_a_running_pod_can_be_given_the_tolerations(
    client: Client, kube_namespace: str, tolerations: list[dict[str, Any]], patch: PatchType
) -> None:
    """The API server takes the list as it is; nothing that the pod had is lost, and no limit is in force."""
    made = await client.create(Pod, _pod(kube_namespace, tolerations=tolerations))
    before = (await raw(client, Pod, "p", kube_namespace))["spec"]["tolerations"]
    assert any(item.get("tolerationSeconds") for item in before), "the API server added its limits"
    wanted = overdue_tolerations(made)
    assert wanted is not None
    body = {"metadata": {"labels": {"x": "1"}}, "spec": {"tolerations": wanted}}
    after = await client.patch(Pod, "p", kube_namespace, body, type=patch, field_manager="slurm-operator")
    stored = (await raw(client, Pod, "p", kube_namespace))["spec"]["tolerations"]
    assert stored == wanted
    assert [item["key"] for item in stored[:2]] == sorted(SILENT)
    assert not any("tolerationSeconds" in item for item in stored[:2])
    kept = [item for item in before if item.get("key") not in SILENT]
    assert stored[2:] == kept
    assert overdue_tolerations(after) is None
    assert [*msgspec.to_builtins(after.spec.tolerations)] == stored, "the read model has every field"
