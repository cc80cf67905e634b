"""The webhook as a process, registered with a real API server for the namespaces of one test."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

from kubebox import pki
from slurm_operator.webhook.registration import BINDING_NAME, BINDING_PATH, WEBHOOKS
from tests.integration.programs.running import Process, eventually, install_crds
from tests.unit.webhook.pairs import SecretVolume, pem

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator
    from pathlib import Path

    from kubebox import Box

WEBHOOK = ("-m", "slurm_operator", "webhook")
LOOPBACK = ("--server-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0")
# Objects with this annotation are not sent to the webhook: mistakes that an older version let through.
SKIP = "webhook-test/skip"
# Where nobody listens: an API server that cannot be asked.
NOWHERE = "http://127.0.0.1:1"
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_RULES = [
    {
        "apiGroups": [""],
        "resources": ["configmaps", "persistentvolumeclaims", "pods", "nodes"],
        "verbs": ["get"],
    }
]


# ------------------------------------------------------------------------------------------------- API server


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    status: int
    body: dict[str, Any]
    warnings: list[str] = field(default_factory=list)

    @property
    def causes(self) -> dict[str, str]:
        """Return the sentences of a refusal, by field."""
        found = (self.body.get("details") or {}).get("causes") or ()
        return {cause["field"]: cause["message"] for cause in found}


def collection(body: dict[str, Any], namespace: str) -> str:
    """Return the path of a manifest's collection."""
    version, kind = body["apiVersion"], body["kind"].lower()
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{kind}s"


class Server:
    """Plain requests to the API server, with what it warns of."""

    def __init__(self, box: Box, namespace: str) -> None:
        self.namespace = namespace
        self._url = box.server
        self._tls = ssl.create_default_context(cafile=str(box.ca_file))
        self._tls.load_cert_chain(box.cert_file, box.key_file)

    async def ask(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json", **query: str
    ) -> Answer:
        connector = aiohttp.TCPConnector(ssl=self._tls)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                method,
                self._url + path,
                params=query,
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": kind},
            ) as response,
        ):
            warnings = [text.split('"', 1)[1].rstrip('"') for text in response.headers.getall("Warning", [])]
            return Answer(response.status, await response.json(), warnings)

    async def create(self, body: dict[str, Any], **query: str) -> Answer:
        return await self.ask("POST", collection(body, self.namespace), body, **query)

    async def apply(self, body: dict[str, Any], **query: str) -> Answer:
        path = f"{collection(body, self.namespace)}/{body['metadata']['name']}"
        more = {"fieldManager": "test", "force": "true", **query}
        return await self.ask("PATCH", path, body, kind="application/apply-patch+yaml", **more)

    async def replace(self, body: dict[str, Any], **query: str) -> Answer:
        path = f"{collection(body, self.namespace)}/{body['metadata']['name']}"
        return await self.ask("PUT", path, body, **query)

    async def patch(self, body: dict[str, Any], change: dict[str, Any]) -> Answer:
        path = f"{collection(body, self.namespace)}/{body['metadata']['name']}"
        return await self.ask("PATCH", path, change, kind="application/merge-patch+json")

    async def delete(self, body: dict[str, Any]) -> Answer:
        return await self.ask("DELETE", f"{collection(body, self.namespace)}/{body['metadata']['name']}")

    async def stored(self, body: dict[str, Any]) -> Answer:
        return await self.ask("GET", f"{collection(body, self.namespace)}/{body['metadata']['name']}")


# -------------------------------------------------------------------------------------------------- the stage


@dataclass
class Stage:
    """A running webhook, a namespace that it judges, and one that it does not."""

    box: Box
    server: Server
    outside: Server
    volume: SecretVolume
    authority: pki.Authority
    process: Process
    folder: Path
    port: int

    def restart(self) -> None:
        """Start the process anew, at the same address."""
        self.process = start(self.box, self.folder, f"--server-addr=127.0.0.1:{self.port}")

    async def post(
        self, path: str, body: bytes | io.BytesIO | dict[str, Any], query: str = ""
    ) -> tuple[int, Any]:
        """Ask the webhook itself, as the API server does."""
        context = ssl.create_default_context(cadata=pem(self.authority.certificate).decode())
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return await post(f"https://127.0.0.1:{self.port}{path}{query}", body, context)


async def post(
    url: str, body: bytes | io.BytesIO | dict[str, Any], context: ssl.SSLContext
) -> tuple[int, Any]:
    """Send a review; return the status and the JSON or text of the answer."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(url, data=data, headers={"Content-Type": "application/json"}) as response,
    ):
        text = await response.text()
        return response.status, json.loads(text) if response.content_type == "application/json" else text


def start(box: Box | None, folder: Path, *flags: str, **env: str) -> Process:
    """Start the webhook with the certificates, and the kubeconfig if there is one, of a folder."""
    kubeconfig = folder / "kubeconfig"
    known = [f"--kubeconfig={kubeconfig}"] if kubeconfig.exists() else []
    log = folder / f"webhook-{len(list(folder.glob('webhook-*.log')))}.log"
    arguments = [
        *WEBHOOK,
        *LOOPBACK,
        f"--cert-dir={folder / 'certs'}",
        "--zap-log-level=debug",
        *known,
        *flags,
    ]
    return Process(box, log, arguments, **env)


@contextlib.contextmanager
def staged(box: Box, folder: Path) -> Iterator[Stage]:
    """Register a webhook that runs under exactly the rights it needs, for one namespace of its own."""
    install_crds(box)
    volume, authority = SecretVolume(folder / "certs"), pki.make_authority("webhook-ca")
    volume.issue(authority)
    with box.namespace("judged") as inside, box.namespace("free") as outside:
        box.kubectl("label", "namespace", inside, f"webhook-test={inside}")
        kubeconfig_of_service_account(box, inside, folder / "kubeconfig")
        process = start(None, folder)
        try:
            port = asyncio.run(process.port("webhook"))
            stage = Stage(
                box, Server(box, inside), Server(box, outside), volume, authority, process, folder, port
            )
            for body in configurations(inside, port, authority):
                box.kubectl("apply", "-f", "-", stdin=json.dumps(body))
            try:
                asyncio.run(_wait_until_asked(stage))
                yield stage
            finally:
                for body in configurations(inside, port, authority):
                    box.kubectl("delete", "-f", "-", stdin=json.dumps(body))
                stage.process.__exit__()
        finally:
            process.__exit__()
            box.kubectl("delete", "clusterrole,clusterrolebinding", inside)


async def _wait_until_asked(stage: Stage) -> None:
    """Wait until the API server has heard of every webhook."""
    for webhook in WEBHOOKS:
        resource = webhook.resource
        bad = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": "a.b"},
            "spec": _BAD[resource.kind],
        }

        async def denied(bad: dict[str, Any] = bad) -> bool:
            answer = await stage.server.create(bad, dryRun="All")
            return "denied the request" in answer.body.get("message", "")

        await eventually(denied, f"{webhook.name} is asked")


_KEY = {"name": "", "key": "k"}
_BAD: dict[str, Any] = {
    "Accounting": {
        "slurmKeyRef": _KEY,
        "jwtKeyRef": _KEY,
        "storageConfig": {"host": "", "passwordKeyRef": _KEY},
    },
    "Cluster": {"server": "", "token": {"secretRef": ""}},
    "Controller": {"slurmKeyRef": _KEY, "jwtKeyRef": _KEY},
    "LoginSet": {"controllerRef": {}, "sssdConfRef": _KEY},
    "NodeSet": {"controllerRef": {}},
    "RestApi": {"controllerRef": {}},
    "Token": {"username": "", "jwtKeyRef": _KEY},
}


def kubeconfig_of_service_account(box: Box, namespace: str, path: Path) -> None:
    """Write a kubeconfig for somebody with the rights of the webhook, and no others."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": namespace},
        "rules": _RULES,
    }
    box.kubectl("create", "-f", "-", stdin=json.dumps(role))
    box.kubectl("create", "serviceaccount", "webhook", "-n", namespace)
    box.kubectl(
        "create",
        "clusterrolebinding",
        namespace,
        f"--clusterrole={namespace}",
        f"--serviceaccount={namespace}:webhook",
    )
    token = box.kubectl("create", "token", "webhook", "-n", namespace).strip()
    write_kubeconfig(path, box.server, token, box.ca_file)


def write_kubeconfig(path: Path, server: str, token: str, ca_file: Path | None = None) -> None:
    """Write a kubeconfig for whoever bears a token."""
    cluster = {"server": server, **({"certificate-authority": str(ca_file)} if ca_file else {})}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "box", "user": "u"}}],
        "clusters": [{"name": "box", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    path.write_text(json.dumps(config))
    os.chmod(path, 0o600)  # noqa: PTH101 - one line is enough


def configurations(namespace: str, port: int, authority: pki.Authority) -> list[dict[str, Any]]:
    """Return both configurations, as the chart makes them, but for one namespace and a local process."""
    bundle = base64.b64encode(pem(authority.certificate)).decode()

    def entry(name: str, path: str, rule: dict[str, Any], versions: list[str], policy: str) -> dict[str, Any]:
        return {
            "name": name,
            "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle},
            "rules": [{"scope": "Namespaced", **rule}],
            "failurePolicy": policy,
            "sideEffects": "None",
            "admissionReviewVersions": versions,
            "timeoutSeconds": 10,
            "namespaceSelector": {"matchLabels": {"webhook-test": namespace}},
        }

    validating = [
        {
            **entry(
                webhook.name,
                webhook.path,
                {
                    "apiGroups": [webhook.resource.group],
                    "apiVersions": [webhook.resource.version],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": [webhook.resource.plural],
                },
                # What an existing configuration asks for, in one of them.
                ["v1beta1"] if webhook.resource.kind == "Accounting" else ["v1", "v1beta1"],
                "Fail",
            ),
            "matchConditions": [
                {
                    "name": "judged",
                    "expression": f"!('{SKIP}' in object.metadata.?annotations.orValue({{}}))",
                }
            ],
        }
        for webhook in WEBHOOKS
    ]
    binding = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    group = "admissionregistration.k8s.io/v1"
    name = {"metadata": {"name": namespace}}
    return [
        {"apiVersion": group, "kind": "ValidatingWebhookConfiguration", **name, "webhooks": validating},
        {
            "apiVersion": group,
            "kind": "MutatingWebhookConfiguration",
            **name,
            "webhooks": [entry(BINDING_NAME, BINDING_PATH, binding, ["v1"], "Ignore")],
        },
    ]
