"""How a status is written, on the real API server: by whom, how often, and what others keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import Cluster, Controller
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.shared.conditions import condition
from slurm_operator.controllers.shared.status_writer import StatusWriter
from slurm_operator.kube.client.client import Client, RequestInfo
from slurm_operator.kube.models.text_limits import MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.kube.client.config import ClientConfig

KEY = {"name": "secret", "key": "k"}


@pytest.fixture
def requests() -> list[RequestInfo]:
    """Hand out the log of all that `writing` sends."""
    return []


@pytest.fixture
async def writing(config: ClientConfig, requests: list[RequestInfo]) -> AsyncIterator[Client]:
    """Hand out the client that writes statuses."""
    async with Client(config, observe=requests.append) as opened:
        yield opened


async def create(client: Client, namespace: str, name: str = "main") -> Controller:
    body = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"slurmKeyRef": KEY, "jwtKeyRef": KEY},
    }
    return await client.create(Controller, body)


def ready(live: Any, message: str, *, ready: bool = True, kind: str = "Ready") -> Any:
    return condition(kind, ready, "Because", message, live)


async def test_writers_keep_each_others_conditions(
    client: Client, writing: Client, kube_namespace: str
) -> None:
    """Two controllers that write conditions of one object from old caches never touch each other's."""
    live = await create(client, kube_namespace)
    first, second = StatusWriter(writing, "first"), StatusWriter(writing, "second")
    assert await first.write(live, ready(live, "one"), observedGeneration=1)
    assert await second.write(live, ready(live, "two", kind="SlurmApiReady"))
    assert await first.write(live, ready(live, "three"), observedGeneration=1)
    stored = await client.get(Controller, "main", kube_namespace)
    assert {one.type: one.message for one in stored.status.conditions} == {
        "Ready": "three",
        "SlurmApiReady": "two",
    }
    assert stored.status.observed_generation == 1


async def test_a_condition_of_a_go_operator_stays(
    client: Client, writing: Client, kube_namespace: str
) -> None:
    """What was written with plain updates by another user is neither changed nor removed."""
    live = await create(client, kube_namespace)
    theirs = {
        "type": "Theirs",
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await client.patch_status(
        Controller, "main", kube_namespace, {"conditions": [theirs]}, field_manager="manager"
    )
    await StatusWriter(writing, "first").write(live, ready(live, "one"))
    stored = await client.get(Controller, "main", kube_namespace)
    assert {one.type for one in stored.status.conditions} == {"Theirs", "Ready"}


async def test_what_is_said_already_is_not_sent(
    client: Client, writing: Client, requests: list[RequestInfo], kube_namespace: str
) -> None:
    """The same status is written once, though the cache still shows the object without it."""
    live = await create(client, kube_namespace)
    writer = StatusWriter(writing, "first")
    for _ in range(3):
        await writer.write(live, ready(live, "one"), observedGeneration=1)
    assert len(requests) == 1
    stored = await client.get(Controller, "main", kube_namespace)
    assert not await writer.write(stored, ready(stored, "one"), observedGeneration=1)
    assert not await StatusWriter(writing, "first").write(
        stored, ready(stored, "one"), observedGeneration=1
    ), "a new process"
    assert len(requests) == 1


async def test_the_transition_time_survives_an_old_cache(
    client: Client, writing: Client, kube_namespace: str
) -> None:
    """A new message from an old cache keeps the moment at which the status became what it is."""
    live = await create(client, kube_namespace)
    writer = StatusWriter(writing, "first")
    await writer.write(live, ready(live, "one"))
    before = (await client.get(Controller, "main", kube_namespace)).status.conditions[0]
    await writer.write(live, ready(live, "two"))
    after = (await client.get(Controller, "main", kube_namespace)).status.conditions[0]
    assert (before.message, after.message) == ("one", "two")
    assert before.last_transition_time == after.last_transition_time is not None


async def test_what_is_no_longer_said_disappears(
    client: Client, writing: Client, kube_namespace: str
) -> None:
    """A condition that a controller leaves out of its next write is removed."""
    live = await create(client, kube_namespace)
    writer = StatusWriter(writing, "first")
    await writer.write(live, ready(live, "one"), ready(live, "two", kind="Extra"))
    await writer.write(live, ready(live, "three"))
    stored = await client.get(Controller, "main", kube_namespace)
    assert [one.type for one in stored.status.conditions] == ["Ready"]


async def test_what_is_gone_stays_gone(client: Client, writing: Client, kube_namespace: str) -> None:
    """A status for an object that was deleted meanwhile makes no object and no error."""
    live = await create(client, kube_namespace)
    await client.delete(Controller, "main", kube_namespace)
    assert not await StatusWriter(writing, "first").write(live, ready(live, "for nobody"))
    assert (await client.list_all(Controller, kube_namespace)).items == []


async def test_a_namesake_ends_with_its_own_status(
    client: Client, writing: Client, kube_namespace: str
) -> None:
    """Where an object was replaced by another of its name, the one that is there ends with its own status."""
    live = await create(client, kube_namespace)
    await client.delete(Controller, "main", kube_namespace)
    newcomer = await create(client, kube_namespace)
    writer = StatusWriter(writing, "first")
    await writer.write(live, ready(live, "for the first"))
    assert await writer.write(newcomer, ready(newcomer, "for the second"))
    stored = await client.get(Controller, "main", kube_namespace)
    assert [one.message for one in stored.status.conditions] == ["for the second"]


async def test_false_is_written_out(client: Client, writing: Client, kube_namespace: str) -> None:
    """`isReady: false` is stored as such, since the READY column shows nothing for a field that is absent."""
    body = {
        "metadata": {"name": "c", "namespace": kube_namespace},
        "spec": {"server": "http://r:6820", "token": {"secretRef": "t"}},
    }
    live = await client.create(Cluster, body)
    await StatusWriter(writing, "first").write(live, ready(live, "no", ready=False), isReady=False)
    raw = await client.raw("GET", Cluster.RESOURCE.path(kube_namespace, "c"))
    assert b'"isReady":false' in raw.replace(b" ", b"")
    stored = await client.get(Cluster, "c", kube_namespace)
    found = find_condition(stored.status.conditions, "Ready")
    assert found is not None
    assert (found.status, found.observed_generation) == ("False", 1)


async def test_a_message_of_any_length_is_written_and_then_rests(
    client: Client, writing: Client, requests: list[RequestInfo], kube_namespace: str
) -> None:
    """A condition that quotes a megabyte is cut to what the API server takes, and not written again."""
    live = await create(client, kube_namespace)
    writer = StatusWriter(writing, "first")
    assert await writer.write(live, ready(live, "ü" * 1_000_000))
    stored = await client.get(Controller, "main", kube_namespace)
    (found,) = stored.status.conditions
    assert found.message.endswith("ü…")
    assert len(found.message.encode()) <= MESSAGE_BYTES
    assert not await writer.write(stored, ready(stored, "ü" * 1_000_000))
    assert len(requests) == 1
