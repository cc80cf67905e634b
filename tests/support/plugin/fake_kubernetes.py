"""An API server on loopback with the objects of one state, for what the command prints about each state.

That the command works with a real API server is shown in tests/integration/plugin; here a hundred and more
calls take seconds, and a state can be one that takes long to bring about.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from slurm_operator.api import KINDS, wellknown
from tests.support.plugin.fake_manager import FakeManager

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_operator.status_rows import ConditionRow, WorkerRow
    from tests.support.plugin.sample_state import State

POD = "manager-0"
OPERATOR, SLURM = "slinky", "slurm"
CORE, GROUP = "/api/v1", f"/apis/{wellknown.GROUP}/v1beta1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SLICES = "/apis/discovery.k8s.io/v1/namespaces"
# Of all objects: ages of the limited view are those of the clock, and change every half an hour only.
CREATED = f"{datetime.now(UTC) - timedelta(hours=9, minutes=30):%Y-%m-%dT%H:%M:%SZ}"
Manifest = dict[str, Any]


def _word(state: str) -> str:
    return "".join(part.capitalize() for part in state.split("_"))


def _condition(kind: str, status: str, reason: str = "", message: str = "") -> Manifest:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": CREATED,
    }


def _conditions(rows: tuple[ConditionRow, ...]) -> list[Manifest]:
    return [_condition(one.type, one.status, one.reason, one.message) for one in rows]


def worker_pod(row: WorkerRow) -> Manifest:
    """Return the pod of a worker, with what the operator writes on it."""
    annotations = {wellknown.ANNOTATION_POD_CORDON: "true"} if row.cordoned else {}
    annotations |= {wellknown.ANNOTATION_POD_CORDON_BY: row.cordoned_by} if row.cordoned_by else {}
    labels = {
        wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD,
        wellknown.LABEL_APP_INSTANCE: row.nodeset,
        wellknown.LABEL_APP_PART_OF: wellknown.APPLICATION,
        wellknown.LABEL_CLUSTER: row.cluster,
        wellknown.LABEL_POD_PROTECT: str(row.protected).lower(),
        wellknown.LABEL_REVISION_HASH: row.revision,
    }
    conditions = [_condition("Ready", str(row.ready))]
    conditions += [
        _condition(f"{wellknown.POD_CONDITION_PREFIX}{_word(one)}", "True", "", row.state_reason)
        for one in row.state
    ]
    if row.blocked is not None and row.blocked.action == "delete":
        safe = _condition(wellknown.POD_CONDITION_SAFE, "False", row.blocked.reason, row.blocked.message)
        conditions.append(safe)
    if not row.kubernetes_node:
        reason, _, message = row.problem.partition(": ")
        conditions.append(_condition("PodScheduled", "False", reason, message))
    status: Manifest = {"phase": row.phase, "conditions": conditions}
    if row.problem and row.kubernetes_node:
        waiting = {"reason": row.problem.split(maxsplit=1)[0], "message": row.problem.partition("): ")[2]}
        image = {"name": "slurmd", "image": "registry.example/slurmd:1", "imageID": "", "restartCount": 0}
        status["containerStatuses"] = [{**image, "ready": False, "state": {"waiting": waiting}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": row.pod,
            "namespace": row.namespace,
            "uid": row.pod,
            "resourceVersion": "1",
            "creationTimestamp": CREATED,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "slurmd"}], "hostname": row.pod, "nodeName": row.kubernetes_node},
        "status": status,
    }


def _named(name: str, namespace: str = "", **content: Any) -> Manifest:
    place = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, **place, "creationTimestamp": CREATED}, **content}


def _slices(ready: bool) -> list[Manifest]:  # noqa: FBT001 - one word at each call
    return [{"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]}]


def installation(bundle: str) -> dict[str, Any]:
    """Return what a complete installation has, by path: objects, and lists of objects."""
    rule = {"apiGroups": [wellknown.GROUP]}
    service = {"namespace": OPERATOR, "name": "slurm-operator-webhook"}
    hook = {"clientConfig": {"service": service, "caBundle": bundle}, "rules": [rule]}
    labels = {"matchLabels": {wellknown.LABEL_POD_PROTECT: "true"}}
    crds = [
        {
            "metadata": {"name": f"{kind.RESOURCE.plural}.{wellknown.GROUP}"},
            "spec": {
                "group": wellknown.GROUP,
                "versions": [{"name": kind.RESOURCE.version, "served": True}],
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        }
        for kind in KINDS
    ]
    container = {"name": "slurm-operator", "ports": [{"name": "status", "containerPort": 8082}]}
    lease = {"holderIdentity": f"{POD}_1234"}
    return {
        "/version": {"gitVersion": "v1.36.2"},
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": crds,
        f"{ADMISSION}/validatingwebhookconfigurations": [_named("slurm-operator", webhooks=[hook])],
        f"{ADMISSION}/validatingadmissionpolicies": [
            _named("protect", spec={"matchConstraints": {"objectSelector": labels}})
        ],
        f"{SLICES}/{OPERATOR}/endpointslices": _slices(ready=True),
        f"{SLICES}/kube-system/endpointslices": _slices(ready=True),
        f"{CORE}/namespaces/kube-system/services/kube-dns": _named("kube-dns", "kube-system"),
        f"{CORE}/namespaces/{SLURM}/persistentvolumeclaims": [],
        f"{CORE}/persistentvolumeclaims": [],
        "/apis/storage.k8s.io/v1/storageclasses": [],
        f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR}/leases/slurm-operator": _named(
            "slurm-operator", OPERATOR, spec=lease
        ),
        f"{CORE}/namespaces/{OPERATOR}/pods": [],
        f"{CORE}/namespaces/{OPERATOR}/pods/{POD}": _named(POD, OPERATOR, spec={"containers": [container]}),
        "/apis/coordination.k8s.io/v1/leases": [],
    }


def cluster_objects(state: State) -> dict[str, Any]:
    """Return the objects of a Slurm cluster in a state, by path."""
    controllers = [
        _named(one.name, one.namespace, status={"conditions": _conditions(one.conditions)})
        for one in state.clusters
    ]
    for one, row in zip(controllers, state.clusters, strict=True):
        status = "True" if row.connected else "False"
        one["status"]["conditions"].append(_condition("SlurmApiReady", status, row.reason, row.message))
    nodesets = [
        _named(
            one.name,
            one.namespace,
            spec={"controllerRef": {"name": one.cluster}, "replicas": one.replicas},
            status={
                "desired": one.desired,
                "replicas": one.pods,
                "readyReplicas": one.ready,
                "updatedReplicas": one.updated,
                "availableReplicas": one.available,
                "nodeSetHash": one.revision,
                "conditions": _conditions(one.conditions),
            },
        )
        for one in state.nodesets
    ]
    for made, scaled in zip(nodesets, state.nodesets, strict=True):
        if (scaling := scaled.autoscaling) is not None:
            bounds = {"minReplicas": scaling.min_replicas, "maxReplicas": scaling.max_replicas}
            made["spec"]["autoscaling"] = bounds
    pods = [worker_pod(one) for one in state.workers if not one.without_pod]
    found: dict[str, Any] = {}
    for place in ("", f"/namespaces/{SLURM}"):
        found[f"{CORE}{place}/pods"] = pods
        found[f"{GROUP}{place}/controllers"] = controllers
        found[f"{GROUP}{place}/nodesets"] = nodesets
        found[f"/apis/events.k8s.io/v1{place}/events"] = []
    for pod in pods:
        found[f"{CORE}/namespaces/{SLURM}/pods/{pod['metadata']['name']}"] = pod
    for node in {one.kubernetes_node for one in state.workers}:
        found[f"{CORE}/nodes/{node}/proxy/metrics"] = "kubelet_cgroup_version 2\n"
    return found


class FakeKubernetes:
    """Answers from `objects`, by path, and refuses what begins as one of `forbidden` does.

    The pod proxy leads to a manager that serves the same state.
    """

    def __init__(self, state: State, bundle: str) -> None:
        self.objects = installation(bundle) | cluster_objects(state)
        self._bundle = bundle
        self.forbidden: tuple[str, ...] = ()
        self.denied: tuple[str, ...] = ()
        self.patched: list[Manifest] = []
        self.paths: list[str] = []
        """What was asked for, apart from the manager."""
        self.manager = FakeManager()
        self.manager.state = state
        self.server = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        proxied = f"{CORE}/namespaces/{OPERATOR}/pods/{POD}:8082/proxy/api/v1"
        app.router.add_get(f"{proxied}/stream", self.manager.stream)
        app.router.add_get(f"{proxied}/{{what}}", self.manager.api)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.server = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig whose context has the namespace of Slurm."""
        # Without an authority every call would read those of the system, though nothing is encrypted here.
        cluster = {"server": self.server, "certificate-authority-data": self._bundle}
        content = {
            "clusters": [{"name": "x", "cluster": cluster}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": SLURM}}],
            "users": [{"name": "x", "user": {}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    async def _answer(self, request: web.Request) -> web.Response:
        method, path = request.method, request.path
        self.paths.append(path)
        if any(f"{method} {path}".startswith(one) or path.startswith(one) for one in self.forbidden):
            return _status(403, "Forbidden", f"ann cannot {method.lower()} {path.rpartition('/')[2]}")
        if method == "POST":
            return self._created(path, await request.json())
        found = self.objects.get(path)
        if found is None:
            return _status(404, "NotFound", f"{path} not found")
        if method == "PATCH":
            self.patched.append(await request.json())
            return web.json_response(found)
        if isinstance(found, str):
            return web.Response(text=found)
        return web.json_response(
            {"metadata": {"resourceVersion": "1"}, "items": found} if isinstance(found, list) else found
        )

    def _created(self, path: str, body: Manifest) -> web.Response:
        if path.endswith("/selfsubjectreviews"):
            return web.json_response({"status": {"userInfo": {"username": "ann"}}})
        if path.endswith("/selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            word = f"{asked['verb']} {asked['resource']}"
            return web.json_response({"status": {"allowed": word not in self.denied}})
        if path == f"{CORE}/namespaces/{OPERATOR}/serviceaccounts/slurm-operator-viewer/token":
            claims = base64.urlsafe_b64encode(json.dumps({"aud": body["spec"]["audiences"]}).encode())
            return web.json_response({"status": {"token": f"x.{claims.decode().rstrip('=')}.x"}})
        return _status(404, "NotFound", f"{path} not found")


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)
