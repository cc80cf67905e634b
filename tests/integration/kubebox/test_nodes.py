"""Real nodes run pods: network, names, logs, commands, storage; and nothing gets out."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.errors import BoxError
from kubebox.images.slurm import slurm_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubebox import Box

pytestmark = pytest.mark.timeout(600)
_DEADLINE = 180.0
# A server in one line: it answers every connection with its host name.
_SERVER = (
    """BEGIN { while (1) { s = "/inet/tcp/8080/0/0"; s |& getline; print "I am " name |& s; close(s) } }"""
)


@pytest.fixture
def namespace(kube_nodes: Box) -> Iterator[str]:
    with kube_nodes.namespace() as name:
        yield name


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not so after {_DEADLINE:g} s: {what()}"
        time.sleep(0.2)


def pod(name: str, node: str, *command: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": slurm_image("tools"), "command": list(command), "tty": False}
    container["volumeMounts"] = spec.pop("volumeMounts", [])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **spec,
        },
    }


def apply(box: Box, namespace: str, *objects: dict[str, Any]) -> None:
    text = "\n---\n".join(json.dumps(item) for item in objects)
    box.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)


def running(box: Box, namespace: str, name: str) -> bool:
    path = "jsonpath={.status.phase}"
    return box.kubectl("get", "pod", name, "-n", namespace, "-o", path) == "Running"


def run(box: Box, namespace: str, name: str, *command: str) -> str:
    return box.kubectl("exec", "-n", namespace, name, "--", *command)


def start(box: Box, namespace: str, *pods: dict[str, Any]) -> None:
    apply(box, namespace, *pods)
    for item in pods:
        await_running(box, namespace, item["metadata"]["name"])


def await_running(box: Box, namespace: str, name: str) -> None:
    until(
        lambda: running(box, namespace, name), lambda: box.kubectl("describe", "pod", name, "-n", namespace)
    )


def test_a_service_is_reached_by_name_from_another_node(kube_nodes: Box, namespace: str) -> None:
    """A pod on one node calls a Service by its name and reaches a pod on another."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    apply(kube_nodes, namespace, service)
    start(
        kube_nodes,
        namespace,
        pod("web", "node-0", "gawk", "-v", "name=web", _SERVER),
        pod("client", "node-1", "sleep", "infinity"),
    )
    call = f"exec 3<>/dev/tcp/web.{namespace}.svc.cluster.local/80 && echo hello >&3 && cat <&3"

    def answer() -> str:
        try:
            return run(kube_nodes, namespace, "client", "timeout", "5", "bash", "-c", call)
        except BoxError as error:
            return str(error)

    until(lambda: answer() == "I am web\n", answer)


def test_logs_and_commands_reach_the_container(kube_nodes: Box, namespace: str) -> None:
    """What a container prints is its log, and a command runs inside with the pod's own host name."""
    start(kube_nodes, namespace, pod("talker", "node-2", "sh", "-c", "echo 'I live'; exec sleep infinity"))
    until(
        lambda: kube_nodes.kubectl("logs", "-n", namespace, "talker") == "I live\n",
        lambda: kube_nodes.kubectl("describe", "pod", "talker", "-n", namespace),
    )
    assert run(kube_nodes, namespace, "talker", "hostname") == "talker\n"


def test_a_volume_is_made_shared_and_removed(kube_nodes: Box, namespace: str) -> None:
    """A claim without a class is bound, seen by pods on two nodes whatever their user, and leaves nothing."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    volumes: dict[str, Any] = {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "securityContext": {"runAsUser": 401, "runAsGroup": 401},
    }
    apply(kube_nodes, namespace, claim)
    start(
        kube_nodes,
        namespace,
        pod("writer", "node-0", "sh", "-c", "echo kept > /data/file; exec sleep infinity", **volumes),
        pod("reader", "node-1", "sleep", "infinity", **volumes),
    )
    until(
        lambda: run(kube_nodes, namespace, "reader", "sh", "-c", "cat /data/file || true") == "kept\n",
        lambda: "the writer's file",
    )
    (folder,) = [path for path in (kube_nodes.state / "volumes").iterdir() if (path / "file").exists()]
    kube_nodes.kubectl("delete", "-n", namespace, "pod/writer", "pod/reader", "pvc/data", "--wait=false")
    until(lambda: not folder.exists(), lambda: kube_nodes.kubectl("get", "pv,pvc", "-A"))


def test_nothing_leaves_the_machine(kube_nodes: Box, namespace: str) -> None:
    """A pod that calls an address outside of its cluster is told at once that there is no way."""
    start(kube_nodes, namespace, pod("caller", "node-0", "sleep", "infinity"))
    for target in ("198.51.100.1", "8.8.8.8"):
        with pytest.raises(BoxError, match="unreachable"):
            run(
                kube_nodes,
                namespace,
                "caller",
                "timeout",
                "30",
                "bash",
                "-c",
                f"exec 3<>/dev/tcp/{target}/53",
            )
