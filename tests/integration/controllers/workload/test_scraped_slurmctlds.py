"""What a real Prometheus scrapes of the ServiceMonitor: the active slurmctld, once, and no standby.

kube-controller-manager makes the EndpointSlices and Endpoints of the Services that the operator creates, for
the pods of its StatefulSet. Prometheus discovers them with the configuration that the Prometheus operator
would write.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.slurm import daemons
from slurm_operator.api import Controller, wellknown
from slurm_operator.controllers.workload.decide.read_models import MonitorObject
from slurm_operator.kube.models.kinds import CustomResourceDefinition, Pod
from slurm_operator.slurm.rest.connections import ConnectionKey, ConnectionTarget
from slurm_operator.slurm.web_token import FixedToken
from tests.integration.controllers.workload.test_controller_active import leads_to
from tests.integration.controllers.workload.test_controller_monitor import DEFINITION, no_definition
from tests.support.controllers.volumes import shared_claim
from tests.support.processes import eventually
from tests.support.promserver import prometheus_server
from tests.support.scrapeconfig import ROLES, configuration

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from kubebox.prometheus import PrometheusPrograms
    from kubebox.pytest_plugin import SlurmBoxFactory
    from kubebox.slurm import SlurmBox
    from tests.support.controllers.workload_namespace import Operator, Stage
    from tests.support.promserver import PrometheusServer

__all__ = ["no_definition"]

FIRST, SECOND = "slurm-controller-0", "slurm-controller-1"
METRICS = {"enabled": True, "serviceMonitor": {"enabled": True, "interval": "1s", "scrapeTimeout": "1s"}}
HA = {
    "ha": {"enabled": True, "backups": 1},
    "persistence": {"enabled": True, "existingClaim": "state"},
}


async def scraped_controller(stage: Stage, **spec: Any) -> tuple[Operator, dict[str, Any]]:
    """Have the operator run slurmctld with a ServiceMonitor, and return both."""
    operator = await stage.operator()
    await stage.client.create(CustomResourceDefinition, DEFINITION)
    await shared_claim(stage, "state", "ReadWriteMany")
    await stage.keys()
    await stage.controller(metrics=METRICS, **spec)
    await stage.says(Controller, "slurm", "Available")
    await eventually(lambda: stage.get(MonitorObject, "slurm-controller"), "the ServiceMonitor is made")
    return operator, await stage.raw(MonitorObject, "slurm-controller")


def all_services(monitor: dict[str, Any]) -> dict[str, Any]:
    """Return a ServiceMonitor that keeps the targets of all Services with its labels."""
    other = copy.deepcopy(monitor)
    other["metadata"]["name"] = "all"
    for endpoint in other["spec"]["endpoints"]:
        endpoint["relabelings"] = [rule for rule in endpoint["relabelings"] if rule["action"] != "keep"]
    return other


async def pods_by_target(server: PrometheusServer, monitor: str) -> dict[tuple[str, str], list[str]]:
    """Return the pods that are scraped, by role and path."""
    found: dict[tuple[str, str], list[str]] = {}
    for target in await server.targets():
        _, _, name, _, role = target["scrapePool"].split("/")
        if name == monitor:
            path = target["discoveredLabels"]["__metrics_path__"]
            found.setdefault((role, path), []).append(target["labels"]["pod"])
    return {key: sorted(pods) for key, pods in found.items()}


def each(*pods: str) -> dict[tuple[str, str], list[str]]:
    """Return that these pods are scraped, on every path and with both roles of discovery."""
    return {(role, path): [*pods] for role in ROLES for path in wellknown.METRICS_PATHS}


@pytest.mark.usefixtures("no_definition")
@pytest.mark.parametrize("ha", [False, True], ids=["alone", "ha"])
async def test_prometheus_scrapes_the_active_slurmctld_once(
    stage: Stage, slinky_box: Box, prometheus: PrometheusPrograms, tmp_path: Path, *, ha: bool
) -> None:
    """Every path of the active slurmctld is one target, with labels that name it; a standby is none."""
    _, monitor = await scraped_controller(stage, **(HA if ha else {}))
    await leads_to(stage, FIRST)
    config = configuration(slinky_box.kubeconfig, [monitor, all_services(monitor)])
    async with prometheus_server(prometheus, tmp_path, config) as server:

        async def found(name: str, *pods: str) -> bool:
            return await pods_by_target(server, name) == each(*pods)

        # Both Services lead to the active one; without the relabeling it would be scraped twice.
        pods = (FIRST, FIRST, SECOND) if ha else (FIRST, FIRST)
        await eventually(lambda: found("all", *pods), f"without the relabeling there are {pods}")
        await eventually(lambda: found("slurm-controller", FIRST), "the active slurmctld is scraped once")
        labels = [
            {name: value for name, value in target["labels"].items() if name != "instance"}
            for target in await server.targets()
            if target["scrapePool"].endswith("/endpointslice")
            and "/slurm-controller/" in target["scrapePool"]
        ]
    common = {
        "job": "slurm-controller",
        "service": "slurm-controller",
        "namespace": stage.namespace,
        "pod": FIRST,
        "container": "slurmctld",
        "endpoint": "slurmctld",
    }
    assert sorted(labels, key=lambda one: one["metrics_path"]) == [
        {**common, "metrics_path": path} for path in wellknown.METRICS_PATHS
    ]


def real_pair(factory: SlurmBoxFactory) -> SlurmBox:
    """Return a slurmctld with a standby, both with the names of pods."""
    conf = "MetricsType=metrics/openmetrics\nSlurmctldTimeout=10"
    return factory(nodes=1, controllers=(FIRST, SECOND), extra_conf=conf)


def with_job(monitor: dict[str, Any], job: str) -> dict[str, Any]:
    """Return a ServiceMonitor whose series have another label `job`."""
    for endpoint in monitor["spec"]["endpoints"]:
        endpoint["relabelings"].append({"targetLabel": "job", "replacement": job})
    return monitor


@pytest.mark.usefixtures("no_definition")
async def test_a_standby_adds_no_series(
    stage: Stage,
    slinky_box: Box,
    slurm_box_factory: SlurmBoxFactory,
    prometheus: PrometheusPrograms,
    tmp_path: Path,
) -> None:
    """Every series of a real pair exists once, before and after a failover, under the pod that is active."""
    box = await asyncio.to_thread(real_pair, slurm_box_factory)
    operator, monitor = await scraped_controller(stage, **HA)
    key = ConnectionKey("Controller", stage.namespace, "slurm")
    operator.wiring.connections.set(key, ConnectionTarget(box.url, "x", FixedToken(box.token())))
    port = box.record().ports[daemons.SLURMCTLD]
    places = {
        f"{(await stage.raw(Pod, host))['status']['podIP']}:6817": f"{address}:{port}"
        for host, address in daemons.addresses(box.spec).items()
    }
    await leads_to(stage, FIRST)
    # A standby that has the label for a moment, as every new pod does, must not add to it either.
    both = with_job(all_services(monitor), "both")
    config = configuration(slinky_box.kubeconfig, [monitor, both], ("endpointslice",), places)
    async with prometheus_server(prometheus, tmp_path, config) as server:

        async def pods_with_jobs(job: str) -> list[str]:
            found = await server.query(f'slurm_jobs{{job="{job}"}}')
            return sorted(one["metric"]["pod"] for one in found)

        async def standby_is_scraped() -> bool:
            up = f'up{{job="both", pod="{SECOND}", metrics_path="/metrics/jobs"}}'
            return bool(await server.query(up))

        async def reported_by(*pods: str) -> bool:
            return await pods_with_jobs("slurm-controller") == [*pods]

        await eventually(lambda: reported_by(FIRST), "the active slurmctld reports the jobs once")
        await eventually(standby_is_scraped, "the standby has been scraped")
        assert SECOND not in await pods_with_jobs("both")
        await asyncio.to_thread(box.stop, daemons.SLURMCTLD, kill=True)
        await eventually(lambda: reported_by(SECOND), "the standby that took over reports them once")
