from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

from slurm_operator.kube.client.client import Client, RequestInfo
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.decide.event_series import BURST
from slurm_operator.kube.errors import FencedError
from slurm_operator.kube.models.kinds import Event, Namespace, Pod
from slurm_operator.kube.models.meta import ObjectMeta, ObjectReference
from slurm_operator.kube.process import metrics
from slurm_operator.kube.runtime.events import EventRecorder, event_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kubebox.pytest_plugin import BoxFactory
    from slurm_operator.kube.client.config import ClientConfig

DEADLINE = 60.0


def pod(namespace: str, name: str = "web-0") -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace, uid=str(uuid.uuid4())))


def dropped(reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("slurm_operator_events_dropped_total", {"reason": reason}) or 0.0


async def events(client: Client, namespace: str) -> list[Event]:
    return (await client.list_all(Event, namespace)).items


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not await condition():  # noqa: ASYNC110 - what changes is in another process
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running(recorder: EventRecorder) -> AsyncIterator[None]:
    task = asyncio.create_task(recorder.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_event_reaches_the_user(client: Client, kube_namespace: str) -> None:
    """An event carries everything a user needs to know, and kubectl's API sees it."""
    recorder = EventRecorder(client, instance="host-1")
    subject, child = pod(kube_namespace), pod(kube_namespace, "child")
    async with running(recorder):
        recorder.event(subject, "Warning", "SyncFailed", "Sync", "it failed", related=child)

        async def arrived() -> bool:
            return len(await events(client, kube_namespace)) == 1

        await eventually(arrived)
    (event,) = await events(client, kube_namespace)
    assert (event.type, event.reason, event.action, event.note) == (
        "Warning",
        "SyncFailed",
        "Sync",
        "it failed",
    )
    assert (event.regarding.kind, event.regarding.name) == ("Pod", "web-0")
    assert event.regarding.uid == subject.metadata.uid
    assert event.related is not None
    assert event.related.name == "child"
    assert (event.reporting_controller, event.reporting_instance) == ("slurm-operator", "host-1")
    assert event.series is None
    legacy = json.loads(await client.raw("GET", f"/api/v1/namespaces/{kube_namespace}/events"))
    assert legacy["items"][0]["message"] == "it failed"


async def test_a_storm_is_a_few_requests(config: ClientConfig, kube_namespace: str) -> None:
    """Ten thousand repeats become one event with the right count, in two writes."""
    requests: list[RequestInfo] = []
    async with Client(config, observe=requests.append) as client:
        recorder = EventRecorder(client)
        subject = pod(kube_namespace)
        for _ in range(10_000):
            recorder.event(subject, "Normal", "ScalingUp", "ScaleUp", "1 pod")
        assert await recorder.flush(DEADLINE)
        assert [request.verb for request in requests] == ["create", "patch"]
        (event,) = await events(client, kube_namespace)
    assert event.series is not None
    assert event.series.count == 10_000
    assert event.series.last_observed_time is not None
    assert event.event_time is not None
    assert event.series.last_observed_time >= event.event_time


async def test_different_events_of_one_object_are_limited(client: Client, kube_namespace: str) -> None:
    """An object that has something new to say each time is cut off after its burst, and that is counted."""
    recorder = EventRecorder(client)
    before = dropped("rate_limited")
    subject = pod(kube_namespace)
    for number in range(BURST + 5):
        recorder.event(subject, "Normal", "Reason", "Act", f"note {number}")
    assert await recorder.flush(DEADLINE)
    assert len(await events(client, kube_namespace)) == BURST
    assert dropped("rate_limited") - before == 5


async def test_a_full_queue_drops_and_counts(client: Client, kube_namespace: str) -> None:
    """What does not fit is dropped, the rest is sent."""
    recorder = EventRecorder(client, max_queue=3)
    before = dropped("queue_full")
    for number in range(5):
        recorder.event(pod(kube_namespace, f"web-{number}"), "Normal", "Reason", "Act", "note")
    assert await recorder.flush(DEADLINE)
    assert len(await events(client, kube_namespace)) == 3
    assert dropped("queue_full") - before == 2


async def test_long_and_secret_notes_are_accepted(client: Client, kube_namespace: str) -> None:
    """A note is cut to what the API takes, and a token in it never leaves the process."""
    recorder = EventRecorder(client)
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzbHVybSJ9.c2lnbmF0dXJl"  # noqa: S105 - it opens nothing
    recorder.event(pod(kube_namespace), "Normal", "R" * 500, "A" * 500, f"token {token} " + "é" * 5000)
    assert await recorder.flush(DEADLINE)
    (event,) = await events(client, kube_namespace)
    assert len(event.note.encode()) <= 1024
    assert "eyJ" not in event.note
    assert event.note.endswith("…")
    assert len(event.reason.encode()) <= 128


async def test_cluster_scoped_objects_report_to_default(client: Client) -> None:
    """An event about an object without namespace is found in `default`."""
    recorder = EventRecorder(client)
    name = f"node-{uuid.uuid4()}"
    node = ObjectReference(api_version="v1", kind="Node", name=name, uid=name)
    recorder.event(node, "Normal", "NodeCordon", "Cordon", "cordoned")
    assert await recorder.flush(DEADLINE)
    found = [event for event in await events(client, "default") if event.regarding.name == name]
    assert [event.reason for event in found] == ["NodeCordon"]


async def test_a_series_outlives_its_event(client: Client, kube_namespace: str) -> None:
    """When the server has dropped the event, the series goes on in a new one with the whole count."""
    recorder = EventRecorder(client)
    subject = pod(kube_namespace)
    recorder.event(subject, "Normal", "Reason", "Act", "note")
    assert await recorder.flush(DEADLINE)
    (event,) = await events(client, kube_namespace)
    await client.delete(Event, event.metadata.name, kube_namespace)
    recorder.event(subject, "Normal", "Reason", "Act", "note")
    assert await recorder.flush(DEADLINE)
    (again,) = await events(client, kube_namespace)
    assert again.metadata.name != event.metadata.name
    assert again.series is not None
    assert again.series.count == 2


async def refused(client: Client, namespace: str) -> None:
    """Check that three events of a namespace are dropped quietly, with one line in the log."""
    recorder = EventRecorder(client)
    before = dropped("rejected")
    with structlog.testing.capture_logs() as lines:
        for number in range(3):
            recorder.event(pod(namespace, f"web-{number}"), "Normal", "Reason", "Act", "note")
        assert await recorder.flush(DEADLINE)
    assert dropped("rejected") - before == 3
    assert [line["event"] for line in lines] == ["events of a namespace are refused"]
    assert lines[0]["namespace"] == namespace


async def test_a_missing_namespace_costs_one_line(client: Client) -> None:
    """Events of a namespace that is gone are dropped, counted and mentioned once."""
    await refused(client, f"gone-{uuid.uuid4()}")


async def test_a_terminating_namespace_costs_one_line(client: Client) -> None:
    """Events of a namespace that is being deleted are dropped, counted and mentioned once."""
    name = f"going-{uuid.uuid4()}"
    await client.create(Namespace, {"metadata": {"name": name}})
    await client.delete(Namespace, name)
    await refused(client, name)
    body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"finalizers": []}}
    await client.raw("PUT", f"/api/v1/namespaces/{name}/finalize", body=body)


async def test_without_the_lease_nothing_is_sent(config: ClientConfig, kube_namespace: str) -> None:
    """A process that may not write drops its events instead of queueing them."""

    def fence() -> None:
        raise FencedError("the lease is lost")

    before = dropped("fenced")
    async with Client(config, fence=fence) as fenced:
        recorder = EventRecorder(fenced)
        recorder.event(pod(kube_namespace), "Normal", "Reason", "Act", "note")
        assert await recorder.flush(DEADLINE)
    assert dropped("fenced") - before == 1


async def test_a_broken_call_never_raises(client: Client) -> None:
    """Whatever a caller passes, its own work goes on."""
    recorder = EventRecorder(client)
    before = dropped("error")
    with structlog.testing.capture_logs():
        recorder.event(ObjectReference(), "Normal", "Reason", "Act", "nameless")
        recorder.event(None, "Normal", "Reason", "Act", "nothing")  # type: ignore[arg-type]  # the point of the test
    assert dropped("error") - before == 2
    assert await recorder.flush(DEADLINE)


async def test_an_event_whose_answer_was_lost_is_not_doubled(client: Client, kube_namespace: str) -> None:
    """Sending the same event again finds it on the server and goes on from there."""
    recorder = EventRecorder(client)
    subject = pod(kube_namespace)
    recorder.event(subject, "Normal", "Reason", "Act", "note")
    await client.create(Event, event_body(recorder._queue[0].create, "slurm-operator", "host"))
    recorder.event(subject, "Normal", "Reason", "Act", "note")
    assert await recorder.flush(DEADLINE)
    (event,) = await events(client, kube_namespace)
    assert event.series is not None
    assert event.series.count == 2


async def test_events_wait_for_an_absent_server(kube_box_factory: BoxFactory) -> None:
    """What happens while the API server is away is told when it is back, once and with the right count."""
    box = kube_box_factory()
    config = load_config(str(box.kubeconfig))
    # Impatient, so that it is the recorder that has to wait and not the client.
    async with Client(config, timeout=2.0) as impatient, Client(config) as client:
        recorder = EventRecorder(impatient)
        subject = pod("default")

        def happen(reason: str) -> None:
            recorder.event(subject, "Normal", reason, "Act", "while away")

        async def counts() -> dict[str, int]:
            found = [item for item in await events(client, "default") if item.note == "while away"]
            assert len({item.reason for item in found}) == len(found)
            return {item.reason: item.series.count if item.series else 1 for item in found}

        async def all_there() -> bool:
            await recorder.flush(DEADLINE)
            return await counts() == {"Before": 3, "First": 2, "Second": 1}

        happen("Before")
        assert await recorder.flush(DEADLINE)
        happen("Before")
        box.stop("kube-apiserver")
        assert not await recorder.flush(DEADLINE)
        async with running(recorder):
            for reason in ("Before", "First", "First", "Second"):
                happen(reason)
            await eventually(lambda: asyncio.sleep(0, recorder._stops >= 2))
            box.start("kube-apiserver")
            await eventually(all_there)


async def test_a_server_that_stays_away_costs_events_not_memory(config: ClientConfig) -> None:
    """After a dozen tries an event is given up and counted; the next one gets its turn."""
    before = dropped("unreachable")
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        nowhere = dataclasses.replace(config, server=f"https://127.0.0.1:{deaf.getsockname()[1]}")
        async with Client(nowhere, timeout=0.05) as client:
            recorder = EventRecorder(client)
            recorder.event(pod("default"), "Normal", "Reason", "Act", "note")
            for _ in range(11):
                assert not await recorder.flush(DEADLINE)
            assert dropped("unreachable") == before
            assert not await recorder.flush(DEADLINE)
            assert dropped("unreachable") - before == 1
            assert await recorder.flush(DEADLINE)
