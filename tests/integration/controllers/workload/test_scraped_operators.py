"""What a real Prometheus scrapes of the ServiceMonitor of the chart: each operator, once, and no webhook."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import yaml

from kubebox.binaries import provide
from slurm_operator.kube.models.kinds import Pod
from tests.support.charts.helm import OPERATOR, render
from tests.support.processes import eventually
from tests.support.promserver import prometheus_server
from tests.support.scrapeconfig import configuration

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from kubebox.prometheus import PrometheusPrograms
    from tests.support.controllers.workload_namespace import Stage

VALUES = (
    "monitoring.serviceMonitor.enabled=true,operator.replicas=2,webhook.metricsPort=8080,webhook.replicas=2"
)
RUNNING = {"ServiceAccount", "Service", "Deployment"}


def install(box: Box, namespace: str) -> dict[str, Any]:
    """Create what runs of the chart, and return its ServiceMonitor."""
    helm = provide(["helm"], print)["helm"]
    objects = render(helm, OPERATOR, "--set", VALUES, release="slurm-operator", namespace=namespace)
    manifest = yaml.safe_dump_all([one for one in objects if one["kind"] in RUNNING])
    box.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=manifest)
    (monitor,) = (one for one in objects if one["kind"] == "ServiceMonitor")
    found: dict[str, Any] = monitor
    return found


async def operators(stage: Stage) -> list[str]:
    """Return the pods of the operator that are ready."""
    pods = (await stage.client.list(Pod, stage.namespace)).items
    return sorted(
        pod.metadata.name
        for pod in pods
        if pod.ready and pod.metadata.labels["app.kubernetes.io/name"] == "slurm-operator"
    )


async def test_prometheus_scrapes_each_operator_once(
    stage: Stage, slinky_box: Box, prometheus: PrometheusPrograms, tmp_path: Path
) -> None:
    """Each pod of the operator is one target, with its name in the label `pod`; the webhook is none."""
    monitor = await asyncio.to_thread(install, slinky_box, stage.namespace)

    async def both_run() -> bool:
        return len(await operators(stage)) == 2

    await eventually(both_run, "both operators run")
    config = configuration(slinky_box.kubeconfig, [monitor], ("endpointslice",))
    async with prometheus_server(prometheus, tmp_path, config) as server:

        async def each_once() -> bool:
            found = sorted(target["labels"]["pod"] for target in await server.targets())
            return found == await operators(stage)

        await eventually(each_once, "each operator is scraped once")
        labels = [target["labels"] for target in await server.targets()]
        assert {one["namespace"] for one in labels} == {stage.namespace}
        assert {one["endpoint"] for one in labels} == {"metrics"}
