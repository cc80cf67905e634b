"""The elector against a real Lease."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import ClientConfig, load_config
from slurm_operator.kube.errors import FencedError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Lease
from slurm_operator.kube.process import metrics
from slurm_operator.kube.runtime.lease import LeaderElector, new_identity
from tests.support.processes import eventually

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from kubebox import Box
    from slurm_operator.kube.client.auth import Auth

NAME = "elected"
PATIENCE = 90.0
# Seconds of lease duration, renew deadline and retry period. Who must keep a lease outlasts a machine that
# stands still for four seconds; where it is to run out, nobody needs to wait for that.
KEPT, SHORT = (5.0, 4.4, 0.3), (2.0, 1.5, 0.3)


@pytest.fixture
def config(kube_box: Box) -> ClientConfig:
    return load_config(str(kube_box.kubeconfig))


@pytest.fixture
async def client(config: ClientConfig) -> AsyncIterator[Client]:
    async with Client(config) as opened:
        yield opened


@asynccontextmanager
async def candidate(
    config: ClientConfig,
    namespace: str,
    identity: str = "",
    timing: tuple[float, float, float] = KEPT,
) -> AsyncIterator[LeaderElector]:
    lease, renew, retry = timing
    elector = LeaderElector(
        config,
        namespace=namespace,
        name=NAME,
        identity=identity or new_identity(),
        lease_duration=lease,
        renew_deadline=renew,
        retry_period=retry,
    )
    try:
        yield elector
    finally:
        await elector.release()


async def leads(elector: LeaderElector) -> None:
    async with asyncio.timeout(PATIENCE):
        await elector.acquire()


def foreign(namespace: str, **spec: Any) -> dict[str, Any]:
    """Return a Lease as another program, written in another language, would write it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "holderIdentity": "go-operator_1",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 7,
            **spec,
        },
    }


def _has_seen(elector: LeaderElector, renewed: str) -> bool:
    record = elector._election.record
    return record is not None and record.renewed == renewed


def status(name: str = NAME) -> float:
    return float(metrics.LEADER_STATUS.labels(name)._value.get())


async def test_the_first_leader_creates_the_lease(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """A missing Lease is created with the fields client-go writes, and the metric says that we lead."""
    async with candidate(config, kube_namespace) as elector:
        assert status() == 0
        await leads(elector)
        spec = (await client.get(Lease, NAME, kube_namespace)).spec
        assert spec.holder_identity == elector.identity
        assert (spec.lease_duration_seconds, spec.lease_transitions) == (5, 0)
        assert spec.acquire_time is not None
        assert spec.renew_time is not None
        assert spec.renew_time >= spec.acquire_time
        assert status() == 1
        assert elector.fence() > 0


async def test_identity_names_the_host_and_is_unique() -> None:
    """Two processes on one host never share an identity."""
    first, second = new_identity(), new_identity()
    assert first != second
    assert first.partition("_")[0] == second.partition("_")[0] != ""


async def test_the_leader_renews(config: ClientConfig, client: Client, kube_namespace: str) -> None:
    """Renewing moves the renew time and nothing else."""
    async with candidate(config, kube_namespace) as elector:
        await leads(elector)
        first = (await client.get(Lease, NAME, kube_namespace)).spec

        async def renewed() -> Lease | None:
            lease = await client.get(Lease, NAME, kube_namespace)
            return lease if lease.spec.renew_time != first.renew_time else None

        later = (await eventually(renewed, "the lease is renewed")).spec
        assert (later.acquire_time, later.holder_identity) == (first.acquire_time, first.holder_identity)
        assert later.lease_transitions == 0


async def test_release_frees_the_lease(config: ClientConfig, client: Client, kube_namespace: str) -> None:
    """A released Lease has no holder and lasts a second, as client-go leaves it; the fence is shut."""
    async with candidate(config, kube_namespace) as elector:
        await leads(elector)
        await elector.release()
        raw = await client.raw("GET", Lease.RESOURCE.path(kube_namespace, NAME))
        spec = json.loads(raw)["spec"]
        assert (spec.get("holderIdentity", ""), spec["leaseDurationSeconds"]) == ("", 1)
        with pytest.raises(FencedError, match=f"lease {kube_namespace}/{NAME}"):
            elector.fence()
        assert status() == 0


async def test_a_lease_left_to_expire_is_not_freed_and_not_renewed(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """Stopping without freeing ends the renewals at once; the next one leads when the lease has run out."""
    async with (
        candidate(config, kube_namespace, "a", SHORT) as first,
        candidate(config, kube_namespace, "b", SHORT) as second,
    ):
        await leads(first)
        await first.release(free=False)
        with pytest.raises(FencedError):
            first.fence()
        left = await client.get(Lease, NAME, kube_namespace)
        assert left.spec.holder_identity == "a"
        await leads(second)
        listed_at = await client.get(Lease, NAME, kube_namespace)
        assert (listed_at.spec.holder_identity, listed_at.spec.lease_transitions) == ("b", 1)


class Stalling:
    """Credentials that come from a thread which, when told so, does not answer: a resolver, say."""

    def __init__(self, real: Auth) -> None:
        self._real = real
        self.stalls = False
        self.answers = threading.Event()

    async def headers(self) -> Mapping[str, str]:
        if self.stalls:
            await asyncio.to_thread(self.answers.wait)
        return await self._real.headers()

    async def refresh(self, refused: Mapping[str, str] | None = None) -> bool:
        return await self._real.refresh(refused)

    async def tls(self, configured: ssl.SSLContext | None) -> ssl.SSLContext | None:
        return await self._real.tls(configured)


async def test_a_loss_is_told_while_a_worker_thread_still_hangs(
    config: ClientConfig, kube_namespace: str
) -> None:
    """Whatever a thread of the elector's loop waits for, the main loop learns of the lost lease."""
    auth = Stalling(config.auth)
    async with candidate(replace(config, auth=auth), kube_namespace, timing=SHORT) as elector:
        await leads(elector)
        auth.stalls = True
        try:
            async with asyncio.timeout(PATIENCE):
                await elector.lost.wait()
            assert elector._thread is not None
            assert elector._thread.is_alive()
            assert status() == 0
        finally:
            auth.answers.set()


async def test_the_second_waits_for_the_first(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """While one renews the other waits, longer than the lease; once it is released the other leads."""
    async with (
        candidate(config, kube_namespace, "a") as first,
        candidate(config, kube_namespace, "b") as second,
    ):
        await leads(first)
        waiting = asyncio.create_task(second.acquire())
        versions: set[str] = set()

        async def renewals() -> bool:
            versions.add((await client.get(Lease, NAME, kube_namespace)).metadata.resource_version)
            return len(versions) > 18

        # Eighteen renewals of 0.3 s are more than one lease of 5 s.
        await eventually(renewals, "the first renews")
        assert not waiting.done()
        with pytest.raises(FencedError):
            second.fence()
        await first.release()
        async with asyncio.timeout(PATIENCE):
            await waiting
        spec = (await client.get(Lease, NAME, kube_namespace)).spec
        assert (spec.holder_identity, spec.lease_transitions) == ("b", 1)


async def test_a_silent_foreign_holder_is_followed(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """A Lease of Slinky slurm-operator that nobody renews is taken over, and the transition is counted."""
    await client.create(Lease, foreign(kube_namespace))
    async with candidate(config, kube_namespace, timing=SHORT) as elector:
        await leads(elector)
        spec = (await client.get(Lease, NAME, kube_namespace)).spec
        assert (spec.holder_identity, spec.lease_transitions) == (elector.identity, 8)


async def test_a_foreign_holder_with_a_wrong_clock_is_waited_for(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """Times in the Lease are not believed: whoever renews holds it, even by a clock of the year 2001."""
    await client.create(Lease, foreign(kube_namespace))
    async with candidate(config, kube_namespace) as elector:
        waiting = asyncio.create_task(elector.acquire())
        # The elector looks every 0.3 s: so many renewals, seen one by one, outlast the 5 s it waits.
        for second in range(18):
            stamp = f"2001-01-01T00:00:{second:02d}.000000Z"
            patch = {"spec": {"renewTime": stamp}}
            await client.patch(Lease, NAME, kube_namespace, patch, type=PatchType.MERGE)
            await eventually(partial(_has_seen, elector, stamp), "the elector sees the renewal")
        assert not waiting.done()
        assert (await client.get(Lease, NAME, kube_namespace)).spec.holder_identity == "go-operator_1"
        async with asyncio.timeout(PATIENCE):
            await waiting


async def test_a_stolen_lease_is_lost(config: ClientConfig, client: Client, kube_namespace: str) -> None:
    """When somebody writes another holder into the Lease, this process has lost it for good."""
    async with candidate(config, kube_namespace) as elector:
        await leads(elector)
        patch = {"spec": {"holderIdentity": "thief"}}
        await client.patch(Lease, NAME, kube_namespace, patch, type=PatchType.MERGE)
        async with asyncio.timeout(PATIENCE):
            await elector.lost.wait()
        assert not elector.leading
        assert status() == 0
        await elector.release()
        assert (await client.get(Lease, NAME, kube_namespace)).spec.holder_identity == "thief"


async def test_an_edited_lease_is_kept(config: ClientConfig, client: Client, kube_namespace: str) -> None:
    """A change that leaves the holder alone costs a conflict, not the leadership."""
    async with candidate(config, kube_namespace) as elector:
        await leads(elector)
        for number in range(5):
            patch = {"metadata": {"annotations": {"note": str(number)}}}
            edited = await client.patch(Lease, NAME, kube_namespace, patch, type=PatchType.MERGE)

            async def renewed(version: str = edited.metadata.resource_version) -> bool:
                return (await client.get(Lease, NAME, kube_namespace)).metadata.resource_version != version

            await eventually(renewed, "the lease is renewed after the edit")
        elector.fence()
        assert not elector.lost.is_set()


async def test_a_deleted_lease_is_created_again(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """A leader whose Lease is deleted writes it again, in the same term."""
    async with candidate(config, kube_namespace) as elector:
        await leads(elector)
        before = await client.get(Lease, NAME, kube_namespace)
        await client.delete(Lease, NAME, kube_namespace)

        async def again() -> Lease | None:
            try:
                return await client.get(Lease, NAME, kube_namespace)
            except NotFound:
                return None

        after = await eventually(again, "the lease is created again")
        assert after.metadata.uid != before.metadata.uid
        assert (after.spec.holder_identity, after.spec.acquire_time) == (
            elector.identity,
            before.spec.acquire_time,
        )
        assert not elector.lost.is_set()


async def test_no_write_before_leading(config: ClientConfig, client: Client, kube_namespace: str) -> None:
    """A client behind the fence writes nothing until the lease is held, and reads all the time."""
    await client.create(Lease, foreign(kube_namespace))
    async with candidate(config, kube_namespace) as elector, Client(config, fence=elector.fence) as fenced:
        body = {"metadata": {"name": "written", "namespace": kube_namespace}}
        with pytest.raises(FencedError):
            await fenced.create(ConfigMap, body)
        with pytest.raises(NotFound):
            await fenced.get(ConfigMap, "written", kube_namespace)
        await leads(elector)
        await fenced.create(ConfigMap, body)
        assert (await client.get(ConfigMap, "written", kube_namespace)).metadata.uid


async def test_an_unreachable_server_costs_the_lease(kube_box_factory: Callable[..., Box]) -> None:
    """A leader that cannot renew stops writing at its deadline and reports the loss, without any answer."""
    box = kube_box_factory()
    config = load_config(str(box.kubeconfig))
    async with candidate(config, "default", timing=SHORT) as elector:
        await leads(elector)
        box.stop("kube-apiserver")
        async with asyncio.timeout(PATIENCE):
            await elector.lost.wait()
        with pytest.raises(FencedError):
            elector.fence()


async def test_a_short_outage_is_survived(kube_box_factory: Callable[..., Box]) -> None:
    """An API server that restarts within the renew deadline costs nothing."""
    box = kube_box_factory()
    config = load_config(str(box.kubeconfig))
    elector = LeaderElector(
        config, namespace="default", name=NAME, lease_duration=60, renew_deadline=50, retry_period=0.5
    )
    await leads(elector)
    box.restart("kube-apiserver")
    async with Client(config) as client:
        seen = await client.get(Lease, NAME, "default")

        async def renewed() -> bool:
            return (await client.get(Lease, NAME, "default")).spec.renew_time != seen.spec.renew_time

        await eventually(renewed, "the lease is renewed after the restart")
        assert not elector.lost.is_set()
        await elector.release()


async def test_missing_permission_is_waited_for(kube_box: Box, kube_namespace: str, tmp_path: Path) -> None:
    """Without the right to read Leases nobody leads; as soon as it is granted, the elector does."""
    kube_box.kubectl("create", "serviceaccount", "weak", "-n", kube_namespace)
    token = kube_box.kubectl("create", "token", "weak", "-n", kube_namespace).strip()
    kubeconfig = tmp_path / "weak.kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "weak",
                "contexts": [{"name": "weak", "context": {"cluster": "box", "user": "weak"}}],
                "clusters": [
                    {
                        "name": "box",
                        "cluster": {
                            "server": kube_box.server,
                            "certificate-authority": str(kube_box.ca_file),
                        },
                    }
                ],
                "users": [{"name": "weak", "user": {"token": token}}],
            }
        )
    )
    async with candidate(load_config(str(kubeconfig)), kube_namespace) as elector:
        waiting = asyncio.create_task(elector.acquire())
        await eventually(lambda: "grant get, create and patch" in elector._said, "the elector complains")
        assert not waiting.done()
        role = ["--verb=get,create,patch", "--resource=leases.coordination.k8s.io"]
        kube_box.kubectl("create", "role", "leases", "-n", kube_namespace, *role)
        binding = ["--role=leases", f"--serviceaccount={kube_namespace}:weak"]
        kube_box.kubectl("create", "rolebinding", "leases", "-n", kube_namespace, *binding)
        async with asyncio.timeout(PATIENCE):
            await waiting
        elector.fence()


async def test_release_before_leading_leaves_the_holder_alone(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """A candidate that stops waiting changes nothing."""
    await client.create(Lease, foreign(kube_namespace, leaseDurationSeconds=3600))
    async with candidate(config, kube_namespace) as elector:
        waiting = asyncio.create_task(elector.acquire())
        await eventually(lambda: elector._election.record, "the elector has looked")
        waiting.cancel()
        await elector.release()
    lease = await client.get(Lease, NAME, kube_namespace)
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("go-operator_1", 7)
