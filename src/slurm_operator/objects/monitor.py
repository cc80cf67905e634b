"""The ServiceMonitor of slurmctld, where the Prometheus operator is installed.

The labels and the port that it selects are those of two Services: the one of clients, which leads to the
active slurmctld, and the headless one, which leads to every pod. A relabeling keeps the targets of the
former, so that every series exists once.

A standby has no metrics of its own: slurmctld 26.05 redirects the request to the first slurmctld of
slurm.conf. Scraped, it would report the jobs of the active one once more, under its own name; so redirects
are not followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import wellknown
from slurm_operator.api.controller import MetricsEndpoint
from slurm_operator.objects import labels
from slurm_operator.objects.desired import Manifest, ObjectName

if TYPE_CHECKING:
    from slurm_operator.api import Controller
    from slurm_operator.api.controller import ServiceMonitor

_APP = labels.SLURMCTLD
_API_VERSION = "monitoring.coreos.com/v1"
_KIND = "ServiceMonitor"
# Each path is a target of its own, with its own `up`; nothing else tells them apart.
_PATH_LABEL = {"action": "replace", "sourceLabels": ["__metrics_path__"], "targetLabel": "metrics_path"}
_ENDPOINTS = tuple(MetricsEndpoint(path=path) for path in wellknown.METRICS_PATHS)


def named(controller: Controller) -> ObjectName:
    """Return which ServiceMonitor belongs to a Controller."""
    return ObjectName(_API_VERSION, _KIND, controller.workload_name)


def service_monitor(controller: Controller, wish: ServiceMonitor) -> Manifest:
    """Return the ServiceMonitor that makes Prometheus scrape slurmctld."""
    return {
        "apiVersion": _API_VERSION,
        "kind": _KIND,
        "metadata": labels.object_metadata(controller, _APP, controller.workload_name, wish),
        "spec": {
            "selector": {"matchLabels": labels.selector_labels(_APP, controller.metadata.name)},
            "namespaceSelector": {"matchNames": [controller.metadata.namespace]},
            "endpoints": [
                {
                    **_endpoint(endpoint, wish),
                    "relabelings": [_of_service(controller.service_name), _PATH_LABEL],
                }
                for endpoint in wish.endpoints or _ENDPOINTS
            ],
        },
    }


def _endpoint(endpoint: MetricsEndpoint, wish: ServiceMonitor) -> dict[str, Any]:
    times = {
        "interval": endpoint.interval or wish.interval,
        "scrapeTimeout": endpoint.scrape_timeout or wish.scrape_timeout,
    }
    return {
        "port": _APP.name,
        "scheme": "http",
        "path": endpoint.path,
        "followRedirects": False,
        **{name: value for name, value in times.items() if value},
    }


def _of_service(name: str) -> dict[str, Any]:
    """Return the rule that drops the targets of all other Services."""
    return {"action": "keep", "sourceLabels": ["__meta_kubernetes_service_name"], "regex": name}
