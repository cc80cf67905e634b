"""Workers that may run jobs behind a real API server: who may delete them, and what is recorded.

The policy and the webhook are those of the chart; the webhook runs under exactly the chart's permissions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.binaries import provide
from slurm_operator.api import removal, wellknown
from tests.support.charts.helm import OPERATOR, render
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.webhook.served_webhook import Answer, Server, Stage

from tests.integration.webhook.test_api_server import kubectl

REQUESTED = wellknown.ANNOTATION_REMOVAL_REQUESTED
LABELS = {wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD, wellknown.LABEL_POD_PROTECT: "true"}
SYSTEM = "system:serviceaccount:kube-system"
MERGE = "application/merge-patch+json"
ALICE = "alice@example.com"


@dataclass
class Workers:
    """Pods of one namespace, with the requests that could remove them."""

    server: Server
    namespace: str

    @property
    def pods(self) -> str:
        """Return the path of the pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def operator(self) -> str:
        """Return the user that the operator is."""
        return f"system:serviceaccount:{self.namespace}:slurm-operator"

    async def make(
        self,
        name: str,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        *,
        node: str | None = "nowhere",
        phase: str = "Running",
    ) -> str:
        """Create a pod: a protected worker on a node that nothing runs on, unless told otherwise."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": LABELS if labels is None else labels,
                "annotations": annotations or {},
            },
            "spec": {
                "containers": [{"name": "slurmd", "image": "any"}],
                **({} if node is None else {"nodeName": node}),
            },
        }
        answer = await self.server.ask("POST", self.pods, body)
        assert answer.status == 201, answer
        await self.server.ask("PATCH", f"{self.pods}/{name}/status", {"status": {"phase": phase}}, kind=MERGE)
        return name

    async def delete(self, name: str, user: str = "", group: str = "", **options: Any) -> Answer:
        """Delete one pod."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        return await self.server.ask("DELETE", f"{self.pods}/{name}", body, user=user, group=group)

    async def evict(self, name: str, user: str = "", query: str = "", **options: Any) -> Answer:
        """Evict one pod."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": self.namespace},
            **({"deleteOptions": options} if options else {}),
        }
        more = {"dryRun": query} if query else {}
        return await self.server.ask("POST", f"{self.pods}/{name}/eviction", body, user=user, **more)

    async def get(self, name: str) -> dict[str, Any] | None:
        """Return a pod, or None."""
        answer = await self.server.ask("GET", f"{self.pods}/{name}")
        return None if answer.status == 404 else answer.body

    async def requested(self, name: str) -> str | None:
        """Return what is recorded on a pod that is not being deleted."""
        pod = await self.get(name)
        assert pod is not None
        assert "deletionTimestamp" not in pod["metadata"]
        text: str | None = pod["metadata"].get("annotations", {}).get(REQUESTED)
        return text

    async def annotate(self, name: str, value: str) -> None:
        """Set the annotation of a request."""
        change = {"metadata": {"annotations": {REQUESTED: value}}}
        assert (await self.server.ask("PATCH", f"{self.pods}/{name}", change, kind=MERGE)).status == 200

    async def budget(self) -> None:
        """Protect workers by the budget of the operator, with what its controller would say of it."""
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "workers"},
            "spec": {
                "minAvailable": 2147483647,
                "selector": {"matchLabels": LABELS},
                "unhealthyPodEvictionPolicy": "IfHealthyBudget",
            },
        }
        answer = await self.server.ask("POST", path, body)
        assert answer.status in (201, 409), answer
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 2147483647,
            "expectedPods": 1,
        }
        change = {"status": status}
        assert (await self.server.ask("PATCH", f"{path}/workers/status", change, kind=MERGE)).status == 200


@contextlib.contextmanager
def guarded(stage: Stage) -> Iterator[Workers]:
    """Install the chart's policy for the namespace of a stage."""
    namespace = stage.server.namespace
    made = render(
        provide(["helm"], print)["helm"],
        OPERATOR,
        *("--show-only", "templates/operator/deletionprotection.yaml"),
        *("--set", f"uniqueNames=true,operator.namespaces={namespace}"),
        release="slurm-operator",
        namespace=namespace,
    )
    text = "\n---\n".join(map(json.dumps, made))
    workers = Workers(stage.server, namespace)
    stage.box.kubectl("apply", "-f", "-", stdin=text)
    try:
        asyncio.run(_until_known(workers))
        yield workers
    finally:
        stage.box.kubectl("delete", "-f", "-", stdin=text)
        asyncio.run(_until_forgotten(workers))


async def _until_forgotten(workers: Workers) -> None:
    """Wait until the API server deletes workers again, as those who clean up will want it to."""

    async def gone() -> bool:
        return (await workers.delete("first", gracePeriodSeconds=0)).status in (200, 404)

    await eventually(gone, "the policy is gone")


async def _until_known(workers: Workers) -> None:
    """Wait until the API server has heard of the policy and of the mutating webhook."""
    await workers.make("first")

    async def refused() -> bool:
        return (await workers.delete("first", dryRun=["All"])).status == 403

    async def recorded() -> bool:
        await workers.delete("first")
        return await workers.requested("first") is not None

    await eventually(refused, "the policy refuses")
    await eventually(recorded, "the webhook records")


@pytest.fixture(scope="module")
def workers(shared_stage: Stage) -> Iterator[Workers]:
    """Hand out pods in a namespace with the policy and the webhook."""
    with guarded(shared_stage) as made:
        yield made


# --- the policy


@pytest.mark.parametrize(
    "user",
    [
        "",
        ALICE,
        "system:kube-scheduler",
        "system:kube-controller-manager",
        f"{SYSTEM}:generic-garbage-collector",
        f"{SYSTEM}:namespace-controller",
        f"{SYSTEM}:node-controller",
        "system:serviceaccount:other:slurm-operator",
    ],
)
async def test_a_protected_worker_is_not_deleted(workers: Workers, user: str) -> None:
    """An administrator, the scheduler and the controllers of Kubernetes are refused, and told what to do."""
    name = await workers.make(f"refused-{abs(hash(user))}")
    said = ""
    for options in ({}, {"gracePeriodSeconds": 0}, {"propagationPolicy": "Foreground"}):
        answer = await workers.delete(name, user, **options)
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
        said = answer.body["message"]
    where = f"kubectl annotate pod {name} -n {workers.namespace} {wellknown.NODESET_PREFIX}"
    assert f"worker {name} may run Slurm jobs" in said
    assert f"{where}allow-deletion=true" in said
    pod = await workers.get(name)
    assert pod is not None
    assert "deletionTimestamp" not in pod["metadata"]


async def test_those_who_are_exempt_delete_a_protected_worker(workers: Workers) -> None:
    """The operator, a kubelet and the pod garbage collector are not refused."""
    exempt = (
        (workers.operator, ""),
        (f"{SYSTEM}:pod-garbage-collector", ""),
        ("system:node:nowhere", "system:nodes"),
    )
    for number, (user, group) in enumerate(exempt):
        name = await workers.make(f"exempt-{number}")
        assert (await workers.delete(name, user, group, gracePeriodSeconds=0)).status == 200, user
        assert await workers.get(name) is None


async def test_pods_that_run_no_job_are_deleted(workers: Workers) -> None:
    """A worker that was never scheduled, has finished or has lost its protection, and any other pod."""
    override = {wellknown.ANNOTATION_ALLOW_DELETION: "true"}
    names = [
        await workers.make("unscheduled", node=None, phase="Pending"),
        await workers.make("succeeded", phase="Succeeded"),
        await workers.make("failed", phase="Failed"),
        await workers.make("overridden", annotations=override),
        await workers.make("idle", {wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD}),
        await workers.make("released", LABELS | {wellknown.LABEL_POD_PROTECT: "false"}),
        await workers.make("other", {}),
    ]
    for name in names:
        assert (await workers.delete(name, ALICE, gracePeriodSeconds=0)).status == 200, name
        assert await workers.get(name) is None
    almost = await workers.make("not-overridden", annotations={wellknown.ANNOTATION_ALLOW_DELETION: "yes"})
    assert (await workers.delete(almost, ALICE)).status == 403


async def test_a_terminating_worker_is_not_deleted_by_force(workers: Workers) -> None:
    """Its job steps have the grace period; only the kubelet ends the pod earlier."""
    name = await workers.make("terminating")
    assert (await workers.delete(name, workers.operator, gracePeriodSeconds=3600)).status == 200
    for user in ("", ALICE, f"{SYSTEM}:namespace-controller"):
        assert (await workers.delete(name, user, gracePeriodSeconds=0)).status == 403
    pod = await workers.get(name)
    assert pod is not None
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 3600
    assert REQUESTED not in pod["metadata"].get("annotations", {})
    kubelet = ("system:node:nowhere", "system:nodes")
    assert (await workers.delete(name, *kubelet, gracePeriodSeconds=0)).status == 200
    assert await workers.get(name) is None


async def test_other_namespaces_are_not_protected(shared_stage: Stage, workers: Workers) -> None:
    """Where another operator works, or none, the label means nothing."""
    assert workers.namespace != shared_stage.outside.namespace
    elsewhere = Workers(shared_stage.outside, shared_stage.outside.namespace)
    name = await elsewhere.make("elsewhere")
    assert (await elsewhere.delete(name, ALICE, gracePeriodSeconds=0)).status == 200
    assert await elsewhere.get(name) is None


async def test_a_collection_is_refused_and_not_recorded(workers: Workers) -> None:
    """Deleting by a selector in one request is checked for each pod, and shown to no mutating webhook."""
    mark = {"collection": "yes"}
    names = [await workers.make(f"collected-{number}", LABELS | mark) for number in range(3)]
    free = await workers.make("collected-free", mark)
    answer = await workers.server.ask("DELETE", workers.pods, labelSelector="collection=yes")
    assert answer.status == 403
    assert "may run Slurm jobs" in answer.body["message"]
    for name in names:
        assert await workers.requested(name) is None
    # A collection of pods that are not protected goes as always.
    only = "collection=yes,!" + wellknown.LABEL_POD_PROTECT
    query = {"labelSelector": only, "gracePeriodSeconds": "0"}
    assert (await workers.server.ask("DELETE", workers.pods, **query)).status == 200
    assert await workers.get(free) is None


# --- what is recorded


async def test_a_refused_deletion_is_recorded(shared_stage: Stage, workers: Workers) -> None:
    """The webhook comes before the policy: kubectl shows that the removal is requested, and by whom."""
    name = await workers.make("deleted")
    said = await asyncio.to_thread(
        kubectl, shared_stage, "delete", "pod", name, f"--as={ALICE}", "--as-group=system:masters", stdin=""
    )
    text = await workers.requested(name)
    assert said.returncode == 1
    assert text is not None
    assert text.endswith(f" deletion by {ALICE}")
    assert f"Its removal is requested ({text})" in said.stderr
    request = removal.read({REQUESTED: text})
    assert request is not None
    assert request.live(datetime.now(UTC))


@pytest.mark.parametrize("user", ["system:kube-scheduler", "system:serviceaccount:ci:deployer"])
async def test_a_deletion_by_a_system_user_names_the_command(
    shared_stage: Stage, workers: Workers, user: str
) -> None:
    """It is not shown to the webhook; the command in the refusal makes the request."""
    name = await workers.make(f"system-{abs(hash(user))}")
    answer = await workers.delete(name, user)
    command = f"kubectl annotate pod {name} -n {workers.namespace} {REQUESTED}=true"
    assert command in answer.body["message"]
    assert await workers.requested(name) is None
    said = await asyncio.to_thread(kubectl, shared_stage, *command.split()[1:], stdin="")
    assert said.returncode == 0, said.stderr
    again = await workers.delete(name, user)
    assert (again.status, "Its removal is requested (true)" in again.body["message"]) == (403, True)


@pytest.mark.parametrize(
    "user", [ALICE, "system:serviceaccount:kube-system:cluster-autoscaler", "system:admin"]
)
async def test_a_refused_eviction_is_recorded_once_in_thirty_seconds(workers: Workers, user: str) -> None:
    """A client that repeats its eviction causes one write, until the record is thirty seconds old."""
    await workers.budget()
    name = await workers.make(f"evicted-{abs(hash(user))}")
    assert (await workers.evict(name, user)).status == 429
    text = await workers.requested(name)
    assert text is not None
    assert text.endswith(f" eviction by {user}")
    before = await workers.get(name)
    for _ in range(3):
        assert (await workers.evict(name, user)).status == 429
    assert await workers.get(name) == before
    old = removal.text(datetime.now(UTC) - timedelta(seconds=40), "eviction by bob")
    await workers.annotate(name, old)
    assert (await workers.evict(name, user)).status == 429
    text = await workers.requested(name)
    assert text is not None
    assert text.endswith(f" eviction by {user}")


async def test_a_dry_run_records_nothing(shared_stage: Stage, workers: Workers) -> None:
    """Neither of a deletion nor of an eviction, whether the request or its body says so."""
    await workers.budget()
    name = await workers.make("dry")
    before = await workers.get(name)
    assert (await workers.delete(name, ALICE, dryRun=["All"])).status == 403
    assert (await workers.evict(name, ALICE, query="All")).status == 429
    assert (await workers.evict(name, ALICE, dryRun=["All"])).status == 429
    assert (await workers.server.ask("DELETE", f"{workers.pods}/{name}", dryRun="All")).status == 403
    drain = ("delete", "pod", name, "--dry-run=server")
    await asyncio.to_thread(kubectl, shared_stage, *drain, stdin="")
    assert await workers.get(name) == before
    # Had it been a real one, it would have been recorded.
    await workers.evict(name, ALICE)
    assert await workers.requested(name) is not None


async def test_a_request_about_a_former_pod_is_not_recorded(workers: Workers) -> None:
    """Who deletes the pod of before, by its uid, does not ask the new one of that name to go."""
    await workers.budget()
    name = await workers.make("former")
    other: dict[str, Any] = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert (await workers.delete(name, ALICE, **other)).status in (403, 409)
    await workers.evict(name, ALICE, **other)
    assert await workers.requested(name) is None


async def test_other_pods_are_not_written_to(workers: Workers) -> None:
    """A pod that is no protected worker is deleted as it is."""
    finalizer = "test/hold"
    for name, labels in (("plain", {}), ("ctld", LABELS | {wellknown.LABEL_APP_NAME: "slurmctld"})):
        await workers.make(name, labels, node=None)
        path = f"{workers.pods}/{name}"
        await workers.server.ask("PATCH", path, {"metadata": {"finalizers": [finalizer]}}, kind=MERGE)
        assert (await workers.delete(name, ALICE)).status == 200
        pod = await workers.get(name)
        assert pod is not None
        assert REQUESTED not in pod["metadata"].get("annotations", {})
        await workers.server.ask("PATCH", path, {"metadata": {"finalizers": None}}, kind=MERGE)


# --- outage


async def test_protection_needs_no_webhook(own_stage: Stage) -> None:
    """Without the webhook workers are protected as before, and all other pods are deleted as before."""
    guard = guarded(own_stage)
    workers = await asyncio.to_thread(guard.__enter__)
    try:
        await workers.budget()
        own_stage.process.__exit__()
        name = await workers.make("alone")
        answer = await workers.delete(name, ALICE)
        assert (answer.status, f"{REQUESTED}=true" in answer.body["message"]) == (403, True)
        assert (await workers.evict(name, ALICE)).status == 429
        assert await workers.requested(name) is None
        for other, labels in (("free-1", {}), ("free-2", {wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD})):
            await workers.make(other, labels)
            assert (await workers.delete(other, ALICE, gracePeriodSeconds=0)).status == 200
            assert await workers.get(other) is None
        free = await workers.make("free-3", {})
        assert (await workers.evict(free, ALICE)).status == 201
    finally:
        await asyncio.to_thread(guard.__exit__, None, None, None)
