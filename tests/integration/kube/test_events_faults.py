from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.decide.event_series import FIRST_INTERVAL
from slurm_operator.kube.models.meta import ObjectReference
from slurm_operator.kube.process import metrics
from slurm_operator.kube.runtime.events import EventRecorder
from tests.support.kube.scripted_server import OK, Request, Server, hang, respond, serving, status

if TYPE_CHECKING:
    from tests.support.kube.scripted_server import Answer

DEADLINE = 60.0
BROKEN = respond(500, status(500, "InternalError"))


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def about(namespace: str, name: str) -> ObjectReference:
    return ObjectReference(kind="Pod", namespace=namespace, name=name, uid=f"{namespace}/{name}")


def by_namespace(answers: dict[str, Answer]) -> Answer:
    """Return a step that answers by the namespace in the path; a namespace that is not named works."""

    async def step(request: Request, writer: asyncio.StreamWriter) -> None:
        await answers.get(namespace_of(request), OK)(request, writer)

    return step


def namespace_of(request: Request) -> str:
    return request.target.split("/")[5]


def taken(server: Server) -> list[tuple[str, str]]:
    """Return method and namespace of the requests since the last question."""
    requests = [(request.method, namespace_of(request)) for request in server.requests]
    server.requests.clear()
    return requests


def dropped(reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("slurm_operator_events_dropped_total", {"reason": reason}) or 0.0


async def test_a_broken_namespace_does_not_hold_up_the_others() -> None:
    """Events that the server fails on are set aside, and what is behind them is sent in the same round."""
    async with serving() as server, Client(server.config()) as client:
        server.script = [by_namespace({"broken": BROKEN})]
        clock = Clock()
        recorder = EventRecorder(client, clock=clock)
        for number in range(3):
            recorder.event(about("broken", f"p{number}"), "Normal", "Reason", "Act", "note")
        recorder.event(about("good", "p"), "Warning", "Reason", "Act", "note")
        assert await recorder._send() is None
        assert taken(server) == [("POST", "broken")] * 3 + [("POST", "good")]
        recorder.event(about("good", "q"), "Warning", "Reason", "Act", "note")
        assert await recorder._send() is None
        assert taken(server) == [("POST", "good")]
        clock.now += 2.0
        assert await recorder._send() is None
        assert taken(server) == [("POST", "broken")] * 3
        server.script = [OK]
        assert await recorder.flush(DEADLINE)
        assert taken(server) == [("POST", "broken")] * 3


async def test_each_event_is_given_up_by_its_own_count() -> None:
    """An event that failed a dozen times is dropped with one line per namespace; a younger one is not."""
    async with serving() as server, Client(server.config()) as client:
        server.script = [by_namespace({"broken": BROKEN})]
        recorder = EventRecorder(client, clock=Clock())
        before = dropped("unreachable")
        with structlog.testing.capture_logs() as lines:
            recorder.event(about("broken", "old"), "Normal", "Reason", "Act", "note")
            assert not await recorder.flush(DEADLINE)
            recorder.event(about("broken", "young"), "Normal", "Reason", "Act", "note")
            for _ in range(11):
                assert not await recorder.flush(DEADLINE)
            assert dropped("unreachable") - before == 1
            assert [waiting.create.occurrence.regarding.name for waiting in recorder._aside] == ["young"]
            assert await recorder.flush(DEADLINE)
        assert dropped("unreachable") - before == 2
        warnings = [line["event"] for line in lines if line["log_level"] == "warning"]
        assert warnings == ["events of a namespace are dropped"]


async def test_a_failing_patch_costs_no_event() -> None:
    """However often a patch fails, events that wait are sent and none is dropped in its place."""
    async with serving() as server, Client(server.config()) as client:
        clock = Clock()
        recorder = EventRecorder(client, clock=clock)
        before = dropped("unreachable")
        for _ in range(2):
            server.script = [OK]
            recorder.event(about("broken", "p"), "Normal", "Reason", "Act", "note")
            assert await recorder._send() is None
        server.script = [by_namespace({"broken": BROKEN})]
        clock.now += FIRST_INTERVAL
        taken(server)
        for number in range(15):
            recorder.event(about("good", f"p{number}"), "Normal", "Reason", "Act", "note")
            assert not await recorder.flush(DEADLINE)
            assert sorted(taken(server)) == [("PATCH", "broken"), ("POST", "good")]
        assert dropped("unreachable") == before
        server.script = [OK]
        assert await recorder.flush(DEADLINE)
        assert taken(server) == [("PATCH", "broken")]


async def test_a_patch_that_found_no_server_is_sent_when_it_is_back() -> None:
    """After an outage the count of a series does not wait for the next interval."""
    async with serving() as server, Client(server.config()) as client:
        clock = Clock()
        recorder = EventRecorder(client, clock=clock)
        server.script = [OK]
        for _ in range(2):
            recorder.event(about("ns", "p"), "Normal", "Reason", "Act", "note")
            assert await recorder._send() is None
        clock.now += FIRST_INTERVAL
        server.script = [respond(401, status(401, "Unauthorized"))]
        assert await recorder._send() is not None
        taken(server)
        server.script = [OK]
        assert await recorder._send() is None
        assert taken(server) == [("PATCH", "ns")]


async def test_an_event_that_makes_the_server_hang_goes_to_the_end() -> None:
    """When a request times out the round is over, and the next one begins with another event."""
    async with serving() as server, Client(server.config(), timeout=1.5) as client:
        server.script = [by_namespace({"hanging": hang})]
        recorder = EventRecorder(client, clock=Clock())
        recorder.event(about("hanging", "p"), "Normal", "Reason", "Act", "note")
        recorder.event(about("good", "p"), "Normal", "Reason", "Act", "note")
        assert await recorder._send() is not None
        assert taken(server) == [("POST", "hanging")]
        assert await recorder._send() is not None
        assert taken(server) == [("POST", "good"), ("POST", "hanging")]


async def test_what_keeps_failing_makes_room_when_the_queue_is_full() -> None:
    """A namespace that is broken cannot fill the queue for all the others."""
    async with serving() as server, Client(server.config()) as client:
        server.script = [by_namespace({"broken": BROKEN})]
        recorder = EventRecorder(client, clock=Clock(), max_queue=2)
        before = dropped("queue_full")
        for number in range(2):
            recorder.event(about("broken", f"p{number}"), "Normal", "Reason", "Act", "note")
        assert await recorder._send() is None
        taken(server)
        recorder.event(about("good", "p"), "Normal", "Reason", "Act", "note")
        assert dropped("queue_full") - before == 1
        assert await recorder._send() is None
        assert taken(server) == [("POST", "good")]


async def test_an_event_set_aside_is_sent_again_by_itself() -> None:
    """The sender wakes up for the next try of what failed, without any new event."""
    async with serving() as server, Client(server.config()) as client:
        done = asyncio.Event()

        async def accept(request: Request, writer: asyncio.StreamWriter) -> None:
            await OK(request, writer)
            done.set()

        server.script = [BROKEN, accept]
        recorder = EventRecorder(client)
        recorder.event(about("ns", "p"), "Normal", "Reason", "Act", "note")
        sender = asyncio.create_task(recorder.run())
        async with asyncio.timeout(DEADLINE):
            await done.wait()
        sender.cancel()
        with suppress(asyncio.CancelledError):
            await sender
        assert taken(server) == [("POST", "ns")] * 2
