"""The webhook's certificate from the real cert-manager, which is the chart's default.

cert-manager's controllers run as processes. The API server reaches the webhook by the chart's own
configurations: its Service leads to this machine by name, so that the names in the certificate count. The
kubelet, which updates the files of a changed Secret after a while, is a task that waits before it writes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kubebox import Box, BoxSpec
from kubebox.binaries import provide
from tests.support.charts.chart_accounts import webhook_kubeconfig
from tests.support.charts.helm import OPERATOR, render, settle_kinds
from tests.support.processes import eventually, install_crds
from tests.support.webhook.certificate_files import SecretVolume
from tests.support.webhook.served_webhook import Server, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.long

SERVICE, SECRET = "slurm-operator-webhook", "slurm-operator-webhook-ca"
ROOT = f"{SERVICE}-root-ca"
# How much later a pod sees a changed Secret; the kubelet takes up to two minutes.
KUBELET_SECONDS = 15.0
TOKEN = {
    "apiVersion": "slinky.slurm.net/v1beta1",
    "kind": "Token",
    "metadata": {"name": "probe"},
    "spec": {"username": "probe", "jwtKeyRef": {"name": "jwt", "key": "jwt.key"}},
}


@pytest.fixture
def box() -> Iterator[Box]:
    """Hand out an API server of its own with our kinds and those of cert-manager."""
    # Otherwise it asks endpoints, which cannot be on loopback, instead of the name that the Service has.
    with Box.up(BoxSpec(apiserver_args=("--enable-aggregator-routing=false",))) as box:
        install_crds(box)
        folder = provide(["cert-manager-crds"], print)["cert-manager-crds"]
        for file in sorted(folder.glob("*.yaml")):
            # Its labels are templates of Helm, its comments are to Helm what a condition is.
            crd = yaml.safe_load(file.read_text(encoding="utf-8"))
            crd["metadata"] = {"name": crd["metadata"]["name"]}
            box.kubectl("create", "--filename=-", stdin=json.dumps(crd))
        settle_kinds(box)
        yield box


@pytest.fixture
def cert_manager(box: Box, tmp_path: Path) -> Iterator[None]:
    """Run cert-manager."""
    program = provide(["cert-manager"], print)["cert-manager"]
    with contextlib.ExitStack() as stack:
        for part in ("controller", "cainjector"):
            log = stack.enter_context((tmp_path / f"{part}.log").open("wb"))
            process = subprocess.Popen([program, part, box.kubeconfig], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


class Site:
    """The chart's certificate and configurations, and a webhook that serves with them."""

    def __init__(self, box: Box, namespace: str, judged: str, folder: Path) -> None:
        self.box, self.namespace, self.folder = box, namespace, folder
        self.server = Server(box, judged)
        self.volume = SecretVolume(folder / "certs")
        self.refused: list[str] = []
        self.asked = 0
        self._written = b""

    def apply(self, *items: dict[str, Any]) -> None:
        """Apply objects in the namespace of the operator."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items]})
        self.box.kubectl("apply", "--namespace", self.namespace, "--filename=-", stdin=text)

    def rendered(self, template: str) -> list[dict[str, Any]]:
        """Return what a template of the chart renders with the default values."""
        helm = provide(["helm"], print)["helm"]
        only = ("--show-only", f"templates/{template}")
        found: list[dict[str, Any]] = render(
            helm, OPERATOR, *only, release="slurm-operator", namespace=self.namespace
        )
        return found

    def configurations(self, port: int) -> list[dict[str, Any]]:
        """Return the chart's configurations, for a webhook that listens on this port."""
        found = self.rendered("webhook/webhook.yaml")
        for configuration in found:
            for hook in configuration["webhooks"]:
                hook["clientConfig"]["service"]["port"] = port
        return found

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object in the namespace of the operator, empty if there is none."""
        text = await asyncio.to_thread(
            self.box.kubectl,
            *("get", kind, name, "--namespace", self.namespace, "--ignore-not-found", "--output=json"),
        )
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    async def pair(self, name: str = SECRET) -> tuple[bytes, bytes]:
        """Return certificate and key in a Secret; both empty if there are none."""
        data = (await self.get("secret", name)).get("data") or {}
        return tuple(base64.b64decode(data.get(key, "")) for key in ("tls.crt", "tls.key"))  # type: ignore[return-value]

    async def bundles(self) -> set[str]:
        """Return the authorities that the API server trusts for the webhooks."""
        listed = await asyncio.to_thread(
            self.box.kubectl, "get", "validatingwebhookconfigurations", "--output=json"
        )
        return {
            hook["clientConfig"].get("caBundle", "")
            for item in json.loads(listed)["items"]
            for hook in item["webhooks"]
        }

    async def play_kubelet(self) -> None:
        """Write the Secret to the files of the webhook, late."""
        while True:
            certificate, key = await self.pair()
            if certificate and certificate != self._written:
                if self._written:
                    await asyncio.sleep(KUBELET_SECONDS)
                self.volume.write(tls_crt=certificate, tls_key=key)
                self._written = certificate
            await asyncio.sleep(0.5)

    async def ask(self) -> None:
        """Ask the API server for what it asks the webhook about, all the time."""
        while True:
            answer = await self.server.create(TOKEN, dryRun="All")
            self.asked += 1
            if answer.status >= 300:
                self.refused.append(answer.body.get("message", ""))
            await asyncio.sleep(0.05)

    async def renew(self, name: str, secret: str) -> None:
        """Have cert-manager reissue a certificate, as `cmctl renew` does, and wait for it."""
        before, _ = await self.pair(secret)
        status = (await self.get("certificate", name))["status"]
        issuing = {
            "type": "Issuing",
            "status": "True",
            "reason": "ManuallyTriggered",
            "message": "by a test",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        body = {"status": {"conditions": [*status["conditions"], issuing]}}
        change = ("--type=merge", "--subresource=status", f"--patch={json.dumps(body)}")
        await asyncio.to_thread(
            self.box.kubectl, "patch", "certificate", name, "--namespace", self.namespace, *change
        )

        async def renewed() -> bool:
            now, _ = await self.pair(secret)
            return bool(now) and now != before

        await eventually(renewed, f"{name} is reissued")

    async def served(self) -> None:
        """Wait until the webhook has the certificate of the Secret, and ask for a while after that."""
        certificate, _ = await self.pair()

        async def written() -> bool:
            return self._written == certificate

        await eventually(written, "the kubelet has brought the new certificate")
        before = self.asked
        await eventually(lambda: self.asked > before + 60, "requests go on")


@contextlib.asynccontextmanager
async def _running(site: Site) -> AsyncIterator[Site]:
    """Install the chart's objects and run the webhook until the block ends."""
    site.apply(*site.rendered("cert-manager/pki.yaml"))
    with contextlib.ExitStack() as stack:
        kubelet = asyncio.create_task(site.play_kubelet())
        stack.callback(kubelet.cancel)
        await eventually((site.folder / "certs" / "tls.crt").exists, "a certificate is issued")
        process = start(None, site.folder)
        stack.callback(process.__exit__)
        port = await process.port("webhook")
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        site.apply(service, *site.configurations(port))
        await eventually(lambda: _trusted(site), "cert-manager has put the authority into the configurations")
        bad = {**TOKEN, "spec": {"username": "", "jwtKeyRef": {"name": "", "key": "k"}}}

        async def denied() -> bool:
            answer = await site.server.create(bad, dryRun="All")
            return "denied the request" in answer.body.get("message", "")

        await eventually(denied, "the API server asks the webhook")
        asking = asyncio.create_task(site.ask())
        stack.callback(asking.cancel)
        await eventually(lambda: site.asked > 20, "requests are answered")
        yield site


async def _trusted(site: Site) -> bool:
    bundles = await site.bundles()
    return bool(bundles) and "" not in bundles


@pytest.mark.usefixtures("cert_manager")
async def test_certificates_are_issued_and_rotated_without_a_refused_request(
    box: Box, tmp_path: Path
) -> None:
    """Neither a new certificate nor a new authority costs a request, although pods see them much later."""
    with box.namespace("operator") as namespace, box.namespace("judged") as judged:
        (tmp_path / "kubeconfig").symlink_to(webhook_kubeconfig(box, judged))
        async with _running(Site(box, namespace, judged, tmp_path)) as site:
            assert site.refused == []
            await site.renew(SECRET, SECRET)
            await site.served()
            assert site.refused == []
            trusted = await site.bundles()
            await site.renew(ROOT, ROOT)
            await site.renew(SECRET, SECRET)
            await site.served()
            assert await site.bundles() != trusted
            # A certificate of the authority's former key is not trusted with the new bundle.
            assert site.refused == []
            assert site.asked > 100
