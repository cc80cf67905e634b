"""Without the finalizer that keeps a NodeSet until its workers are drained, no worker is made."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.kube.client import PatchType
from slurm_operator.kube.errors import ApiError, NotFound
from tests.integration.programs.running import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.controllers.nodeset.stage import Stage

PATH = "/apis/admissionregistration.k8s.io/v1"


class Policy:
    """An admission policy of one namespace that lets no NodeSet have the finalizer."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._name = f"no-finalizer-{stage.namespace}"

    async def make(self) -> None:
        """Make the policy, and wait until it is in force for a NodeSet that exists."""
        rule = {
            "apiGroups": [NodeSet.RESOURCE.group],
            "apiVersions": ["*"],
            "operations": ["UPDATE"],
            "resources": [NodeSet.RESOURCE.plural],
        }
        only = {"matchLabels": {"kubernetes.io/metadata.name": self._stage.namespace}}
        deny = {
            "expression": f"!has(object.metadata.finalizers) || "
            f"!('{wellknown.FINALIZER_DRAIN}' in object.metadata.finalizers)",
            "message": "no finalizers here",
        }
        await self._post(
            "ValidatingAdmissionPolicy",
            {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only},
                "validations": [deny],
            },
        )
        await self._post(
            "ValidatingAdmissionPolicyBinding", {"policyName": self._name, "validationActions": ["Deny"]}
        )

        async def in_force() -> bool:
            body = {"metadata": {"finalizers": [wellknown.FINALIZER_DRAIN]}}
            path = f"/apis/{NodeSet.RESOURCE.api_version}/namespaces/{self._stage.namespace}/nodesets/blue"
            try:
                await self._stage.client.raw(
                    "PATCH", path, body=body, query={"dryRun": "All"}, content_type=PatchType.MERGE.value
                )
            except ApiError as error:
                return "no finalizers here" in str(error)
            return False

        await eventually(in_force, "the policy is in force")

    async def remove(self) -> None:
        """Remove the policy."""
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            with contextlib.suppress(NotFound):
                await self._stage.client.raw("DELETE", f"{PATH}/{kind}/{self._name}")

    async def _post(self, kind: str, spec: dict[str, Any]) -> None:
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": self._name},
            "spec": spec,
        }
        plural = "policies" if kind.endswith("Policy") else "policybindings"
        await self._stage.client.raw("POST", f"{PATH}/validatingadmission{plural}", body=body)


@pytest.fixture
async def policy(stage: Stage) -> AsyncIterator[Policy]:
    """Hand out a policy, and remove it in the end."""
    made = Policy(stage)
    yield made
    await made.remove()


async def test_no_worker_is_made_unguarded(stage: Stage, policy: Policy) -> None:
    """While the finalizer is refused no pod is made, and the condition says so; then all is made."""
    await stage.nodeset(replicas=2)
    await policy.make()
    await stage.operator()
    degraded = await stage.says(NodeSet, "blue", "ApplyFailed", "Degraded")
    assert "no finalizers here" in degraded.message
    assert "no worker is made" in degraded.message
    assert await stage.pods() == {}
    await policy.remove()
    await stage.until_pods("blue-0", "blue-1")
    await stage.ready()
    assert wellknown.FINALIZER_DRAIN in (await stage.there(NodeSet, "blue")).metadata.finalizers
