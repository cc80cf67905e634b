"""What becomes of a connection when the objects and the cluster around it change."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import Cluster, Controller, RestApi
from slurm_operator.controllers.cluster import ClusterController
from slurm_operator.kube.errors import Invalid
from slurm_operator.kube.models.kinds import Event
from slurm_operator.kube.models.meta import Key
from slurm_operator.slurm.errors import Unavailable
from slurm_operator.slurm.rest.connections import ConnectionKey
from slurm_operator.slurm.watch.watcher import WatchTiming
from tests.support.controllers.one_controller import (
    KEY,
    connected,
    connection,
    has_event,
    has_message,
    impatient,
    override,
)
from tests.support.processes import eventually
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd

if TYPE_CHECKING:
    from kubebox.pytest_plugin import SlurmBoxFactory
    from tests.integration.controllers.conftest import World


# ---------------------------------------------------------------------------------------------------- Cluster
async def test_a_cluster_of_the_same_name_is_used(world: World, hostile: HostileSlurmrestd) -> None:
    """A Cluster with the Controller's name takes over from its RestApi, and gives it back when it goes."""
    operator = await connected(world, hostile)
    own = connection(operator, world)
    await world.secret("token", **{"auth-token": b"a-token"})
    await world.cluster("main", hostile.url)
    through = "Through Cluster 'main'"
    await eventually(lambda: has_message(world, through), "the Cluster is used")
    await world.says(world.api_ready, "Connected")
    shared = operator.connections.get(ConnectionKey("Cluster", world.namespace, "main"))
    assert connection(operator, world).rest is shared.rest is not own.rest
    assert [key.kind for key, _ in operator.connections.items()] == ["Cluster"]
    hostile.fault = Fault.BAD_GATEWAY
    shared.watch.wake()
    await world.says(world.api_ready, "SlurmctldDown", 60)
    await eventually(lambda: has_event(world, "SlurmApiLost"), "the Controller's own Event says so")
    hostile.fault = None
    await world.delete(Cluster, "main")
    key = ConnectionKey("Controller", world.namespace, "main")
    await eventually(
        lambda: connection(operator, world) is not None and operator.connections.linked(key) is None,
        "the RestApi is used again",
    )
    await world.says(world.api_ready, "Connected")


async def test_a_named_cluster_is_used_or_missed(world: World, hostile: HostileSlurmrestd) -> None:
    """A Controller that names a Cluster uses that one and no other way, and says so while there is none."""
    operator = await world.operator(override(hostile))
    await world.secret("keys", jwt__key=KEY)
    await world.restapi("api")
    await world.controller(cluster_ref="far")
    missing = await world.says(world.api_ready, "ClusterNotFound")
    assert "'far'" in missing.message
    assert connection(operator, world) is None
    await world.cluster("far", "http://far.example.com:6820")
    mirrored = await world.says(world.api_ready, "SecretNotFound")
    assert "Cluster 'far'" in mirrored.message
    await world.secret("token", **{"auth-token": b"a-token"})
    await world.says(world.api_ready, "Connected")
    await world.patch(
        Controller, "main", {"metadata": {"annotations": {"slinky.slurm.net/cluster-ref": None}}}
    )
    await eventually(
        lambda: operator.connections.linked(ConnectionKey("Controller", world.namespace, "main")) is None,
        "without the annotation the RestApi is used",
    )
    await world.says(world.api_ready, "Connected")


async def test_two_controllers_share_one_cluster(world: World, hostile: HostileSlurmrestd) -> None:
    """Two Controllers that name one Cluster are one connection, and each says when that Cluster goes."""
    operator = await world.operator(override(hostile))
    await world.secret("token", **{"auth-token": b"a-token"})
    await world.cluster("far", hostile.url)
    names = ("one", "two")
    for name in names:
        await world.controller(name, cluster_ref="far")
        await world.says(partial(world.api_ready, name), "Connected")
    shared = operator.connections.get(ConnectionKey("Cluster", world.namespace, "far"))
    assert [connection(operator, world, name).rest for name in names] == [shared.rest, shared.rest]
    assert len([*operator.connections.items()]) == 1
    await world.delete(Controller, "one")
    await eventually(lambda: connection(operator, world, "one") is None, "one goes")
    assert connection(operator, world, "two").rest is shared.rest, "the other one keeps what it shares"
    await world.delete(Cluster, "far")
    await world.says(lambda: world.api_ready("two"), "ClusterNotFound")
    assert [*operator.connections.items()] == []


# ------------------------------------------------------------------------------------------------- comes back
async def _serves(world: World, status: str, since: str) -> None:
    """Let a RestApi say whether its pods are ready, as its own controller does."""
    ready = {
        "type": "Ready",
        "status": status,
        "reason": "Pods",
        "message": "",
        "lastTransitionTime": f"2026-01-01T00:{since}:00Z",
    }
    await world.client.patch_status(
        RestApi, "api", world.namespace, {"conditions": [ready]}, field_manager="somebody"
    )


async def test_a_restapi_that_becomes_ready_is_asked_at_once(
    world: World, hostile: HostileSlurmrestd
) -> None:
    """After a long outage the pause to the next request is long; that the RestApi is ready ends it."""
    operator = await connected(world, hostile)
    own = ConnectionKey("Controller", world.namespace, "main")
    target = connection(operator, world).target
    operator.connections.remove(own)
    # Pauses that are soon longer than any test.
    found = operator.connections.set(own, target, WatchTiming(failure_base=0.02, failure_cap=3600.0))
    await eventually(lambda: found.view.listed_at is not None, "it works")
    hostile.fault = Fault.BAD_GATEWAY
    await _serves(world, "False", "01")
    now = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable):
        await found.watch.refreshed(now, now + 3.0)
    await world.says(world.api_ready, "SlurmctldDown")
    hostile.fault = None
    await _serves(world, "True", "02")
    await world.says(world.api_ready, "Connected")
    assert connection(operator, world).rest is found.rest


async def test_a_restapi_that_becomes_ready_hastens_the_cluster_that_leads_to_it(
    world: World, hostile: HostileSlurmrestd
) -> None:
    """A connection through a Cluster is tried at once, too, when the Controller's RestApi is ready."""
    # Pauses that are soon longer than any test.
    timing = WatchTiming(failure_base=0.02, failure_cap=3600.0)
    operator = await world.operator(
        builds=(lambda wiring: ClusterController(wiring, timing=timing, grace=0.3).controller, impatient)
    )
    await world.secret("token", **{"auth-token": b"a-token"})
    await world.cluster("main", hostile.url)
    await world.controller()
    await world.restapi("api")
    await world.says(world.api_ready, "Connected")
    shared = connection(operator, world)
    hostile.fault = Fault.BAD_GATEWAY
    await _serves(world, "False", "01")
    now = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable):
        await shared.watch.refreshed(now, now + 3.0)
    await world.says(world.api_ready, "SlurmctldDown")
    hostile.fault = None
    await _serves(world, "True", "02")
    await world.says(world.api_ready, "Connected")
    assert connection(operator, world).rest is shared.rest


async def test_a_cluster_is_used_again_without_a_hint(
    world: World, slurm_box_factory: SlurmBoxFactory
) -> None:
    """A real slurmrestd that comes back is used again although no object says so; so is a new key."""
    box = slurm_box_factory(nodes=1)
    await world.operator()
    await world.secret("token", **{"auth-token": box.token().encode()})
    await world.cluster("main", box.url)
    await world.controller()
    await world.says(world.api_ready, "Connected")
    await asyncio.to_thread(box.stop, "slurmrestd")
    await world.says(world.api_ready, "SlurmrestdUnreachable")
    await asyncio.to_thread(box.start, "slurmrestd")
    await world.says(world.api_ready, "Connected")
    await asyncio.to_thread(box.rotate_jwt_key)
    await world.says(world.api_ready, "TokenRefused")
    await world.secret("token", **{"auth-token": box.token().encode()})
    await world.says(world.api_ready, "Connected")


# ------------------------------------------------------------------------------------------ cannot be read
async def test_a_cluster_that_cannot_be_read_is_not_absent(world: World, hostile: HostileSlurmrestd) -> None:
    """While an object exists that may be the way to Slurm and cannot be read, the connection stays."""
    operator = await connected(world, hostile)
    found = connection(operator, world)
    clusters = operator.wiring.manager.informer(Cluster).store
    clusters.mark_unreadable(Key(world.namespace, "main"), "of a later version")
    await world.patch(Controller, "main", {"metadata": {"labels": {"look": "again"}}})
    unknown = await world.says(world.api_ready, "ClusterUnreadable")
    assert (unknown.status, connection(operator, world)) == ("Unknown", found)


async def test_a_restapi_that_cannot_be_read_is_not_absent(world: World, hostile: HostileSlurmrestd) -> None:
    """The last RestApi that can be read goes while another cannot: unknown, until that one is gone too."""
    operator = await connected(world, hostile)
    found = connection(operator, world)
    restapis = operator.wiring.manager.informer(RestApi)
    lost = Key(world.namespace, "later")
    restapis.store.mark_unreadable(lost, "of a later version")
    await world.delete(RestApi, "api")
    unknown = await world.says(world.api_ready, "RestApiUnreadable")
    assert (unknown.status, connection(operator, world)) == ("Unknown", found)


async def test_a_port_that_is_none_is_refused(world: World) -> None:
    """A RestApi whose port cannot be one is refused by the API server, which names the field."""
    with pytest.raises(Invalid, match=r"spec\.service\.port"):
        await world.restapi("api", service={"port": 70000})


# ------------------------------------------------------------------------------------------------- in doubt
async def test_a_list_that_is_not_believed_is_said(world: World, hostile: HostileSlurmrestd) -> None:
    """A list that lost most of its nodes is a reason, an Event and a metric; the cluster stays ready."""
    hostile.add_nodes("m[0-7]")
    operator = await connected(world, hostile)
    found = connection(operator, world)
    before = await world.api_ready()
    label = f'slurm_operator_slurm_view_suspicious{{cluster="{world.namespace}/main"}}'
    assert f"{label} 0.0" in operator.metrics()
    for number in range(8):
        del hostile.nodes[f"m{number}"]
    found.watch.wake()
    doubted = await world.says(world.api_ready, "ListSuspicious")
    assert before is not None
    assert (doubted.status, doubted.last_transition_time) == ("True", before.last_transition_time)
    assert f"{label} 1.0" in operator.metrics()
    await eventually(lambda: has_event(world, "SlurmListSuspicious"), "an Event says so")
    hostile.add_nodes("m[0-7]")
    found.watch.wake()
    await world.says(world.api_ready, "Connected")
    assert f"{label} 0.0" in operator.metrics()


# ------------------------------------------------------------------------------------------------- flapping
async def test_a_cluster_that_flaps_is_not_an_event_each_time(
    world: World, hostile: HostileSlurmrestd
) -> None:
    """However often a cluster is lost and found, there is one Event of each kind, which counts."""
    operator = await connected(world, hostile)
    found = connection(operator, world)
    for _ in range(4):
        for fault, reason in ((Fault.BAD_GATEWAY, "SlurmctldDown"), (None, "Connected")):
            hostile.fault = fault
            found.watch.wake()
            await world.says(world.api_ready, reason)
    await eventually(lambda: has_event(world, "SlurmApiLost"), "an Event says so")
    assert Counter(reason for _, _, reason in await world.events()) == {
        "SlurmApiConnected": 1,
        "SlurmApiLost": 1,
    }
    await operator.wiring.events.flush(10.0)
    counts = {one.reason: one.series for one in (await world.client.list_all(Event, world.namespace)).items}
    assert {reason: series and series.count for reason, series in counts.items()} == {
        "SlurmApiConnected": 5,
        "SlurmApiLost": 4,
    }
