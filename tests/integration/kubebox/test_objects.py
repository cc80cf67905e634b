"""What lives in a box: namespaces that really go, nodes that take pods, requests that are written down."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kubebox import Box, BoxError

if TYPE_CHECKING:
    from collections.abc import Callable

    Eventually = Callable[[Callable[[], bool], str], None]

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "held", "finalizers": ["example.org/hold"]},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


def test_server_says_which_kubernetes_it_is(kube_box: Box) -> None:
    """Server and client know their version, which is the one kubebox is pinned to."""
    found = json.loads(kube_box.kubectl("version", "-o", "json"))
    assert found["serverVersion"]["gitVersion"] == found["clientVersion"]["gitVersion"] == kube_box.version
    assert kube_box.version.startswith("v1.")


def test_removed_namespace_takes_everything_with_it(kube_box: Box) -> None:
    """A test's namespace goes with its pods, even one a finalizer holds, without a controller manager."""
    with kube_box.namespace() as name:
        kube_box.kubectl("-n", name, "create", "-f", "-", stdin=json.dumps(POD))
        kube_box.kubectl("-n", name, "create", "configmap", "x")
        assert kube_box.kubectl("-n", name, "get", "pods", "-o", "name") == "pod/held\n"
    assert kube_box.kubectl("get", "namespace", name, "--ignore-not-found") == ""
    everything = kube_box.kubectl("get", "pods,configmaps", "--all-namespaces", "-o", "json")
    assert name not in {item["metadata"]["namespace"] for item in json.loads(everything)["items"]}


def test_namespace_fixture_hands_out_a_usable_namespace(kube_box: Box, kube_namespace: str) -> None:
    """A namespace handed to a test exists and takes objects."""
    kube_box.kubectl("-n", kube_namespace, "create", "configmap", "x")
    assert kube_box.kubectl("-n", kube_namespace, "get", "configmap", "-o", "name") == "configmap/x\n"


def test_complaint_of_kubectl_is_passed_on(kube_box: Box) -> None:
    """A failing kubectl raises its own words."""
    with pytest.raises(BoxError, match=r"kubectl get configmap missing: .*NotFound"):
        kube_box.kubectl("get", "configmap", "missing")


def test_pods_run_on_fake_nodes(kube_box_factory: Callable[..., Box], eventually: Eventually) -> None:
    """The nodes of a cluster are Ready, and the pods of a Deployment are scheduled there and run."""
    box = kube_box_factory(controller_manager=True, scheduler=True, fake_nodes=10)
    nodes = json.loads(box.kubectl("get", "nodes", "-o", "json"))["items"]
    assert len(nodes) == 10
    for node in nodes:
        ready = [item["status"] for item in node["status"]["conditions"] if item["type"] == "Ready"]
        assert ready == ["True"]
    with box.namespace() as name:
        box.kubectl("-n", name, "create", "deployment", "web", "--image=none", "--replicas=20")

        def running() -> bool:
            pods = json.loads(box.kubectl("-n", name, "get", "pods", "-o", "json"))["items"]
            return [pod["status"]["phase"] for pod in pods] == ["Running"] * 20

        eventually(running, "20 pods run")
    assert box.kubectl("get", "namespace", name, "--ignore-not-found") == ""


def test_audit_log_tells_who_did_what(kube_box_factory: Callable[..., Box]) -> None:
    """With audit on, a write is found in the log with its user, verb and object."""
    box = kube_box_factory(audit=True)
    box.kubectl("create", "configmap", "seen")
    lines = [json.loads(line) for line in box.audit_log.read_text().splitlines()]
    writes = [line for line in lines if line["verb"] == "create" and line["objectRef"].get("name") == "seen"]
    assert [line["user"]["username"] for line in writes] == ["kubebox-admin"]
