"""Controllers on a real API server and their connections to a real slurmrestd, or to a hostile one."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import Controller, RestApi
from slurm_operator.controllers import slurmclient
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.slurm.errors import Unavailable
from tests.support.controllers.one_controller import (
    KEY,
    connected,
    connection,
    has_event,
    has_message,
    override,
)
from tests.support.processes import eventually
from tests.support.service_accounts import kubeconfig_with_token, service_account
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox import Box
    from kubebox.pytest_plugin import SlurmBoxFactory
    from kubebox.slurm import SlurmBox
    from slurm_operator.controllers.shared.node_events import SlurmNodeEvent
    from tests.integration.controllers.conftest import World


# ------------------------------------------------------------------------------------------------- real Slurm
async def test_connected_to_a_real_slurmrestd(world: World, slurm_box: SlurmBox) -> None:
    """A Controller with its key and a RestApi is connected with a token that the real slurmctld accepts."""
    operator = await connected(world, slurm_box, slurm_box.jwt_key)
    ready = await world.api_ready()
    assert ready is not None
    assert (ready.status, ready.observed_generation) == ("True", 1)
    assert {"n0", "n1", "n2"} <= set(connection(operator, world).view.nodes)
    await eventually(lambda: has_event(world, "SlurmApiConnected"), "an Event says so")
    assert f'slurm_operator_slurm_up{{cluster="{world.namespace}/main"}} 1.0' in operator.metrics()


async def test_daemons_come_and_go(world: World, slurm_box_factory: SlurmBoxFactory) -> None:
    """slurmrestd stopped, slurmctld stopped, key rotated: each has its reason, and each heals by itself."""
    box = slurm_box_factory(nodes=1)
    operator = await connected(world, box, box.jwt_key)
    watch = connection(operator, world).watch

    async def breaks(reason: str, how: Callable[[], object]) -> None:
        await asyncio.to_thread(how)
        watch.wake()
        assert (await world.says(world.api_ready, reason, 60)).status == "False"

    async def heals(how: Callable[[], object]) -> None:
        await asyncio.to_thread(how)
        watch.wake()
        await world.says(world.api_ready, "Connected", 60)

    await breaks("SlurmrestdUnreachable", lambda: box.stop("slurmrestd"))
    await eventually(lambda: has_event(world, "SlurmApiLost"), "an Event says so")
    await heals(lambda: box.start("slurmrestd"))
    await breaks("SlurmctldDown", lambda: box.stop("slurmctld"))
    await heals(lambda: box.start("slurmctld"))
    await breaks("TokenRefused", box.rotate_jwt_key)
    await eventually(lambda: has_event(world, "SlurmTokenRefused"), "an Event says so")
    await world.secret("keys", jwt__key=box.jwt_key)
    await world.says(world.api_ready, "Connected")


# -------------------------------------------------------------------------------------------- what is missing
async def test_each_thing_that_is_missing_has_its_reason(world: World, hostile: HostileSlurmrestd) -> None:
    """From nothing to connected and back, each step is named, and healed by what appears."""
    operator = await world.operator(override(hostile))
    await world.controller()
    missing = await world.says(world.api_ready, "RestApiNotFound")
    assert "'main'" in missing.message
    await world.restapi("api")
    missing = await world.says(world.api_ready, "JwtSecretNotFound")
    assert "'keys'" in missing.message
    await world.secret("keys", other=KEY)
    missing = await world.says(world.api_ready, "JwtKeyNotFound")
    assert "'jwt.key'" in missing.message
    assert connection(operator, world) is None
    await world.secret("keys", jwt__key=KEY)
    await world.says(world.api_ready, "Connected")
    await world.delete(Secret, "keys")
    await world.says(world.api_ready, "JwtSecretNotFound")
    assert connection(operator, world) is None
    await world.secret("keys", jwt__key=KEY)
    await world.says(world.api_ready, "Connected")
    await world.delete(RestApi, "api")
    await world.says(world.api_ready, "RestApiNotFound")
    assert connection(operator, world) is None


async def test_an_external_controller_needs_its_key_too(world: World, hostile: HostileSlurmrestd) -> None:
    """An external Controller without a key says so; with one it is reached like any other."""
    await world.operator(override(hostile))
    external = {"external": True, "externalConfig": {"host": "ctl.example.com", "port": 6817}}
    body = {"metadata": {"name": "main", "namespace": world.namespace}, "spec": external}
    await world.client.create(Controller, body)
    await world.restapi("api")
    await world.says(world.api_ready, "JwtKeyNotSet")
    await world.secret("keys", jwt__key=KEY)
    await world.patch(Controller, "main", {"spec": {"jwtKeyRef": {"name": "keys", "key": "jwt.key"}}})
    await world.says(world.api_ready, "Connected")


async def test_a_secret_that_may_not_be_read_is_unknown(
    world: World, hostile: HostileSlurmrestd, slinky_box: Box, tmp_path: Path
) -> None:
    """Without the right to read it, a Secret is neither there nor missing; the right heals that at once."""
    who = f"--serviceaccount={world.namespace}:operator"

    def allow(role: str, *rules: str) -> None:
        inside = partial(slinky_box.kubectl, "--namespace", world.namespace, "create")
        inside("role", role, *rules)
        inside("rolebinding", role, f"--role={role}", who)

    token = service_account(slinky_box, world.namespace, "operator")
    kinds = ("controllers", "clusters", "restapis", "nodesets")
    allow("kinds", "--verb=*", *(f"--resource={kind}.slinky.slurm.net" for kind in kinds))
    allow("status", "--verb=patch", "--resource=controllers.slinky.slurm.net/status")
    allow("events", "--verb=create,patch", "--resource=events.events.k8s.io")
    config = load_config(str(kubeconfig_with_token(slinky_box, tmp_path / "kubeconfig", token)))
    await world.secret("keys", jwt__key=KEY)
    await world.controller()
    await world.restapi("api")
    operator = await world.operator(override(hostile), config=config)
    unknown = await world.says(world.api_ready, "JwtSecretUnreadable")
    assert unknown.status == "Unknown"
    assert connection(operator, world) is None
    allow("keys", "--verb=list,watch", "--resource=secrets", "--resource-name=keys")
    await world.says(world.api_ready, "Connected", 60)


async def test_the_url_is_that_of_the_oldest_restapi_and_its_port(world: World) -> None:
    """Without an override the Service of the oldest RestApi is asked, at the port that it has."""
    operator = await world.operator()
    await world.secret("keys", jwt__key=KEY)
    await world.controller()
    await world.restapi("b", service={"port": 7000})
    first = await world.client.get(RestApi, "b", world.namespace)

    async def later() -> bool:
        """Create the second one in a later second: their age is counted in whole ones."""
        probe = await world.client.list_all(RestApi, world.namespace)
        if len(probe.items) == 1:
            await world.restapi("a")
        found = await world.client.get(RestApi, "a", world.namespace)
        if found.metadata.creation_timestamp == first.metadata.creation_timestamp:
            await world.delete(RestApi, "a")
            return False
        return True

    await eventually(later, "a is younger than b")
    unreachable = await world.says(world.api_ready, "SlurmrestdUnreachable")
    assert f"http://b-restapi.{world.namespace}:7000" in unreachable.message
    await world.patch(RestApi, "b", {"spec": {"service": {"port": 7001}}})
    await eventually(lambda: has_message(world, f"http://b-restapi.{world.namespace}:7001"), "the new port")
    await world.delete(RestApi, "b")
    await eventually(lambda: has_message(world, f"http://a-restapi.{world.namespace}:6820"), "the other one")
    assert connection(operator, world).target.url == f"http://a-restapi.{world.namespace}:6820"


# --------------------------------------------------------------------------------------------------- replaced
async def test_a_new_key_replaces_the_connection(world: World, hostile: HostileSlurmrestd) -> None:
    """Another key makes another connection with other tokens, the old one is dead, and no condition moves."""
    operator = await connected(world, hostile)
    first = connection(operator, world)
    ready = await world.api_ready()
    old = {seen.headers["x-slurm-user-token"] for seen in hostile.log}
    await world.secret("keys", jwt__key=b"n" * 32)
    await eventually(lambda: connection(operator, world) is not first, "the connection is another one")
    await eventually(
        lambda: any(seen.headers["x-slurm-user-token"] not in old for seen in hostile.log),
        "the new token is used",
    )
    await eventually(lambda: connection(operator, world).view.listed_at is not None, "it works")
    with pytest.raises(Unavailable):
        await first.rest.nodes()
    assert await world.api_ready() == ready


async def test_a_deleted_controller_leaves_nothing(world: World, hostile: HostileSlurmrestd) -> None:
    """With a Controller go its connection, the watch of its Secret and its metrics."""
    operator = await connected(world, hostile)
    assert f'cluster="{world.namespace}/main"' in operator.metrics()
    await world.delete(Controller, "main")
    await eventually(lambda: connection(operator, world) is None, "the connection goes")
    await eventually(lambda: not operator.wiring.secrets.watched, "the Secret is no longer watched")
    assert world.namespace not in operator.metrics()


# ---------------------------------------------------------------------------------------------------- at rest
async def test_short_failures_move_no_condition(world: World, hostile: HostileSlurmrestd) -> None:
    """A few failed polls of a cluster that works write nothing; only a failure that lasts is news."""
    operator = await connected(world, hostile, build=slurmclient.build)
    found = connection(operator, world)
    await eventually(lambda: has_event(world, "SlurmApiConnected"), "all is said")
    before = len(operator.writes())
    hostile.fail(Fault.BAD_GATEWAY, on="nodes", times=2)
    found.watch.wake()
    await eventually(lambda: found.view.failure is not None, "a poll fails")
    await eventually(lambda: found.view.failure is None, "the next but one succeeds")
    assert len(operator.writes()) == before
    hostile.fault = Fault.BAD_GATEWAY
    found.watch.wake()
    await world.says(world.api_ready, "SlurmctldDown")


def _is(found: Any, state: tuple[str, ...]) -> bool:
    return bool(found.view.nodes["n0"].state == state)


async def test_at_rest_nothing_is_written(world: World, hostile: HostileSlurmrestd) -> None:
    """While nodes change and polls go on, no request at all is sent to the API server but its watches."""
    operator = await connected(world, hostile)
    found = connection(operator, world)
    await eventually(lambda: has_event(world, "SlurmApiConnected"), "all is said")
    before = len(operator.requests)
    for number in range(5):
        state = ("MIXED",) if number % 2 else ("IDLE",)
        hostile.nodes.change("n0", state=[*state])
        found.watch.wake()
        await eventually(partial(_is, found, state), "the change is seen")
    assert [request for request in operator.requests[before:] if request.verb != "watch"] == []


async def test_a_condition_that_somebody_removed_comes_back(world: World, hostile: HostileSlurmrestd) -> None:
    """The condition is restored, and conditions of others are left alone."""
    await connected(world, hostile)
    other = {
        "type": "Ready",
        "status": "True",
        "reason": "Up",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await world.client.patch_status(
        Controller, "main", world.namespace, {"conditions": [other]}, field_manager="somebody"
    )
    await world.says(world.api_ready, "Connected")
    live = await world.client.get(Controller, "main", world.namespace)
    assert {one.type for one in live.status.conditions} == {"Ready", "SlurmApiReady"}


async def test_a_new_process_repeats_nothing(world: World, hostile: HostileSlurmrestd) -> None:
    """An operator that starts with a condition that is true already connects and writes nothing."""
    first = await connected(world, hostile)
    await eventually(lambda: has_event(world, "SlurmApiConnected"), "all is said")
    second = await world.operator(override(hostile))
    await eventually(lambda: connection(second, world), "the new one connects")
    await eventually(lambda: connection(second, world).view.listed_at is not None, "and knows")
    await eventually(lambda: second.wiring.connections.get(connection(second, world).key), "it is there")
    assert second.writes() == []
    assert connection(first, world) is not None


async def test_a_new_process_repeats_no_outage(world: World, hostile: HostileSlurmrestd) -> None:
    """An operator that starts in the middle of an outage finds what is said already, and writes nothing."""
    first = await connected(world, hostile)
    hostile.fault = Fault.BAD_GATEWAY
    connection(first, world).watch.wake()
    said = await world.says(world.api_ready, "SlurmctldDown")
    await eventually(lambda: has_event(world, "SlurmApiLost"), "all is said")
    second = await world.operator(override(hostile))
    await eventually(lambda: connection(second, world), "the new one tries")
    await eventually(lambda: connection(second, world).failing_since is not None, "and fails")
    assert await world.api_ready() == said
    assert second.writes() == []


# ----------------------------------------------------------------------------------------------------- events
async def test_changes_of_nodes_reach_the_channel(world: World, hostile: HostileSlurmrestd) -> None:
    """Each node that changes in Slurm is an event under its Controller, also through a Cluster."""
    operator = await world.operator(override(hostile))
    heard: list[SlurmNodeEvent] = []
    operator.wiring.node_events.subscribe(heard.append)
    await world.secret("token", **{"auth-token": b"a-token"})
    await world.cluster("far", hostile.url)
    await world.says(lambda: world.ready("far"), "Connected")
    assert heard == [], "a Cluster has no NodeSets"
    await world.controller(cluster_ref="far")
    await world.says(world.api_ready, "Connected")
    assert {(event.controller.name, event.name, event.old) for event in heard} == {
        ("main", "n0", None),
        ("main", "n1", None),
    }
    heard.clear()
    hostile.nodes.change("n1", state=["IDLE", "DRAIN"], reason="slurm-operator: test")
    connection(operator, world).watch.wake()
    await eventually(lambda: any(event.name == "n1" for event in heard), "the change arrives")
    event = next(event for event in heard if event.name == "n1")
    assert (event.old and event.old.state, event.new and event.new.state) == (
        ("IDLE", "DYNAMIC_NORM"),
        ("IDLE", "DRAIN"),
    )
