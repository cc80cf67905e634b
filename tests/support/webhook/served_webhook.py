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
from kubebox.binaries import provide
from slurm_operator.webhook.rules.registration import WEBHOOKS
from tests.support.charts.chart_accounts import webhook_kubeconfig
from tests.support.charts.helm import OPERATOR, render
from tests.support.processes import Process, eventually, install_crds
from tests.support.webhook.certificate_files import SecretVolume, pem

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
# What the tests need of the chart's rights.
_VALUES = ("--set", "webhook.podsBinding=true")


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
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        user: str = "",
        group: str = "",
        **query: str,
    ) -> Answer:
        """Send a request, as the administrator of the box or as another user with all permissions."""
        headers = [("Content-Type", kind)]
        if user:
            groups = filter(None, ("system:masters", group))
            headers += [("Impersonate-User", user), *(("Impersonate-Group", name) for name in groups)]
        connector = aiohttp.TCPConnector(ssl=self._tls)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                method,
                self._url + path,
                params=query,
                data=None if body is None else json.dumps(body),
                headers=headers,
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
        """Start the process again, at the same address."""
        self.process = start(None, self.folder, f"--server-addr=127.0.0.1:{self.port}")

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
def staged(box: Box, folder: Path, *flags: str) -> Iterator[Stage]:
    """Register a webhook that runs under exactly the rights it needs, for one namespace of its own."""
    install_crds(box)
    volume, authority = SecretVolume(folder / "certs"), pki.make_authority("webhook-ca")
    volume.issue(authority)
    with box.namespace("judged") as inside, box.namespace("free") as outside:
        box.kubectl("label", "namespace", inside, f"webhook-test={inside}")
        (folder / "kubeconfig").symlink_to(webhook_kubeconfig(box, inside, *_VALUES))
        process = start(None, folder, *flags)
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


async def _wait_until_asked(stage: Stage) -> None:
    """Wait until the API server has heard of every webhook; of Secrets it hears with all others."""
    for webhook in WEBHOOKS:
        resource = webhook.resource
        if resource.kind not in _BAD:
            continue
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
    """Return both configurations of the chart, for one namespace and a process on this machine."""
    bundle = base64.b64encode(pem(authority.certificate)).decode()
    selector = {"matchLabels": {"webhook-test": namespace}}
    judged = {"name": "judged", "expression": f"!('{SKIP}' in object.metadata.?annotations.orValue({{}}))"}
    made = render(
        provide(["helm"], print)["helm"],
        OPERATOR,
        *("--show-only", "templates/webhook/webhook.yaml", *_VALUES),
        *("--set-json", f"webhook.validating.matchConditions={json.dumps([judged])}"),
    )
    for configuration in made:
        configuration["metadata"]["name"] = namespace
        for hook in configuration["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            hook["namespaceSelector"] = selector
            if hook["name"].startswith("accounting-"):
                # What a configuration of the reference's chart asks for.
                hook["admissionReviewVersions"] = ["v1beta1"]
    return list(made)
