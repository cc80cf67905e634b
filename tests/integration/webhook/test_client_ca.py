"""A webhook that answers the API server and nobody else."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import pytest

from kubebox import pki
from tests.support.processes import eventually
from tests.support.webhook.admission_reviews import PATHS, question
from tests.support.webhook.certificate_files import pem
from tests.support.webhook.served_webhook import post, staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kubebox.pytest_plugin import BoxFactory
    from tests.support.webhook.served_webhook import Stage

CUT_OFF = (aiohttp.ClientError, ssl.SSLError, ConnectionError)


def admission(folder: Path) -> Path:
    """Write what makes an API server show webhooks a certificate, as docs/reference/webhooks.md has it."""
    user = {"client-certificate": f"{folder}/client.crt", "client-key": f"{folder}/client.key"}
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    plugins = [
        {
            "name": f"{kind}AdmissionWebhook",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": f"{folder}/kubeconfig",
            },
        }
        for kind in ("Validating", "Mutating")
    ]
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": plugins,
    }
    (folder / "admission.json").write_text(json.dumps(config))
    return folder / "admission.json"


@dataclass(frozen=True)
class Closed:
    """A webhook with client authorities, and the folder with these and with the API server's certificate."""

    stage: Stage
    secrets: Path


@pytest.fixture
def closed(kube_box_factory: BoxFactory, tmp_path: Path) -> Iterator[Closed]:
    """Hand out a webhook that is closed to all but the API server; this waits until that one is answered."""
    secrets, folder = tmp_path / "secrets", tmp_path / "stage"
    secrets.mkdir()
    folder.mkdir()
    authority = pki.make_authority("webhook-clients")
    (secrets / "ca.crt").write_bytes(pem(authority.certificate))
    pki.write_pair(secrets, "client", *pki.issue(authority, "kube-apiserver"))
    box = kube_box_factory(apiserver_args=(f"--admission-control-config-file={admission(secrets)}",))
    with staged(box, folder, f"--client-ca-file={secrets / 'ca.crt'}") as stage:
        yield Closed(stage, secrets)


async def test_only_the_api_server_is_answered(closed: Closed) -> None:
    """A caller without the API server's certificate is cut off; authorities change without a restart."""
    stage = closed.stage
    with pytest.raises(CUT_OFF):
        await stage.post(PATHS["NodeSet"], question())
    context = ssl.create_default_context(cadata=pem(stage.authority.certificate).decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_cert_chain(closed.secrets / "client.crt", closed.secrets / "client.key")
    url = f"https://127.0.0.1:{stage.port}{PATHS['NodeSet']}"
    assert (await post(url, question(), context))[0] == 200
    (closed.secrets / "ca.crt").write_bytes(pem(pki.make_authority("others").certificate))

    async def cut_off() -> bool:
        try:
            await post(url, question(), context)
        except CUT_OFF:
            return True
        return False

    await eventually(cut_off, "the former authority is no longer accepted")
