"""A NodeSet that is deleted with `--cascade=foreground`: Kubernetes deletes what it owns first."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.kube.errors import ApiError, NotFound, TooManyRequests
from slurm_operator.kube.models.kinds import Pod, PodDisruptionBudget, Service
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd

PATH = "/apis/admissionregistration.k8s.io/v1"
SERVICE = "slurm-workers-slurm"
BUDGET = "slurm-workers-pdb-slurm"
BUSY = {"state": ["MIXED", "DYNAMIC_NORM"], "alloc_cpus": 1}


@pytest.fixture
async def kept(stage: Stage) -> AsyncIterator[None]:
    """Let nobody delete a protected pod of the namespace, as the policy of the chart does."""
    name = f"protect-{stage.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]}
    specs: dict[str, dict[str, Any]] = {
        "ValidatingAdmissionPolicy": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
                "objectSelector": {"matchLabels": {wellknown.LABEL_POD_PROTECT: "true"}},
            },
            "validations": [{"expression": "false", "message": "protected here"}],
        },
        "ValidatingAdmissionPolicyBinding": {"policyName": name, "validationActions": ["Deny"]},
    }
    paths = {
        "ValidatingAdmissionPolicy": f"{PATH}/validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": f"{PATH}/validatingadmissionpolicybindings",
    }
    for kind, spec in specs.items():
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await stage.client.raw("POST", paths[kind], body=body)
    yield
    for path in paths.values():
        with contextlib.suppress(NotFound):
            await stage.client.raw("DELETE", f"{path}/{name}")

    async def allowed() -> bool:
        return not await _refused(stage)

    await eventually(allowed, "the policy is in force no more")


async def _refused(stage: Stage) -> bool:
    """Return whether the deletion of the worker would be refused."""
    try:
        await stage.client.delete(Pod, "blue-0", stage.namespace, dry_run=True)
    except NotFound:
        return False
    except ApiError as error:
        return "protected here" in str(error)
    return False


@pytest.mark.usefixtures("slurm_cluster", "kept")
async def test_workers_that_drain_keep_their_budget(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """Kubernetes deletes the budget at once; without it, anybody could evict a worker under its job."""
    hostile.add_nodes("blue-0")
    hostile.nodes.change("blue-0", **BUSY)
    await stage.operator()
    await stage.nodeset(replicas=1)
    await stage.until_pods("blue-0")
    await stage.ready()
    shared: tuple[tuple[type[Service | PodDisruptionBudget], str], ...] = (
        (Service, SERVICE),
        (PodDisruptionBudget, BUDGET),
    )
    first = {name: (await stage.there(kind, name)).metadata.uid for kind, name in shared}

    await eventually(lambda: _refused(stage), "the policy is in force")
    await stage.client.delete(NodeSet, "blue", stage.namespace, propagation="Foreground")

    async def made_again() -> bool:
        found = [await stage.get(kind, name) for kind, name in shared]
        return all(one is not None and one.metadata.uid != first[one.metadata.name] for one in found)

    await eventually(made_again, "Service and budget are back")
    second = {name: (await stage.there(kind, name)).metadata.uid for kind, name in shared}
    await eventually(lambda: "DRAIN" in hostile.nodes["blue-0"]["state"], "the node drains")
    with pytest.raises(TooManyRequests):
        await stage.client.evict("blue-0", stage.namespace)
    # Whatever Kubernetes deletes first is gone by now.
    assert second == {name: (await stage.there(kind, name)).metadata.uid for kind, name in shared}
    assert {*await stage.pods()} == {"blue-0"}


@pytest.mark.usefixtures("slurm_cluster")
async def test_an_operator_that_restarts_goes_on_with_the_deletion(
    stage: Stage, hostile: HostileSlurmrestd
) -> None:
    """A deletion that waits for a job when the operator ends is finished by the next operator."""
    hostile.add_nodes("blue-0")
    hostile.nodes.change("blue-0", **BUSY)
    async with stage.for_a_while():
        await stage.nodeset(replicas=1)
        await stage.until_pods("blue-0")
        await stage.ready()
    await stage.client.delete(NodeSet, "blue", stage.namespace)
    await stage.operator()
    await eventually(lambda: "DRAIN" in hostile.nodes["blue-0"]["state"], "the node drains")
    assert {*await stage.pods()} == {"blue-0"}
    hostile.nodes.change("blue-0", state=["IDLE", "DRAIN", "DYNAMIC_NORM"], alloc_cpus=0)
    await stage.until_pods()

    async def gone() -> bool:
        return await stage.get(NodeSet, "blue") is None

    await eventually(gone, "the NodeSet is gone")
