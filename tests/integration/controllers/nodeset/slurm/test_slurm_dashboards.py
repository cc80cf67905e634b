"""The dashboards of the chart, on a real Prometheus that scrapes the real operator and a real slurmctld."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kubebox.slurm import SlurmBox, SlurmSpec, daemons
from slurm_operator.api import NodeSet, wellknown
from tests.support.charts.chart_accounts import allow_lease
from tests.support.dashboards import concrete, dashboards, expressions
from tests.support.jobs.background_scenarios import REAL
from tests.support.jobs.slurm_namespace import opened
from tests.support.promserver import prometheus_server

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from kubebox.prometheus import PrometheusPrograms
    from slurm_operator.kube.client.client import Client
    from tests.support.jobs.slurm_namespace import Site
    from tests.support.promserver import PrometheusServer

pytestmark = REAL

METRICS = "MetricsType=metrics/openmetrics"
NODESET = "shown"


async def leads(site: Site) -> None:
    """Let the operator hold a Lease, as it does in a cluster."""
    await site.kill_operator()
    await asyncio.to_thread(allow_lease, site.kube, site.namespace)
    site.start_operator("--leader-elect", f"--leader-elect-namespace={site.namespace}")


async def scrape_all(site: Site) -> dict[str, Any]:
    """Return the configuration that scrapes the operator and slurmctld, labelled as by a ServiceMonitor."""
    operator = f"127.0.0.1:{await site.operator.port('metrics')}"
    slurmctld = f"127.0.0.1:{site.slurm.record().ports[daemons.SLURMCTLD]}"
    jobs = [("operator", "/metrics", operator, {"pod": "slurm-operator-0", "namespace": "slinky"})]
    labels = {"pod": "slurm-controller-0", "namespace": site.namespace}
    jobs += [(path, path, slurmctld, {**labels, "metrics_path": path}) for path in wellknown.METRICS_PATHS]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": name,
                "honor_labels": True,
                "metrics_path": path,
                "static_configs": [{"targets": [target], "labels": more}],
            }
            for name, path, target, more in jobs
        ],
    }


async def unanswered(server: PrometheusServer) -> list[str]:
    """Return the expressions of all dashboards that give no data."""
    return [
        f"{name}: {expression}"
        for name, one in dashboards().items()
        for expression in expressions(one)
        if not await server.query(concrete(expression))
    ]


async def test_every_expression_of_every_dashboard_has_data(
    cluster_box: Box, cluster_client: Client, prometheus: PrometheusPrograms, tmp_path: Path
) -> None:
    """With a running job and a blocked scale-in, no panel and no variable is empty; then the NodeSet goes."""
    spec = SlurmSpec(nodes=0, extra_conf=METRICS)
    with await asyncio.to_thread(SlurmBox.up, spec) as slurm:
        async with opened(cluster_box, cluster_client, slurm, tmp_path) as site:
            await leads(site)
            with site.ledger() as ledger:
                await site.nodeset(NODESET, 2)
                await site.settled(NODESET, 2)
                await site.idle([f"{NODESET}-0", f"{NODESET}-1"])
                jobs = await ledger.start([f"{NODESET}-0", f"{NODESET}-1"])
                await site.scale(NODESET, 1)
                await site.blocked(NODESET, "JobsRunning", 1)
                async with prometheus_server(prometheus, tmp_path, await scrape_all(site)) as server:
                    left = [""]

                    async def answered() -> bool:
                        left[:] = await unanswered(server)
                        return not left

                    try:
                        await site.until(answered, "every expression has data", NODESET, 90)
                    except AssertionError as error:
                        raise AssertionError("\n".join([*left, str(error)])) from None
                    await numbers_are_right(server)
                    for job in jobs.values():
                        await ledger.end(job)
                    await site.settled(NODESET, 1)
                    await series_go_with_the_nodeset(site, server)
                await ledger.settle()


async def numbers_are_right(server: PrometheusServer) -> None:
    """Check the numbers of the NodeSet whose scale-in is blocked."""

    async def number(name: str, **labels: str) -> float:
        chosen = ",".join(f'{key}="{value}"' for key, value in {"nodeset": NODESET, **labels}.items())
        (found,) = await server.query(f"slurm_operator_nodeset_{name}{{{chosen}}}")
        return float(found["value"][1])

    assert await number("desired_workers") == 1
    assert await number("ready_workers") == 2
    assert await number("draining_workers") == 1
    assert await number("protected_workers") == 2
    assert await number("blocked_actions", reason="JobsRunning") == 1
    assert await number("oldest_blocked_seconds") > 0
    assert await number("decisions_total", kind="create") == 2
    assert await number("decisions_total", kind="drain") == 1
    assert await number("decisions_total", kind="delete") == 0


async def series_go_with_the_nodeset(site: Site, server: PrometheusServer) -> None:
    """Delete the NodeSet, and check that the operator then has no series of it."""
    await site.client.delete(NodeSet, NODESET, site.namespace)

    async def gone() -> bool:
        return not await server.query(f'slurm_operator_nodeset_desired_workers{{nodeset="{NODESET}"}}')

    await site.until(gone, "the series of the NodeSet are gone")
