"""An admission policy of one namespace that refuses some writes, as quotas and webhooks of others do.

async with Denial(stage.client, stage.namespace, "pods", "DELETE") as denial:
    await denial.in_force("DELETE", f"/api/v1/namespaces/{stage.namespace}/pods/blue-0")
    ...                                            # whatever is refused has `denial.MESSAGE` in its error
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Self

from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import ApiError, NotFound
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client

_PATH: Final = "/apis/admissionregistration.k8s.io/v1"


class Denial:
    """The policy; use it as an async context manager."""

    MESSAGE: Final = "refused by a test"

    def __init__(
        self, client: Client, namespace: str, plural: str, *operations: str, group: str = "", when: str = ""
    ) -> None:
        self._client = client
        self._name = f"denial-{plural}-{namespace}"
        rule = {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": [*operations],
            "resources": [plural],
        }
        only = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        self._spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only},
            "validations": [{"expression": f"!({when})" if when else "false", "message": self.MESSAGE}],
        }

    async def __aenter__(self) -> Self:
        await self._post("ValidatingAdmissionPolicy", self._spec)
        await self._post(
            "ValidatingAdmissionPolicyBinding", {"policyName": self._name, "validationActions": ["Deny"]}
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            with contextlib.suppress(NotFound):
                await self._client.raw("DELETE", f"{_PATH}/{kind}/{self._name}")

    async def in_force(self, method: str, path: str, body: Any = None) -> None:
        """Wait until a request is refused, which is only tried."""

        async def refused() -> bool:
            kind = PatchType.MERGE.value if method == "PATCH" else "application/json"
            try:
                await self._client.raw(method, path, body=body, query={"dryRun": "All"}, content_type=kind)
            except ApiError as error:
                return self.MESSAGE in str(error)
            return False

        await eventually(refused, "the policy is in force")

    async def _post(self, kind: str, spec: dict[str, Any]) -> None:
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": self._name},
            "spec": spec,
        }
        plural = "policies" if kind.endswith("Policy") else "policybindings"
        await self._client.raw("POST", f"{_PATH}/validatingadmission{plural}", body=body)
