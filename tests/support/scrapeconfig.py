"""What the Prometheus operator makes of a ServiceMonitor: the scrape configuration of Prometheus; pure.

The Prometheus operator itself is not part of the tests. Its documentation says which relabelings it puts in
front of those of a ServiceMonitor: one that keeps the Services with the labels of the selector, one that
keeps the port by its name, and those that give a target the labels `namespace`, `service`, `pod`,
`container`, `job` and `endpoint`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from pathlib import Path

Role = Literal["endpoints", "endpointslice"]
ROLES: tuple[Role, ...] = get_args(Role)
# What the labels of the two roles are called.
_META = {"endpoints": "endpoint", "endpointslice": "endpointslice"}
_FIELDS = {
    "sourceLabels": "source_labels",
    "targetLabel": "target_label",
    "separator": "separator",
    "regex": "regex",
    "modulus": "modulus",
    "replacement": "replacement",
    "action": "action",
}


def configuration(
    kubeconfig: Path,
    monitors: list[dict[str, Any]],
    roles: tuple[Role, ...] = ROLES,
    places: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return a configuration of Prometheus for ServiceMonitors.

    `places` says where the addresses of pods are on this machine.
    """
    discovery = {"kubeconfig_file": str(kubeconfig)}
    jobs = [job for one in monitors for role in roles for job in scrape_configs(one, role, discovery)]
    for job in jobs:
        job["relabel_configs"] += [
            {
                "source_labels": ["__address__"],
                "regex": address.replace(".", r"\."),
                "target_label": "__address__",
                "replacement": place,
            }
            for address, place in (places or {}).items()
        ]
    return {"scrape_configs": jobs}


def scrape_configs(monitor: dict[str, Any], role: Role, discovery: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one scrape configuration for each endpoint of a ServiceMonitor.

    `discovery` says how the API server is reached.
    """
    metadata, spec = monitor["metadata"], monitor["spec"]
    namespaces = spec.get("namespaceSelector", {}).get("matchNames") or [metadata["namespace"]]
    return [
        {
            "job_name": f"serviceMonitor/{metadata['namespace']}/{metadata['name']}/{index}/{role}",
            "honor_labels": endpoint.get("honorLabels", False),
            "follow_redirects": endpoint.get("followRedirects", True),
            "metrics_path": endpoint.get("path", "/metrics"),
            "scheme": endpoint.get("scheme", "http"),
            **_times(endpoint),
            "kubernetes_sd_configs": [{"role": role, "namespaces": {"names": namespaces}, **discovery}],
            "relabel_configs": [
                *_selected(spec["selector"]["matchLabels"]),
                *_target_labels(endpoint["port"], role),
                *(_relabeling(rule) for rule in endpoint.get("relabelings", ())),
            ],
        }
        for index, endpoint in enumerate(spec["endpoints"])
    ]


def _times(endpoint: dict[str, Any]) -> dict[str, str]:
    names = {"interval": "scrape_interval", "scrapeTimeout": "scrape_timeout"}
    return {names[name]: endpoint[name] for name in names if name in endpoint}


def _selected(labels: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rules that keep the targets of Services with these labels."""
    return [
        {
            "action": "keep",
            "source_labels": [
                f"__meta_kubernetes_service_label_{_sanitized(name)}",
                f"__meta_kubernetes_service_labelpresent_{_sanitized(name)}",
            ],
            "regex": f"({value});true",
        }
        for name, value in labels.items()
    ]


def _target_labels(port: str, role: Role) -> list[dict[str, Any]]:
    meta = _META[role]
    target = [f"__meta_kubernetes_{meta}_address_target_{part}" for part in ("kind", "name")]
    return [
        {"action": "keep", "source_labels": [f"__meta_kubernetes_{meta}_port_name"], "regex": port},
        {"source_labels": target, "separator": ";", "regex": "Node;(.*)", "target_label": "node"},
        {"source_labels": target, "separator": ";", "regex": "Pod;(.*)", "target_label": "pod"},
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_service_name"], "target_label": "service"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
        {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"},
        {"source_labels": ["__meta_kubernetes_service_name"], "target_label": "job"},
        {"target_label": "endpoint", "replacement": port},
    ]


def _relabeling(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a relabeling of a ServiceMonitor as Prometheus writes it; an unknown field is an error."""
    return {_FIELDS[name]: value for name, value in rule.items()}


def _sanitized(label: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", label)
