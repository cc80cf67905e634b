"""What a cluster of real nodes needs in the API server: names for services (CoreDNS) and storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubebox.images.names import COREDNS_IMAGE
from kubebox.nodes.files import CLUSTER_DNS, CLUSTER_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Manifest = Mapping[str, Any]

DNS = "coredns"
PROVISIONER, STORAGE_CLASS = "kubebox.local/folder", "standard"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_SYSTEM = "kube-system"
_SELECTOR = {"k8s-app": "kube-dns"}
# The dot: a name that does not exist is to be told from a server that fails, as everywhere with a resolver
# behind it. Slurm asks the latter again for ten seconds each time.
_COREFILE = f"""\
.:53 {{
    errors
    health :8080
    ready :8181
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa . {{
        pods insecure
        ttl 5
    }}
    cache 5
    loadbalance
}}
"""


def manifests() -> Iterator[tuple[str, Manifest]]:
    """Yield each object with the path of its collection."""
    yield "/apis/storage.k8s.io/v1/storageclasses", _storage_class()
    yield f"/api/v1/namespaces/{_SYSTEM}/serviceaccounts", _object("v1", "ServiceAccount", DNS)
    yield f"{_RBAC}/clusterroles", _role()
    yield f"{_RBAC}/clusterrolebindings", _binding()
    yield (
        f"/api/v1/namespaces/{_SYSTEM}/configmaps",
        _object("v1", "ConfigMap", DNS, data={"Corefile": _COREFILE}),
    )
    yield f"/apis/apps/v1/namespaces/{_SYSTEM}/deployments", _deployment()
    yield f"/api/v1/namespaces/{_SYSTEM}/services", _service()


def dns_path() -> str:
    """Return the path of the Deployment of CoreDNS."""
    return f"/apis/apps/v1/namespaces/{_SYSTEM}/deployments/{DNS}"


def _object(version: str, kind: str, name: str, **fields: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def _storage_class() -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def _role() -> Manifest:
    watched = {"": ["endpoints", "services", "pods", "namespaces"], "discovery.k8s.io": ["endpointslices"]}
    return _object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "system:coredns",
        rules=[
            {"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]}
            for group, resources in watched.items()
        ],
    )


def _binding() -> Manifest:
    return _object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "system:coredns",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        subjects=[{"kind": "ServiceAccount", "name": DNS, "namespace": _SYSTEM}],
    )


def _deployment() -> Manifest:
    container = {
        "name": DNS,
        "image": COREDNS_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": DNS, "labels": _SELECTOR},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _SELECTOR},
            "template": {
                "metadata": {"labels": _SELECTOR},
                "spec": {
                    "serviceAccountName": DNS,
                    "priorityClassName": "system-cluster-critical",
                    "dnsPolicy": "Default",
                    "securityContext": {
                        "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
                    },
                    # It comes back at once when its node is gone: every other pod needs it.
                    "tolerations": [
                        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
                        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
                    ],
                    "containers": [container],
                    "volumes": [{"name": "config", "configMap": {"name": DNS}}],
                },
            },
        },
    }


def _service() -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "labels": _SELECTOR},
        "spec": {
            "clusterIP": CLUSTER_DNS,
            "selector": _SELECTOR,
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ],
        },
    }
