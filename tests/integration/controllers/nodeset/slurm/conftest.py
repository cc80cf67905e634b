"""A whole control plane with fake nodes, and beside it a real Slurm whose slurmd are the worker pods.

All tests here share one event loop and one control plane, and for each release of Slurm one Slurm and one
operator process; each has NodeSets of its own. The operator is the real program, so that it can be killed,
and has the rights that the chart gives it.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kubebox.slurm import SlurmBox, SlurmSpec
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from tests.support.charts.chart_accounts import operator_kubeconfig
from tests.support.jobs.background_scenarios import RELEASES, STORIES, Teller
from tests.support.jobs.slurm_namespace import opened
from tests.support.jobs.timings import MEASURED
from tests.support.processes import await_kinds, install_crds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from kubebox import Box
    from tests.support.jobs.job_ledger import Ledger
    from tests.support.jobs.slurm_namespace import Site
    from tests.support.jobs.timings import Measured


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured."""
    for line in MEASURED.lines():
        terminalreporter.write_line(f"measured: {line}")


@pytest.fixture
def measured() -> Measured:
    """Hand out the place for measured times, which are printed at the end of the run."""
    return MEASURED


@pytest.fixture(scope="session")
def cluster_box(kube_cluster: Box) -> Box:
    """Hand out the shared control plane with our CRDs and the operator's account in it."""
    install_crds(kube_cluster)
    await_kinds(kube_cluster)
    # It takes seconds, and only the first time: here nobody waits for the event loop.
    operator_kubeconfig(kube_cluster)
    return kube_cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster_client(cluster_box: Box) -> AsyncIterator[Client]:
    """Hand out an open client, for what a person would do."""
    async with Client(load_config(str(cluster_box.kubeconfig))) as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sites(
    cluster_box: Box, cluster_client: Client, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Callable[[str], Awaitable[Site]]]:
    """Hand out what opens a namespace with a Slurm of some release and an operator, once for each release."""
    made: dict[str, Site] = {}
    async with AsyncExitStack() as stack:

        async def opens(release: str) -> Site:
            if release not in made:
                spec = SlurmSpec(nodes=0, release=release)
                slurm = stack.enter_context(await asyncio.to_thread(SlurmBox.up, spec))
                logs = tmp_path_factory.mktemp("site")
                made[release] = await stack.enter_async_context(
                    opened(cluster_box, cluster_client, slurm, logs)
                )
            return made[release]

        yield opens


@pytest_asyncio.fixture(loop_scope="session")
async def site(
    request: pytest.FixtureRequest, sites: Callable[[str], Awaitable[Site]]
) -> AsyncIterator[Site]:
    """Hand out the site of a release, the newest unless told otherwise; tests leave it as it was."""
    made = await sites(getattr(request, "param", RELEASES[0]))
    yield made
    await made.give_back()


@pytest.fixture
def ledger(site: Site) -> Iterator[Ledger]:
    """Hand out an empty ledger for the jobs of a test."""
    with site.ledger() as kept:
        yield kept


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def told(
    request: pytest.FixtureRequest,
    cluster_box: Box,
    cluster_client: Client,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """Begin the long stories whose ends are among the tests of this run, and hand them out."""
    tests = {item.name.removeprefix("test_") for item in request.session.items}
    door = asyncio.Lock()
    tasks = {}
    for name in STORIES:
        if name in tests:
            teller = Teller(cluster_box, cluster_client, tmp_path_factory.mktemp(name), door)
            tasks[name] = asyncio.create_task(teller.tell(name), name=name)
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
