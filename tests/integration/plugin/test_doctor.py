"""doctor against a real API server: every check is seen failing, and passing after the fix."""

from __future__ import annotations

import base64
import json
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.plugin.bench import Bench
from tests.support.plugin.fake_manager import own_address
from tests.support.plugin.sample_rows import cluster, worker
from tests.support.plugin.sample_state import State
from tests.support.processes import await_kinds, install_crds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kubebox.pytest_plugin import BoxFactory
    from tests.support.plugin.fake_manager import FakeManager

SERVICE = "slurm-operator-webhook"


async def grades(bench: Bench, **given: Any) -> tuple[int, dict[str, str]]:
    """Run doctor and return its code and the grade of each check."""
    ended = await bench.run("doctor", "-A", "-o", "json", **given)
    assert ended.err == "", ended
    return ended.code, {one["check"]: one["grade"] for one in json.loads(ended.out)["items"]}


def certificate(folder: Path) -> tuple[Path, bytes]:
    """Write a certificate with its key, and return the file and the certificate alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "node.pem"
    path.write_bytes(private + public)
    return path, public


@asynccontextmanager
async def kubelet(folder: Path, versions: list[str]) -> AsyncIterator[int]:
    """Serve the metrics of a kubelet whose cgroup version is the last of a list."""
    path, _ = certificate(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=f"kubelet_cgroup_version {versions[-1]}\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, own_address(), 0, ssl_context=tls).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def webhook(bundle: bytes) -> dict[str, Any]:
    client: dict[str, Any] = {"service": {"namespace": "default", "name": SERVICE, "path": "/x"}}
    if bundle:
        client["caBundle"] = base64.b64encode(bundle).decode()
    rule = {"apiGroups": ["slinky.slurm.net"], "apiVersions": ["v1beta1"], "resources": ["tokens"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "slurm-operator-webhook"},
        "webhooks": [
            {
                "name": "token-v1beta1.kb.io",
                "clientConfig": client,
                "rules": [{**rule, "operations": ["CREATE"]}],
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
            }
        ],
    }


def service(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [{"port": 443}]},
    }


def endpoints(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-1",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}],
        "ports": [{"port": 443}],
    }


def put(bench: Bench, *objects: dict[str, Any]) -> None:
    """Create or change objects, in the namespaces that they name."""
    for one in objects:
        bench.box.kubectl("apply", "-f", "-", stdin=json.dumps(one))


CUSTOM = {"apiVersion": "slinky.slurm.net/v1beta1"}
KEY = {"name": "keys", "key": "slurm.key"}


def break_everything(bench: Bench, port: int) -> None:
    """Create what each check complains about."""
    image = {"image": "registry.invalid/x:1"}
    put(
        bench,
        {
            **CUSTOM,
            "kind": "Controller",
            "metadata": {"name": "slurm", "namespace": "default"},
            "spec": {"slurmKeyRef": KEY, "jwtKeyRef": KEY, "slurmctld": image},
        },
        {
            **CUSTOM,
            "kind": "NodeSet",
            "metadata": {"name": "workers", "namespace": "default"},
            "spec": {"controllerRef": {"name": "slurm"}, "slurmd": image},
        },
        webhook(b""),
        service(SERVICE, "default"),
        service("kube-dns", "kube-system"),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "statesave",
                "namespace": "default",
                "labels": {"app.kubernetes.io/name": "slurmctld"},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old"}},
    )
    bench.worker("workers-0")
    labels = ("app.kubernetes.io/part-of=slurm",)
    bench.box.kubectl("label", "pod", "workers-0", *labels)
    bench.box.kubectl("create", "-f", "-", stdin=json.dumps(_binding()))
    waiting = {"name": "slurmd", "ready": False, "restartCount": 0, "image": "x", "imageID": ""}
    waiting["state"] = {"waiting": {"reason": "ErrImagePull"}}
    bench.status("pod", "workers-0", phase="Pending", containerStatuses=[waiting])
    bench.status("pvc", "statesave", phase="Pending")
    address = {"type": "InternalIP", "address": own_address()}
    bench.status("node", "old", addresses=[address], daemonEndpoints={"kubeletEndpoint": {"Port": port}})
    broken = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "m"}
    bench.status(
        "controller",
        "slurm",
        conditions=[{**broken, "type": "SlurmApiReady", "status": "False", "reason": "Refused"}],
    )
    bench.status(
        "nodeset",
        "workers",
        nodeSetHash="x",
        selector="x=y",
        conditions=[{**broken, "type": "Degraded", "status": "True", "reason": "NameTaken"}],
    )


def _binding() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "workers-0", "namespace": "default"},
        "target": {"kind": "Node", "name": "old"},
    }


def repair_everything(bench: Bench, public: bytes) -> None:
    """Do what the fixes say."""
    policy = {"matchLabels": {"nodeset.slinky.slurm.net/pod-protect": "true"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]}
    put(
        bench,
        webhook(public),
        endpoints(SERVICE, "default"),
        endpoints("kube-dns", "kube-system"),
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "fast"},
            "provisioner": "x.example/y",
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "protect-workers"},
            "spec": {
                "matchConstraints": {"objectSelector": policy, "resourceRules": [rule]},
                "validations": [{"expression": "true"}],
            },
        },
    )
    bench.status("pod", "workers-0", phase="Running", containerStatuses=[])
    bench.status("pvc", "statesave", phase="Bound")


async def test_doctor(kube_box_factory: BoxFactory, manager: FakeManager, tmp_path: Path) -> None:
    """Each check fails or warns where something is wrong, and is ok when that is repaired."""
    bench = Bench(kube_box_factory(), "default", tmp_path)
    code, empty = await grades(bench)
    assert code == 1
    assert {name for name, grade in empty.items() if grade == "ok"} == {
        *("kubernetes version", "permissions", "certificates", "images", "storage")
    }
    assert (empty["CRDs"], empty["operator"]) == ("fail", "fail")
    install_crds(bench.box)
    await_kinds(bench.box)
    versions = ["1"]
    async with kubelet(tmp_path, versions) as port:
        break_everything(bench, port)
        code, broken = await grades(bench)
        assert code == 1
        failing = {name for name, grade in broken.items() if grade == "fail"}
        assert failing == {
            *("operator", "webhook", "certificates", "images", "storage", "DNS"),
            *("connection to Slurm", "NodeSets"),
        }
        assert (broken["CRDs"], broken["cgroup"], broken["deletion protection"]) == ("ok", "warn", "warn")
        nothing = bench.user("nothing")
        code, blind = await grades(bench, kubeconfig=nothing)
        assert (code, blind["permissions"], blind["webhook"]) == (1, "fail", "warn")
        _, public = certificate(tmp_path)
        repair_everything(bench, public)
        bench.install(manager)
        workers = (worker(0, kubernetes_node="old"),)
        manager.state = State(workers=workers, clusters=(cluster(slurm_version="23.02.1"),))
        versions.append("2")
        code, old = await grades(bench)
        assert {name: grade for name, grade in old.items() if grade != "ok"} == {"versions": "fail"}
        assert code == 1
        manager.state = State(workers=workers)
        code, repaired = await grades(bench)
        assert {name for name, grade in repaired.items() if grade != "ok"} == set()
        assert code == 0
