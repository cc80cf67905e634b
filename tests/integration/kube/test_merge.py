from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.manifests.merge import strategic_merge
from slurm_operator.kube.manifests.merge_keys import TYPES, MergeField

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client

# The group of each kind in the table, as the OpenAPI document names its definition.
GROUPS = {
    "ConfigMap": "core",
    "ControllerRevision": "apps",
    "DaemonSet": "apps",
    "Deployment": "apps",
    "Event": "events",
    "Lease": "coordination",
    "Namespace": "core",
    "Node": "core",
    "PersistentVolumeClaim": "core",
    "Pod": "core",
    "PodDisruptionBudget": "policy",
    "ReplicaSet": "apps",
    "Secret": "core",
    "Service": "core",
    "ServiceAccount": "core",
    "StatefulSet": "apps",
}

LABELS = {"app": "web"}
POD_SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "a",
            "image": "example.org/a:1",
            "args": ["x", "y"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 443}],
            "securityContext": {"privileged": True, "runAsUser": 7},
            "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
        },
        {"name": "b", "image": "example.org/b:1"},
        {"name": "c", "image": "example.org/c:1"},
    ],
    "nodeSelector": {"zone": "one"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["one"]}],
    "volumes": [{"name": "data", "emptyDir": {}}, {"name": "extra", "emptyDir": {}}],
}
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "web", "labels": {"a": "1"}, "finalizers": ["example.org/a", "example.org/b"]},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": LABELS}, "spec": POD_SPEC},
    },
}


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def container(**fields: Any) -> dict[str, Any]:
    return template(containers=[{"name": "a", **fields}])


PATCHES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "false, zero and empty": {
        "metadata": {"labels": {"a": ""}},
        "spec": {"replicas": 0, **container(securityContext={"privileged": False, "runAsUser": 0})["spec"]},
    },
    "image of one container": template(containers=[{"name": "b", "image": "example.org/b:2"}]),
    "containers added and reordered": template(
        containers=[{"name": "new", "image": "example.org/n:1"}, {"name": "c", "image": "example.org/c:2"}]
    ),
    "lists of a container": container(
        args=["z"],
        env=[{"name": "C", "value": ""}, {"name": "A", "value": "0"}],
        ports=[{"containerPort": 443, "name": "https"}, {"containerPort": 8080}],
        volumeMounts=[{"name": "extra", "mountPath": "/data"}, {"name": "data", "mountPath": "/more"}],
    ),
    "nulls": template(
        nodeSelector=None, tolerations=None, containers=[{"name": "a", "args": None, "env": None}]
    ),
    "atomic lists": template(tolerations=[{"key": "other", "operator": "Exists"}]),
    "element deleted": template(containers=[{"name": "b", "$patch": "delete"}]),
    "list replaced": template(containers=[{"$patch": "replace"}, {"name": "z", "image": "example.org/z:1"}]),
    "map replaced": template(nodeSelector={"$patch": "replace", "disk": "ssd"}),
    "volume source exchanged": template(
        volumes=[{"$retainKeys": ["name", "secret"], "name": "data", "secret": {"secretName": "s"}}]
    ),
    "strategy exchanged": {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
    "order set": template(
        **{
            "$setElementOrder/containers": [{"name": "c"}, {"name": "new"}, {"name": "a"}],
            "containers": [{"name": "new", "image": "example.org/n:1"}, {"name": "b", "$patch": "delete"}],
        }
    ),
    "finalizers": {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["example.org/a"],
            "$setElementOrder/finalizers": ["example.org/c", "example.org/b"],
            "finalizers": ["example.org/c"],
        }
    },
    "aliases": template(
        hostAliases=[{"ip": "192.0.2.2", "hostnames": ["two"]}, {"ip": "192.0.2.1", "hostnames": ["uno"]}]
    ),
}


def wanted(answer: dict[str, Any]) -> dict[str, Any]:
    metadata = answer["metadata"]
    kept = {key: metadata.get(key) for key in ("labels", "annotations", "finalizers", "ownerReferences")}
    return {"metadata": kept, "spec": answer["spec"]}


async def on_server(client: Client, method: str, path: str, body: Any, content_type: str) -> dict[str, Any]:
    """Return what the server would make of a write, with its defaults filled in."""
    query = {"dryRun": "All"}
    text = await client.raw(method, path, body=body, query=query, content_type=content_type)
    return wanted(json.loads(text))


async def compare(client: Client, path: str, schema: str, patch: dict[str, Any]) -> None:
    live = json.loads(await client.raw("GET", path))
    theirs = await on_server(client, "PATCH", path, patch, PatchType.STRATEGIC.value)
    ours = strategic_merge(live, patch, schema)
    assert await on_server(client, "PUT", path, ours, "application/json") == theirs


@pytest.mark.parametrize("case", PATCHES)
async def test_deployment_patches_as_the_server_does(client: Client, kube_namespace: str, case: str) -> None:
    """What our merge makes of a Deployment, the server makes of it as well."""
    collection = f"/apis/apps/v1/namespaces/{kube_namespace}/deployments"
    body = {"apiVersion": "apps/v1", "kind": "Deployment", **DEPLOYMENT}
    await client.raw("POST", collection, body=body)
    await compare(client, f"{collection}/web", "Deployment", PATCHES[case])


async def test_service_patches_as_the_server_does(client: Client, kube_namespace: str) -> None:
    """Service ports merge by port."""
    collection = f"/api/v1/namespaces/{kube_namespace}/services"
    spec = {"selector": LABELS, "ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    await client.raw("POST", collection, body=body)
    patch = {"spec": {"ports": [{"port": 443, "targetPort": 8443}, {"port": 22, "name": "ssh"}]}}
    await compare(client, f"{collection}/web", "Service", patch)


async def test_disruption_budget_patches_as_the_server_does(client: Client, kube_namespace: str) -> None:
    """The selector of a disruption budget is replaced as a whole."""
    collection = f"/apis/policy/v1/namespaces/{kube_namespace}/poddisruptionbudgets"
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"a": "1"}}}
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": spec,
    }
    await client.raw("POST", collection, body=body)
    patch = {"spec": {"selector": {"matchLabels": {"b": "1"}}}}
    await compare(client, f"{collection}/web", "PodDisruptionBudget", patch)


async def test_table_is_what_the_server_publishes(client: Client) -> None:
    """The table holds the strategies and keys of the OpenAPI document for our kinds, and no others."""
    document = json.loads(await client.raw("GET", "/openapi/v2"))
    definitions: dict[str, Any] = document["definitions"]
    reached: dict[str, dict[str, MergeField]] = {}

    def target(schema: dict[str, Any]) -> str:
        for place in (schema, schema.get("items", {}), *schema.get("allOf", ())):
            if "$ref" in place:
                return str(place["$ref"]).rpartition("/")[2]
        return ""

    def visit(name: str) -> None:
        if name in reached:
            return
        fields = reached[name] = {}
        for key, schema in definitions[name].get("properties", {}).items():
            below = target(schema)
            strategy = schema.get("x-kubernetes-patch-strategy", "")
            fields[key] = MergeField(strategy, schema.get("x-kubernetes-patch-merge-key", ""), below)
            if below:
                visit(below)

    for kind, group in GROUPS.items():
        visit(f"io.k8s.api.{group}.v1.{kind}")
    # Only types with a strategy somewhere below them belong in the table.
    useful: set[str] = set()
    while more := {
        name
        for name, fields in reached.items()
        if name not in useful and any(field.strategy or field.type in useful for field in fields.values())
    }:
        useful |= more
    published = {
        name.rpartition(".")[2]: {
            key: field._replace(type=field.type.rpartition(".")[2] if field.type in useful else "")
            for key, field in reached[name].items()
            if field.strategy or field.type in useful
        }
        for name in useful
    }
    assert published == TYPES
