"""The chart's policy against the controllers and the scheduler of Kubernetes, from the API server's log."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import wellknown
from tests.support.charts.helm import OPERATOR, Helm
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox import Box

SYSTEM = "system:serviceaccount:kube-system"
LABELS = {wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD, wellknown.LABEL_POD_PROTECT: "true"}
NAMESPACE = "slurm"
_PERIOD = 0.5
# Taints are the business of the taint eviction controller, which has the account of another.
CONTROLLERS = {
    (f"{SYSTEM}:generic-garbage-collector", "delete"),
    (f"{SYSTEM}:node-controller", "delete"),
    ("system:kube-scheduler", "delete"),
}
NAMESPACES = (f"{SYSTEM}:namespace-controller", "deletecollection")


class Cluster:
    """A cluster with the operator chart, in which fake nodes run protected workers."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._box.kubectl("--namespace", NAMESPACE, *arguments, stdin=stdin)

    def checked(self) -> list[dict[str, Any]] | None:
        """Return what Kubernetes finds wrong with the types in the policy; None while it has not checked."""
        (policy,) = json.loads(self.kubectl("get", "validatingadmissionpolicies", "--output=json"))["items"]
        status = policy.get("status", {})
        if status.get("observedGeneration") != policy["metadata"]["generation"]:
            return None
        warnings: list[dict[str, Any]] = status.get("typeChecking", {}).get("expressionWarnings", [])
        return warnings

    def create(self, **body: Any) -> None:
        """Create an object."""
        self.kubectl("create", "--filename=-", stdin=json.dumps(body))

    def make(
        self, name: str, node: str, *, owner: str = "", cpu: str = "1m", priority: str = "", **labels: str
    ) -> None:
        """Create a pod that belongs on a node."""
        metadata: dict[str, Any] = {"name": name, "labels": labels}
        if owner:
            uid = self.kubectl("get", "configmap", owner, "--output=jsonpath={.metadata.uid}")
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}
            metadata["ownerReferences"] = [reference | {"controller": True, "blockOwnerDeletion": True}]
        container = {"name": "slurmd", "image": "any", "resources": {"requests": {"cpu": cpu}}}
        spec: dict[str, Any] = {
            "containers": [container],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        }
        if priority:
            spec["priorityClassName"] = priority
        self.create(apiVersion="v1", kind="Pod", metadata=metadata, spec=spec)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return all pods by name."""
        items = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def running(self, *names: str) -> bool:
        """Return whether some pods run and are not being deleted."""
        found = self.pods()
        return all(
            name in found
            and found[name]["status"].get("phase") == "Running"
            and "deletionTimestamp" not in found[name]["metadata"]
            for name in names
        )

    def refused(self) -> set[tuple[str, str]]:
        """Return who was refused the deletion of pods, and the verb."""
        found = set()
        for line in self._box.audit_log.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            about = event.get("objectRef") or {}
            if (
                event["verb"] in ("delete", "deletecollection")
                and (about.get("resource"), about.get("subresource")) == ("pods", None)
                and about.get("namespace") == NAMESPACE
                and event.get("responseStatus", {}).get("code") == HTTPStatus.FORBIDDEN
            ):
                found.add((event["user"]["username"], event["verb"]))
        return found

    async def until(self, question: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
        """Wait until something is so."""

        async def answer() -> bool:
            # Each question is a process, or the whole of a log.
            await asyncio.sleep(_PERIOD)
            return await asyncio.to_thread(question)

        await eventually(answer, what, seconds)


@pytest.mark.timeout(600)
async def test_kubernetes_itself_does_not_end_a_worker(
    kube_box_factory: Callable[..., Box], helm_program: Path, tmp_path: Path
) -> None:
    """Garbage collection, taints, preemption and the end of a namespace wait until protection is removed.

    No operator and no webhook answers here. Only the pods of a node that is gone are deleted.
    """
    box = kube_box_factory(controller_manager=True, scheduler=True, fake_nodes=4, audit=True)
    cluster = Cluster(box)
    for name in ("slinky", NAMESPACE):
        box.kubectl("create", "namespace", name)
    helm = Helm(helm_program, box, "slinky", tmp_path)
    await asyncio.to_thread(helm.install, "slurm-operator", OPERATOR, "--set", "certManager.enabled=false")
    await cluster.until(lambda: cluster.checked() is not None, "Kubernetes has checked the policy")
    assert cluster.checked() == []
    nodes = box.kubectl("get", "nodes", "--output=jsonpath={.items[*].metadata.name}").split()
    owned, tainted, full, lost = nodes
    for name in ("background", "foreground"):
        cluster.kubectl("create", "configmap", name)
        cluster.make(name, owned, owner=name, **LABELS)
    cluster.make("tainted", tainted, **LABELS)
    room = box.kubectl("get", "node", full, "--output=jsonpath={.status.allocatable.cpu}")
    cluster.make("preempted", full, cpu=room, **LABELS)
    cluster.make("lost", lost, **LABELS)
    cluster.make("free", tainted)
    workers = ("background", "foreground", "tainted", "preempted")
    await cluster.until(lambda: cluster.running(*workers, "lost", "free"), "all pods run")

    cluster.kubectl("delete", "configmap", "background", "--cascade=background")
    cluster.kubectl("delete", "configmap", "foreground", "--cascade=foreground", "--wait=false")
    box.kubectl("taint", "node", tainted, "test=yes:NoExecute")
    cluster.create(
        apiVersion="scheduling.k8s.io/v1",
        kind="PriorityClass",
        metadata={"name": "urgent"},
        value=1_000_000,
    )
    cluster.make("urgent", full, cpu=room, priority="urgent")
    box.kubectl("delete", "node", lost)
    await cluster.until(lambda: cluster.refused() >= CONTROLLERS, "the controllers are refused")
    await cluster.until(lambda: "free" not in cluster.pods(), "a pod that is no worker is evicted")
    await cluster.until(lambda: "lost" not in cluster.pods(), "the pod of a lost node is gone", 300.0)
    assert cluster.running(*workers)

    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    await cluster.until(lambda: NAMESPACES in cluster.refused(), "the namespace controller is refused")
    assert cluster.running(*workers)
    # What the operator does when the cluster of the workers is deleted.
    cluster.kubectl("label", "pods", *workers, f"{wellknown.LABEL_POD_PROTECT}-")

    def gone() -> bool:
        return not box.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found")

    await cluster.until(gone, "the namespace is gone", 300.0)
