"""Clusters on a real API server, reached at a real slurmrestd, and at a hostile one for what it cannot do."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kubebox.pki import write_pki
from slurm_operator.api import Cluster
from slurm_operator.controllers.cluster import ClusterController
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.slurm.decide.poll_schedule import WatchTiming
from slurm_operator.slurm.rest.connections import ConnectionKey
from slurm_operator.slurm.web_token import mint
from tests.support.processes import eventually
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from kubebox.slurm import SlurmBox
    from tests.integration.controllers.conftest import World

TOKEN = {"auth-token": b"a-token"}


async def test_connected_to_a_real_slurmrestd(world: World, slinky_box: Box, slurm_box: SlurmBox) -> None:
    """A Cluster with a good URL and token becomes ready, and kubectl's READY column says true."""
    operator = await world.operator()
    await world.secret("token", **{"auth-token": slurm_box.token().encode()})
    await world.cluster("c", slurm_box.url)
    ready = await world.says(lambda: world.ready("c"), "Connected")
    assert (ready.status, ready.observed_generation) == ("True", 1)
    live = await world.client.get(Cluster, "c", world.namespace)
    assert (live.status.is_ready, live.status.observed_generation) == (True, 1)
    listed = slinky_box.kubectl("get", "clusters.slinky.slurm.net", "-n", world.namespace)
    assert "true" in listed.splitlines()[1].split()
    view = operator.connections.get(ConnectionKey("Cluster", world.namespace, "c")).view
    assert {"n0", "n1", "n2"} <= set(view.nodes)
    assert ("Cluster", "c", "SlurmApiConnected") in await world.events()


async def test_connected_to_an_older_slurmrestd(world: World, slurm_box_24: SlurmBox) -> None:
    """Slurm 24.11 is reached like 26.05."""
    await world.operator()
    await world.secret("token", **{"auth-token": slurm_box_24.token().encode()})
    await world.cluster("c", slurm_box_24.url)
    await world.says(lambda: world.ready("c"), "Connected")


async def test_a_token_of_another_key_is_refused_until_it_is_replaced(
    world: World, slurm_box: SlurmBox
) -> None:
    """Slurm refuses a foreign token; a good one in the same Secret heals the Cluster at once."""
    await world.operator()
    bad = mint(b"another key", "slurm", timedelta(hours=1), datetime.now(UTC))
    await world.secret("token", **{"auth-token": bad.encode()})
    await world.cluster("c", slurm_box.url)
    refused = await world.says(lambda: world.ready("c"), "TokenRefused")
    assert refused.status == "False"
    assert bad not in refused.message
    live = await world.client.get(Cluster, "c", world.namespace)
    assert live.status.is_ready is False
    await eventually(
        lambda: _has_event(world, ("Cluster", "c", "SlurmTokenRefused")), "an Event about the refusal"
    )
    await world.secret("token", **{"auth-token": slurm_box.token().encode()})
    await world.says(lambda: world.ready("c"), "Connected")


async def _has_event(world: World, event: tuple[str, str, str]) -> bool:
    return event in await world.events()


async def test_each_thing_that_is_missing_has_its_reason(world: World, hostile: HostileSlurmrestd) -> None:
    """From a bad URL to ready, each step is named, and each is fixed by its own change alone."""
    operator = await world.operator()
    await world.cluster("c", "slurm:6820")
    invalid = await world.says(lambda: world.ready("c"), "InvalidServer")
    assert "spec.server" in invalid.message
    await world.patch(Cluster, "c", {"spec": {"server": hostile.url}})
    missing = await world.says(lambda: world.ready("c"), "SecretNotFound")
    assert "'token'" in missing.message
    await world.secret("token", other=b"x")
    missing = await world.says(lambda: world.ready("c"), "TokenNotFound")
    assert "'auth-token'" in missing.message
    await world.secret("token", **{"auth-token": b"two words"})
    await world.says(lambda: world.ready("c"), "InvalidToken")
    await world.secret("token", **TOKEN)
    await world.says(lambda: world.ready("c"), "Connected")
    await world.delete(Secret, "token")
    await world.says(lambda: world.ready("c"), "SecretNotFound")
    assert operator.connections.get(ConnectionKey("Cluster", world.namespace, "c")) is None
    await world.secret("token", **TOKEN)
    await world.says(lambda: world.ready("c"), "Connected")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.BAD_GATEWAY, "SlurmctldDown"),
        (Fault.TOKEN_REFUSED, "TokenRefused"),
        (Fault.WRONG_TYPE, "BadReply"),
        (Fault.CLOSE, "SlurmrestdUnreachable"),
    ],
)
async def test_each_failure_of_the_server_has_its_reason(
    world: World, hostile: HostileSlurmrestd, fault: Fault, reason: str
) -> None:
    """What the server does wrong is told apart, and the first good answer heals it without an edit."""
    await world.operator()
    await world.secret("token", **TOKEN)
    hostile.fault = fault
    await world.cluster("c", hostile.url)
    said = await world.says(lambda: world.ready("c"), reason)
    assert said.status == "False"
    assert hostile.url in said.message
    hostile.fault = None
    await world.says(lambda: world.ready("c"), "Connected")


async def test_no_common_version_has_its_reason(world: World, hostile: HostileSlurmrestd) -> None:
    """A slurmrestd of another age is recognised as such."""
    await world.operator()
    hostile.versions = ("v0.0.39",)
    await world.secret("token", **TOKEN)
    await world.cluster("c", hostile.url)
    await world.says(lambda: world.ready("c"), "NoCommonVersion")


async def test_another_url_or_token_replaces_the_connection(world: World, hostile: HostileSlurmrestd) -> None:
    """The new URL is asked with the old token, then with the new one; the old server hears nothing more."""
    operator = await world.operator()
    await world.secret("token", **TOKEN)
    await world.cluster("c", hostile.url)
    await world.says(lambda: world.ready("c"), "Connected")
    own = ConnectionKey("Cluster", world.namespace, "c")
    first = operator.connections.get(own)
    async with HostileSlurmrestd() as other:
        other.token = "a-token"  # noqa: S105 - it opens nothing
        await world.patch(Cluster, "c", {"spec": {"server": other.url}})
        await eventually(lambda: other.seen("GET nodes"), "the new server is asked")
        second = operator.connections.get(own)
        assert second is not first
        other.token = "another"  # noqa: S105
        await world.secret("token", **{"auth-token": b"another"})
        await eventually(
            lambda: any(seen.headers["x-slurm-user-token"] == "another" for seen in other.log),
            "the new token is used",
        )
        assert operator.connections.get(own) not in (first, second)
        # By now even a question that was under way when the URL changed has been heard.
        hostile.log.clear()

        async def told() -> bool:
            ready = await world.ready("c")
            return ready is not None and ready.reason == "Connected" and other.url in ready.message

        await eventually(told, "the condition names the new server")
        assert hostile.log == []
        await world.delete(Cluster, "c")
        await eventually(
            lambda: operator.connections.get(own) is None, "the connection goes with the Cluster"
        )


async def test_a_deleted_cluster_leaves_nothing(world: World, hostile: HostileSlurmrestd) -> None:
    """A Cluster has no finalizer; with it go the connection, the watch of its Secret and its metrics."""
    operator = await world.operator()
    await world.secret("token", **TOKEN)
    await world.cluster("c", hostile.url)
    await world.says(lambda: world.ready("c"), "Connected")
    label = f'cluster="{world.namespace}/c"'
    assert label in operator.metrics()
    live = await world.client.get(Cluster, "c", world.namespace)
    assert live.metadata.finalizers == ()
    await world.delete(Cluster, "c")
    await eventually(lambda: not operator.wiring.secrets.watched, "the Secret is no longer watched")
    assert operator.connections.get(ConnectionKey("Cluster", world.namespace, "c")) is None
    assert label not in operator.metrics()


async def test_a_private_authority(world: World, tmp_path: Path) -> None:
    """An https server is believed when the Secret has its authority, and only then."""
    await world.operator()
    write_pki(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "apiserver.crt", tmp_path / "apiserver.key")
    ca = (tmp_path / "ca.crt").read_bytes()
    async with HostileSlurmrestd(tls=context) as server:
        await world.secret("token", **TOKEN)
        await world.cluster("c", server.url)
        await world.says(lambda: world.ready("c"), "SlurmrestdUnreachable")
        await world.secret("token", **TOKEN, ca__crt=b"no certificate")
        await world.says(lambda: world.ready("c"), "InvalidCA")
        await world.secret("token", **TOKEN, ca__crt=ca)
        await world.says(lambda: world.ready("c"), "Connected")


async def test_the_end_of_a_token_is_announced(world: World, hostile: HostileSlurmrestd) -> None:
    """A token in the last part of its life, or past it, is mentioned with the moment at which it ends."""
    await world.operator()
    now = datetime.now(UTC)
    old = mint(b"key", "slurm", timedelta(hours=10), now - timedelta(hours=9))
    await world.secret("token", **{"auth-token": old.encode()})
    await world.cluster("c", hostile.url)
    ready = await world.says(lambda: world.ready("c"), "Connected")
    assert "expires at" in ready.message
    await world.secret(
        "token", **{"auth-token": mint(b"key", "slurm", timedelta(hours=1), now - timedelta(days=1)).encode()}
    )
    await eventually(lambda: _message(world, "expired at"), "the message says that it has expired")
    await world.secret("token", **{"auth-token": mint(b"key", "slurm", timedelta(days=9), now).encode()})
    await eventually(lambda: _message(world, "'token'", there=False), "a young token is not mentioned")


async def _message(world: World, text: str, *, there: bool = True) -> bool:
    ready = await world.ready("c")
    assert ready is not None
    return (text in ready.message) is there


class Patient(WatchTiming):
    """Asks a server that failed once again after an hour."""

    def backoff(self, failures: int, *, refused: bool = False) -> float:
        del refused
        return 3600.0 * failures


async def test_an_edit_ends_the_pause_of_a_failing_cluster(world: World, hostile: HostileSlurmrestd) -> None:
    """However long the pause of a Cluster that failed, whoever edits it or its Secret is answered now."""
    operator = await world.operator(
        builds=(lambda wiring: ClusterController(wiring, timing=Patient()).controller,)
    )
    await world.secret("token", **TOKEN)
    hostile.fault = Fault.TOKEN_REFUSED
    await world.cluster("c", hostile.url)
    await world.says(lambda: world.ready("c"), "TokenRefused")
    found = operator.connections.get(ConnectionKey("Cluster", world.namespace, "c"))
    hostile.fault = Fault.BAD_GATEWAY
    await world.patch(Cluster, "c", {"spec": {"server": f"{hostile.url}/"}})
    await world.says(lambda: world.ready("c"), "SlurmctldDown")
    hostile.fault = None
    await world.secret("token", **TOKEN, note=b"looked at")
    await world.says(lambda: world.ready("c"), "Connected")
    assert operator.connections.get(ConnectionKey("Cluster", world.namespace, "c")) is found


async def test_two_clusters_in_two_states_do_not_mix(world: World, hostile: HostileSlurmrestd) -> None:
    """Clusters share a Secret and a worker, and each says what it is."""
    operator = await world.operator()
    await world.secret("token", **TOKEN)
    async with HostileSlurmrestd() as other:
        other.fault = Fault.BAD_GATEWAY
        await world.cluster("good", hostile.url)
        await world.cluster("bad", other.url)
        await world.says(lambda: world.ready("bad"), "SlurmctldDown")
        await world.says(lambda: world.ready("good"), "Connected")
        assert len(operator.wiring.secrets.watched) == 1
        text = operator.metrics()
        assert f'slurm_operator_slurm_up{{cluster="{world.namespace}/good"}} 1.0' in text
        assert f'slurm_operator_slurm_up{{cluster="{world.namespace}/bad"}} 0.0' in text
        await world.delete(Cluster, "bad")
        await eventually(lambda: "/bad" not in operator.metrics(), "it is gone from the metrics")
