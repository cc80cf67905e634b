"""A write that hangs inside the API server while its sender is frozen."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from slurm_operator.kube.client import Client
from slurm_operator.kube.config import load_config
from slurm_operator.kube.serving import self_signed_context
from tests.integration.programs.running import eventually
from tests.integration.test_election import journal, writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kubebox import Box


class Gate:
    """An admission webhook that holds the writes of one writer until it is told to let them go."""

    def __init__(self) -> None:
        self.hold = ""
        self.held = 0
        self.open = asyncio.Event()

    async def review(self, request: web.Request) -> web.Response:
        review = (await request.json())["request"]
        if self.hold and (review["object"].get("data") or {}).get("writer") == self.hold:
            self.held += 1
            await self.open.wait()
        answer = {"uid": review["uid"], "allowed": True}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        response = web.json_response(review)
        response.force_close()
        return response


@asynccontextmanager
async def gate(box: Box, namespace: str) -> AsyncIterator[Gate]:
    """Put the gate before every update of a ConfigMap in the namespace."""
    kept = Gate()
    app = web.Application()
    app.router.add_post("/", kept.review)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self_signed_context()).start()
    port = runner.addresses[0][1]
    pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "gate.example.com",
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/",
                    "caBundle": base64.b64encode(pem.encode()).decode(),
                },
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["UPDATE"],
                        "resources": ["configmaps"],
                    },
                ],
                "timeoutSeconds": 30,
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    box.kubectl("create", "-f", "-", stdin=json.dumps(configuration))
    try:
        yield kept
    finally:
        kept.open.set()
        box.kubectl("delete", "validatingwebhookconfiguration", namespace)
        await runner.cleanup()


async def test_a_write_stuck_in_the_server_does_not_outlive_the_lease(
    kube_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """A frozen leader's write that an admission webhook delays past the takeover never lands."""
    async with (
        Client(load_config(str(kube_box.kubeconfig))) as client,
        journal(client, kube_namespace) as seen,
        gate(kube_box, kube_namespace) as kept,
    ):
        with writer(kube_box, tmp_path, "first", kube_namespace, pause=0.05) as first:
            await eventually(lambda: len(seen.writes_by("first")) > 5, "the first writes")
            with writer(kube_box, tmp_path, "second", kube_namespace, pause=0.05) as second:
                await eventually(lambda: second.logged("another process leads"), "the second waits")
                kept.hold = "first"
                await eventually(lambda: kept.held, "a write of the first is in the webhook")
                first.signal(signal.SIGSTOP)
                await eventually(lambda: len(seen.writes_by("second")) > 5, "the second writes")
                kept.open.set()
                count = len(seen.writes_by("second"))
                await eventually(lambda: len(seen.writes_by("second")) > count + 20, "the second goes on")
                assert max(seen.writes_by("first")).version < seen.takeover_by("second")
