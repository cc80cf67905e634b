"""An API server that does not answer for one namespace, and what others notice of it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from slurm_operator.kube.models.kinds import ConfigMap
from tests.support.kube.informer_checks import wait_until
from tests.support.kube.scripted_server import OK, Request, Server, hang

if TYPE_CHECKING:
    import pytest

    from slurm_operator.kube.client.client import Client


async def test_a_namespace_without_answers_leaves_the_others_theirs(
    server: Server, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five hundred requests that hang for one namespace do not keep those of another from being sent."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await (hang if "/namespaces/slow/" in request.target else OK)(request, writer)

    server.script = [answer]
    hanging = [asyncio.create_task(client.get(ConfigMap, f"a{n}", "slow", timeout=300)) for n in range(500)]
    await wait_until(lambda: server.now == 48, "the share of the slow namespace is used up")
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(client.get(ConfigMap, "a", "n", timeout=60) for _ in range(100)))
    took = asyncio.get_running_loop().time() - began
    assert len(found) == 100
    assert sum("/slow/" in request.target for request in server.requests) == 48
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    with capsys.disabled():
        sys.stdout.write(f" [100 requests of another namespace: {took:.2f} s]")
