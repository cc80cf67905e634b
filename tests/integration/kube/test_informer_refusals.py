"""Informers beside a hanging webhook, and without the right to read."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.auth import bearer_token
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.client.tls import tls_context
from slurm_operator.kube.errors import Forbidden, ServerError
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from slurm_operator.kube.models.meta import Key
from tests.support.kube.informer_checks import (
    HASTY,
    assert_same_as_fresh_list,
    create_config_maps,
    names,
    running,
    wait_until,
)
from tests.support.kube.network_faults import silent_server

if TYPE_CHECKING:
    from kubebox import Box


async def test_a_webhook_that_times_out(client: Client, kube_namespace: str) -> None:
    """Writes that a hanging webhook delays or fails leave the informer equal to what was really written."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    name = f"hang-{kube_namespace}"
    informer = Informer(client, ConfigMap, namespaces=(kube_namespace,), timing=HASTY)
    async with silent_server() as port, running(informer) as mirror:
        await client.raw("POST", path, body=hanging_webhook(name, kube_namespace, port))
        try:
            async with asyncio.timeout(60):
                while await may_create(client, labelled("strict", kube_namespace)):
                    pass
            with pytest.raises(ServerError, match=r"failed calling webhook.*deadline exceeded"):
                await client.create(ConfigMap, labelled("strict", kube_namespace))
            await client.create(ConfigMap, labelled("lenient", kube_namespace))
            await create_config_maps(client, kube_namespace, "unasked")
            await assert_same_as_fresh_list(informer, client, mirror, (kube_namespace,))
            assert {"lenient", "unasked"} <= names(informer)
            assert "strict" not in names(informer)
        finally:
            await client.raw("DELETE", f"{path}/{name}")


async def may_create(client: Client, body: dict[str, Any]) -> bool:
    """Return whether a create would work; a new webhook takes the server a moment to notice."""
    try:
        await client.create(ConfigMap, body, dry_run=True)
    except ServerError:
        return False
    return True


def labelled(policy: str, namespace: str) -> dict[str, Any]:
    return {"metadata": {"name": policy, "namespace": namespace, "labels": {"webhook": policy}}}


def hanging_webhook(name: str, namespace: str, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{label}.tests.example",
                "clientConfig": {"url": f"https://127.0.0.1:{port}/validate"},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "objectSelector": {"matchLabels": {"webhook": label}},
                "failurePolicy": policy,
                "timeoutSeconds": 1,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for label, policy in (("strict", "Fail"), ("lenient", "Ignore"))
        ],
    }


async def test_rbac_that_forbids_one_kind(kube_box: Box, client: Client, kube_namespace: str) -> None:
    """A forbidden kind says so in last_error and syncs when it is allowed; other kinds never notice."""
    ns = kube_namespace
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}"
    await client.raw("POST", f"/api/v1/namespaces/{ns}/serviceaccounts", body={"metadata": {"name": "half"}})
    await client.raw("POST", f"{rbac}/roles", body=role("half", "configmaps"))
    await client.raw("POST", f"{rbac}/rolebindings", body=binding("half", ns))
    asked = await client.raw(
        "POST", f"/api/v1/namespaces/{ns}/serviceaccounts/half/token", body=TOKEN_REQUEST
    )
    token: str = json.loads(asked)["status"]["token"]
    limited = ClientConfig(
        server=kube_box.server,
        ssl=tls_context(ca_file=kube_box.ca_file, where="test"),
        namespace=ns,
        auth=bearer_token(token),
    )
    await create_config_maps(client, ns, "visible")
    await client.create(Secret, {"metadata": {"name": "hidden", "namespace": ns}})
    async with Client(limited) as half:
        allowed = Informer(half, ConfigMap, namespaces=(ns,), timing=HASTY)
        forbidden = Informer(half, Secret, namespaces=(ns,), timing=HASTY)
        async with running(allowed) as maps, running(forbidden, synced=False) as secrets:
            await wait_until(lambda: isinstance(forbidden.last_error, Forbidden), "the refusal is reported")
            assert not forbidden.synced
            assert allowed.last_error is None
            await assert_same_as_fresh_list(allowed, client, maps, (ns,))

            both = role("half", "configmaps", "secrets")
            await client.raw("PUT", f"{rbac}/roles/half", body=both)
            await wait_until(lambda: forbidden.synced, "synced after the right was granted")
            await assert_same_as_fresh_list(forbidden, client, secrets, (ns,))
            assert forbidden.last_error is None
            assert Key(ns, "hidden") in forbidden.store


TOKEN_REQUEST = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}


def role(name: str, *resources: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": [*resources], "verbs": ["list", "watch"]}],
    }


def binding(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
