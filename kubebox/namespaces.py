"""Namespaces that come and go without a controller manager.

With only an API server nobody empties a deleted namespace: it stays Terminating and its objects stay for the
next test's informer to find. So we do what the namespace controller does: delete every collection in it,
free what finalizers hold back, and then let the namespace go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubebox.errors import BoxError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubebox.api import Api, Reply

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_MERGE = "application/merge-patch+json"
_NOT_FOUND = 404
_NOW = {
    "apiVersion": "v1",
    "kind": "DeleteOptions",
    "gracePeriodSeconds": 0,
    "propagationPolicy": "Background",
}


def create(api: Api, name: str) -> None:
    """Create a namespace."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    _check(api.request("POST", "/api/v1/namespaces", body), f"create namespace {name}")


def remove(api: Api, name: str) -> None:
    """Delete a namespace and everything in it, and return when both are gone."""
    path = f"/api/v1/namespaces/{name}"
    _check(api.request("DELETE", path, _NOW), f"delete namespace {name}")
    for collection in _collections(api, name):
        if _items(api, f"{collection}?limit=1"):
            api.request("DELETE", collection, _NOW)
            for item in _items(api, collection):
                _force(api, f"{collection}/{item['metadata']['name']}")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
    _check(api.request("PUT", f"{path}/finalize", body), f"finalize namespace {name}")


def _items(api: Api, path: str) -> list[dict[str, Any]]:
    # A resource may vanish under us (its CRD was deleted): then nothing is left of it.
    reply = api.request("GET", path)
    items: list[dict[str, Any]] = reply.json()["items"] if reply.ok else []
    return items


def _force(api: Api, path: str) -> None:
    api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=_MERGE)
    _check(api.request("DELETE", path, _NOW), f"delete {path}")


def _collections(api: Api, namespace: str) -> Iterator[str]:
    """Yield the path of each collection in the namespace that can be listed and deleted."""
    for root in ("/api", "/apis"):
        found = api.request("GET", root, accept=_DISCOVERY)
        _check(found, f"discover the resources under {root}")
        for group in found.json()["items"]:
            group_name = group.get("metadata", {}).get("name", "")
            seen: set[str] = set()
            for version in group["versions"]:
                prefix = "/".join(filter(None, (root, group_name, version["version"])))
                # Versions of a group show the same objects: the first one that has a resource will do.
                fresh = [name for name in _deletable(version) if name not in seen]
                seen.update(fresh)
                yield from (f"{prefix}/namespaces/{namespace}/{name}" for name in fresh)


def _deletable(version: dict[str, Any]) -> Iterator[str]:
    for item in version["resources"]:
        if item["scope"] == "Namespaced" and {"deletecollection", "list"} <= set(item["verbs"]):
            yield item["resource"]


def _check(reply: Reply, what: str) -> None:
    if not reply.ok and reply.status != _NOT_FOUND:
        raise BoxError(f"cannot {what}: HTTP {reply.status}: {reply.text()}")
