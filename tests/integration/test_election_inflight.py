"""A write that hangs inside the API server while its sender is frozen."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import ConnectionFailed, DeadlineExceeded, KubeError, NotFound, ServerError
from slurm_operator.kube.models.kinds import ConfigMap, Lease, Pod
from slurm_operator.kube.process.serving import self_signed_context
from slurm_operator.kube.runtime.lease import LeaderElector
from tests.integration.test_election import journal, writer
from tests.support.processes import eventually

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
    """Put the gate before every creation and update of a ConfigMap in the namespace."""
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
                        "operations": ["CREATE", "UPDATE"],
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


async def test_a_write_that_was_cut_off_keeps_the_lease_from_being_freed(
    kube_box: Box, kube_namespace: str
) -> None:
    """After a write was given up without an answer, stopping leaves the lease to expire; else it is freed."""
    config = load_config(str(kube_box.kubeconfig))
    async with Client(config) as plain, gate(kube_box, kube_namespace) as kept:
        await plain.create(ConfigMap, {"metadata": {"name": "m", "namespace": kube_namespace}})
        for name, hold, holder in (("cut", "w", "one"), ("whole", "", "")):
            kept.hold = hold
            elector = LeaderElector(config, namespace=kube_namespace, name=name, identity="one")
            async with asyncio.timeout(60), Client(config, fence=elector.fence) as client:
                await elector.acquire()

                async def write(client: Client = client) -> bool:
                    patch = {"data": {"writer": "w", "count": str(kept.held)}}
                    task = asyncio.create_task(
                        client.patch(ConfigMap, "m", kube_namespace, patch, type=PatchType.MERGE)
                    )
                    # The server learns of a new webhook with a delay: until then writes pass.
                    while kept.hold and not kept.held and not task.done():
                        await asyncio.wait({task}, timeout=0.05)
                    if kept.held and kept.hold:
                        task.cancel()
                    await asyncio.wait({task})
                    return task.cancelled() or not kept.hold

                await eventually(write, "a write is cut off, or let through")
                await elector.release()
            lease = await plain.get(Lease, name, kube_namespace)
            assert (lease.spec.holder_identity or "") == holder


async def test_every_verb_takes_the_time_limit(kube_box: Box, kube_namespace: str) -> None:
    """The API server accepts a fenced create, patch, apply, status patch, eviction and delete alike."""
    body = {"metadata": {"name": "limited", "namespace": kube_namespace}, "data": {"k": "1"}}
    pod = {
        "metadata": {"name": "p", "namespace": kube_namespace},
        "spec": {"containers": [{"name": "c", "image": "c"}]},
    }
    async with Client(load_config(str(kube_box.kubeconfig)), fence=lambda: 60.0) as client:
        await client.create(ConfigMap, body)
        patch = {"data": {"k": "2"}}
        patched = await client.patch(ConfigMap, "limited", kube_namespace, patch, type=PatchType.MERGE)
        assert patched.data == {"k": "2"}
        applied = await client.apply(ConfigMap, {**body, "data": {"k": "3"}}, force=True)
        assert applied.data == {"k": "3"}
        await client.delete(ConfigMap, "limited", kube_namespace)
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "limited", kube_namespace)
        await client.create(Pod, pod)
        await client.patch_status(Pod, "p", kube_namespace, {"phase": "Pending"})
        await client.evict("p", kube_namespace)
        with pytest.raises(NotFound):
            await client.get(Pod, "p", kube_namespace)


async def test_a_create_that_hangs_in_a_webhook_ends_with_its_time(
    kube_box: Box, kube_namespace: str
) -> None:
    """The server itself gives up a create that a webhook holds past the fence's limit; it never lands."""
    config = load_config(str(kube_box.kubeconfig))
    async with (
        Client(config) as plain,
        Client(config, fence=lambda: 4.0) as fenced,
        gate(kube_box, kube_namespace) as kept,
    ):

        async def held() -> bool:
            # The server learns of a new webhook with a delay: until then creates pass.
            name = f"held-{kept.held}"
            dry = {"metadata": {"name": name, "namespace": kube_namespace}, "data": {"writer": "w"}}
            with suppress(KubeError):
                await fenced.create(ConfigMap, dry, dry_run=True)
            return kept.held > 0

        kept.hold = "w"
        await eventually(held, "the webhook is asked")
        body = {"metadata": {"name": "late", "namespace": kube_namespace}, "data": {"writer": "w"}}
        with pytest.raises((ServerError, ConnectionFailed)) as caught:
            await fenced.create(ConfigMap, body, timeout=60.0)
        # Two parts of the server end such a request; where they meet in its answer, it hangs up instead.
        match caught.value:
            case ServerError(status=status):
                assert status == HTTPStatus.GATEWAY_TIMEOUT
            case other:
                assert not isinstance(other, DeadlineExceeded)
        kept.open.set()
        await plain.create(ConfigMap, {"metadata": {"name": "next", "namespace": kube_namespace}})
        names = {found.metadata.name for found in (await plain.list(ConfigMap, kube_namespace)).items}
        assert "next" in names
        assert "late" not in names
