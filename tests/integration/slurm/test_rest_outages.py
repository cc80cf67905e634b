"""What the client says when daemons of a real cluster are stopped, frozen or given another key."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.decide.circuit_breaker import Breaker, BreakerTiming
from slurm_operator.slurm.errors import ControllerDown, RestUnreachable, TokenRefused, Unavailable
from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.rest.client import RestClient, RestTiming, TokenSource
from tests.support.slurm.waiting import LONG, until

if TYPE_CHECKING:
    from kubebox.pytest_plugin import SlurmBoxFactory
    from kubebox.slurm import SlurmBox


def client_of(box: SlurmBox, token: TokenSource | None = None) -> RestClient:
    # The breaker and deadlines are tested elsewhere; here every request is sent, and its answer awaited.
    return RestClient(
        box.url,
        token or box.token,
        timing=RestTiming(request=LONG, write=LONG),
        breaker=Breaker(BreakerTiming(threshold=10**6)),
    )


async def answered(client: RestClient) -> None:
    """Wait until slurmctld is heard again: what is listening is not always quick to answer."""

    async def nodes() -> bool:
        with suppress(Unavailable):
            return await client.nodes() is not None
        return False

    await until(nodes, bool)


async def jobs_at_rest(client: RestClient) -> bool:
    """Return whether no job has changed since a moment ago."""
    listed = await client.jobs()
    assert listed is not None
    return await client.jobs(listed.last_update) is None


async def without_jobs(box: SlurmBox) -> None:
    async with client_of(box) as client:
        await client.ping(require=True)
        listed, changed = await client.jobs(), await client.jobs(1)
        assert listed is not None
        assert changed is not None
        assert (listed.jobs, changed.jobs) == ((), ())
        assert listed.last_update > 1
        await until(partial(jobs_at_rest, client), bool)


async def without_slurmctld(box: SlurmBox) -> None:
    async with client_of(box) as client:
        await client.ping(require=True)
        await asyncio.to_thread(box.stop, "slurmctld")
        assert [ping.responding for ping in await client.ping()] == [False]
        outcomes = await asyncio.gather(
            client.nodes(),
            client.jobs(),
            client.update_nodes("n0", NodeUpdate(comment="x")),
            client.ping(require=True),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [ControllerDown] * 4
        await asyncio.to_thread(box.start, "slurmctld")
        await answered(client)


async def with_slurmctld_frozen(box: SlurmBox) -> None:
    async with client_of(box) as client:
        await client.ping(require=True)
        pid = box.pids["slurmctld"]
        os.kill(pid, signal.SIGSTOP)
        try:
            nodes, partitions, pings = await asyncio.gather(
                client.nodes(), client.partitions(), client.ping(), return_exceptions=True
            )
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [type(nodes), type(partitions)] == [ControllerDown] * 2
        assert not isinstance(pings, BaseException)
        assert not any(ping.responding for ping in pings)
        await answered(client)


async def without_slurmrestd(box: SlurmBox) -> None:
    async with client_of(box) as client:
        assert await client.nodes() is not None
        await asyncio.to_thread(box.stop, "slurmrestd")
        for call in (client.nodes(), client.ping(), client.update_nodes("n0", NodeUpdate(comment="x"))):
            with pytest.raises(RestUnreachable, match="Connection refused") as caught:
                await call
            assert not caught.value.sent
        await asyncio.to_thread(box.start, "slurmrestd")
        await answered(client)


async def with_another_key(box: SlurmBox) -> None:
    token = box.token()
    async with client_of(box) as client, client_of(box, lambda: token) as former:
        assert await former.nodes() is not None
        await asyncio.to_thread(box.rotate_jwt_key)
        assert await until(client.ping, lambda pings: any(ping.responding for ping in pings))
        await answered(client)
        with pytest.raises(TokenRefused):
            await former.nodes()
        with pytest.raises(TokenRefused):
            await former.ping(require=True)


async def test_a_cluster_without_jobs_is_no_unchanged_one(slurm_box_factory: SlurmBoxFactory) -> None:
    """Where no job has ever been, the list is empty and has a time; unchanged is said in another way."""
    for release in ("26.05", "24.11"):
        await without_jobs(slurm_box_factory(nodes=0, release=release))


async def test_outages_are_told_apart_and_pass(slurm_box_factory: SlurmBoxFactory) -> None:
    """Each outage of slurmctld, slurmrestd and keys has its own answer, and none outlasts its cause."""
    # Each silent slurmctld costs ten seconds, so two clusters go through theirs at the same time.
    new, former = (slurm_box_factory(nodes=0, release=release) for release in ("26.05", "24.11"))
    await asyncio.gather(without_slurmctld(former), with_slurmctld_frozen(new))
    for box in (new, former):
        await without_slurmrestd(box)
        await with_another_key(box)
