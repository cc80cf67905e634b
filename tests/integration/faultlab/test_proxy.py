"""The proxies, in front of a server on loopback that says what it was sent."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from faultlab.director import Director
from faultlab.faults import Fault
from faultlab.proxy import serving
from faultlab.writes import KUBERNETES, SLURM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POD = "/api/v1/namespaces/run/pods/compute-0"
PODS = "/api/v1/namespaces/run/pods"
POINT = "PATCH pods compute-0 #1"


class Upstream:
    """A server that remembers its requests, and streams what it is given to watches."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.slurm = 0
        self.compacted = False
        """Whether nothing of the past is kept any more."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        await request.read()
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                event = await self.events.get()
                await response.write(json.dumps(event).encode() + b"\n")
        if request.path.startswith("/slurm"):
            self.slurm += 1
            return web.json_response({"answer": self.slurm})
        if self.compacted and "resourceVersionMatch" in request.query:
            return web.json_response({"kind": "Status", "code": 410}, status=410)
        return web.json_response({"items": []})

    @property
    def writes(self) -> int:
        """How many writes have arrived."""
        return sum(request.method != "GET" for request in self.requests)


class Bench:
    """A proxy, what is behind it, and how often the operator was killed."""

    def __init__(self, fault: Fault | None) -> None:
        self.upstream = Upstream()
        self.kills = 0
        self.director = Director("run", self._kill, fault)
        self.url = self.slurm_url = ""
        self.session: aiohttp.ClientSession

    def _kill(self) -> None:
        self.kills += 1

    async def patch(self, body: str = "{}") -> int:
        """Send a write, and return the answer; 0 when the connection broke."""
        try:
            async with self.session.patch(self.url + POD, data=body) as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            return 0


@asynccontextmanager
async def bench(fault: Fault | None = None, *, begin: bool = True) -> AsyncIterator[Bench]:
    """Serve both proxies in front of one server."""
    async with AsyncExitStack() as stack:
        made = Bench(fault)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", made.upstream.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        behind = f"http://127.0.0.1:{runner.addresses[0][1]}"
        made.url = await stack.enter_async_context(serving(made.director, KUBERNETES, behind))
        made.slurm_url = await stack.enter_async_context(serving(made.director, SLURM, behind))
        made.session = await stack.enter_async_context(aiohttp.ClientSession())
        if begin:
            made.director.begin("7")
        yield made


async def test_requests_are_sent_on_as_they_came() -> None:
    """The server sees method, path, query, body and the operator's own token; the write is recorded."""
    async with bench() as made:
        headers, path = {"Authorization": "Bearer abc"}, POD + "?fieldManager=x"
        async with made.session.patch(
            made.url + POD + "?fieldManager=x", data="{}", headers=headers
        ) as answer:
            assert await answer.json() == {"items": []}
        # The other one asks for the resourceVersion, to see whether the write changes anything.
        (request,) = (one for one in made.upstream.requests if one.method != "GET")
        assert (request.method, request.path_qs) == ("PATCH", path)
        assert request.headers["Authorization"] == "Bearer abc"
        (write,) = made.director.writes
        assert (write.number, write.point, write.status, write.counted) == (1, POINT, 200, True)


async def test_writes_of_both_servers_share_their_numbers() -> None:
    """The k-th write is counted over kube-apiserver and slurmrestd; Events have no number."""
    async with bench() as made:
        await made.patch()
        body = {"name": ["compute-0"], "state": ["DRAIN"]}
        async with made.session.post(made.slurm_url + "/slurm/v0.0.45/nodes/", json=body):
            pass
        async with made.session.post(made.url + "/api/v1/namespaces/run/events", data="{}"):
            pass
        assert [(one.number, one.signature) for one in made.director.writes] == [
            (1, "PATCH pods compute-0"),
            (2, "POST slurm:nodes compute-0 DRAIN"),
            (0, "POST events …"),
        ]


@pytest.mark.parametrize(
    ("do", "answer", "arrived"), [("kill-before", 0, 0), ("kill-accepted", 0, 1), ("kill-after", 200, 1)]
)
async def test_a_kill_at_a_write(do: str, answer: int, arrived: int) -> None:
    """Before: the server sees nothing. Accepted: it does, and no answer arrives. After: one arrives."""
    async with bench(Fault(do, point=POINT)) as made:
        assert await made.patch() == answer
        assert made.upstream.writes == arrived
        async with asyncio.timeout(10):
            while not made.kills:  # noqa: ASYNC110 - the proxy sets no event
                await asyncio.sleep(0.01)
        assert (made.kills, made.director.life) == (1, 2)
        # The next process of the operator is not killed at the same write again.
        assert await made.patch() == 200
        assert made.kills == 1


async def test_after_the_answer_the_next_write_is_not_sent() -> None:
    """The operator may act on the answer, up to its next write."""
    async with bench(Fault("kill-after", point=POINT)) as made:
        assert [await made.patch(), await made.patch()] == [200, 0]
        assert (made.kills, made.upstream.writes) == (1, 1)


async def test_no_kill_before_the_scenario_begins() -> None:
    """The same write during the setup is no crash point."""
    async with bench(Fault("kill-before", point=POINT), begin=False) as made:
        assert await made.patch() == 200
        made.director.begin("7")
        assert await made.patch() == 0
        assert made.kills == 1


async def test_errors_come_in_bursts() -> None:
    """So many requests are answered with the status, as kube-apiserver would; the server is not asked."""
    async with bench(Fault("answer", status=429, times=2, method="PATCH")) as made:
        assert [await made.patch() for _ in range(3)] == [429, 429, 200]
        assert made.upstream.writes == 1
        assert [write.status for write in made.director.writes] == [429, 429, 200]


async def test_a_reset_breaks_the_connection() -> None:
    """The request is never answered, until the fault is over."""
    async with bench(Fault("reset", method="PATCH")) as made:
        assert await made.patch() == 0
        made.director.end_fault()
        assert await made.patch() == 200


async def test_a_frozen_server_answers_nothing() -> None:
    """Requests hang while the fault lasts."""
    async with bench(Fault("freeze")) as made:
        hanging = asyncio.create_task(made.patch())
        await asyncio.sleep(0.2)
        assert not hanging.done()
        made.director.end_fault()
        assert await hanging == 0
        assert await made.patch() == 200


async def test_drip_and_delay_change_no_answer() -> None:
    """A slow answer is a whole one."""
    for do in ("drip", "delay"):
        async with bench(Fault(do)) as made:
            assert await made.patch() == 200


async def test_withheld_events_arrive_when_the_fault_ends() -> None:
    """Events of one object, and bookmarks, are held back; others pass; nothing is lost."""
    async with bench(Fault("withhold", kind="pods", name="a")) as made:

        def event(kind: str, name: str) -> None:
            made.upstream.events.put_nowait({"type": kind, "object": {"metadata": {"name": name}}})

        async with made.session.get(made.url + PODS + "?watch=1") as stream:

            async def name() -> str:
                line = await asyncio.wait_for(stream.content.readline(), 10)
                return str(json.loads(line)["object"]["metadata"]["name"])

            event("BOOKMARK", "")
            event("ADDED", "b")
            assert await name() == "b"
            hit = [made.director.hit]
            event("ADDED", "a")
            event("BOOKMARK", "")
            event("ADDED", "b")
            assert await name() == "b"
            assert [*hit, made.director.hit] == [False, True]
            made.director.end_fault()
            assert [await name(), await name(), await name()] == ["", "a", ""]
            event("MODIFIED", "a")
            assert await name() == "a"


async def test_a_stale_list_shows_the_past() -> None:
    """After the kill, lists of the kind ask for the resourceVersion of the beginning; others do not."""
    async with bench(Fault("stale", kind="pods")) as made:
        assert made.kills == 1
        for path in (PODS + "?limit=500&resourceVersion=0", "/api/v1/namespaces/run/secrets"):
            async with made.session.get(made.url + path) as answer:
                await answer.read()
        first, second = made.upstream.requests
        assert dict(first.query) == {"limit": "500", "resourceVersion": "7", "resourceVersionMatch": "Exact"}
        assert not second.query
        assert made.director.hit
        made.director.end_fault()
        async with made.session.get(made.url + PODS) as answer:
            await answer.read()
        assert not made.upstream.requests[-1].query


async def test_a_stale_view_that_is_not_asked_for_is_not_reached() -> None:
    """The kill alone is not the fault: the operator has to list the kind while the fault lasts."""
    async with bench(Fault("stale", kind="pods")) as made:
        async with made.session.get(made.url + "/api/v1/namespaces/run/secrets") as answer:
            await answer.read()
        assert (made.kills, made.director.hit) == (1, False)


async def test_one_write_is_refused() -> None:
    """The server does not see it, the operator lives on, and the next one passes."""
    async with bench(Fault("refuse", point=POINT)) as made:
        assert [await made.patch(), made.upstream.writes, made.kills] == [500, 0, 0]
        assert made.director.hit
        assert [await made.patch(), made.upstream.writes, made.kills] == [200, 1, 0]
        assert [write.status for write in made.director.writes] == [500, 200]


async def test_the_answer_to_one_write_is_lost() -> None:
    """The server has done it, the operator lives on and does not know."""
    async with bench(Fault("lose", point=POINT)) as made:
        assert [await made.patch(), made.upstream.writes, made.kills] == [0, 1, 0]
        assert made.director.hit
        assert [await made.patch(), made.upstream.writes, made.kills] == [200, 2, 0]
        assert [write.status for write in made.director.writes] == [200, 200]


@pytest.mark.parametrize("do", ["stale", "withhold"])
async def test_an_old_view_is_not_reached_by_a_request_that_it_does_not_change(do: str) -> None:
    """A write or a read of one object of the kind is answered as always."""
    async with bench(Fault(do, kind="pods")) as made:
        await made.patch()
        async with made.session.get(made.url + POD) as answer:
            await answer.read()
        assert len(made.upstream.requests) >= 2
        assert not made.director.hit


async def test_a_stale_view_that_is_refused_is_not_reached() -> None:
    """kube-apiserver keeps the past for minutes; a list that it refuses shows nothing old."""
    async with bench(Fault("stale", kind="pods")) as made:
        made.upstream.compacted = True
        async with made.session.get(made.url + PODS) as answer:
            assert answer.status == 410
        assert (made.kills, made.director.hit) == (1, False)


async def test_a_stale_view_begins_with_the_next_process() -> None:
    """However long the operator takes to start again, it is shown the past."""
    async with bench(Fault("stale", kind="pods", seconds=0.0)) as made:
        await asyncio.sleep(0.1)
        assert made.director.fault_lasts
        async with made.session.get(made.url + PODS) as answer:
            await answer.read()
        assert made.upstream.requests[0].query["resourceVersion"] == "7"
        await asyncio.wait_for(made.director.fault_over(), 10)


async def test_the_kinds_of_events_are_recorded() -> None:
    """Events of the scenario's own part count, bookmarks do not."""
    async with bench() as made, made.session.get(made.url + PODS + "?watch=1") as stream:
        made.upstream.events.put_nowait({"type": "BOOKMARK", "object": {}})
        await asyncio.wait_for(stream.content.readline(), 10)
        assert made.director.heard == set()
        made.upstream.events.put_nowait({"type": "ADDED", "object": {}})
        await asyncio.wait_for(stream.content.readline(), 10)
        assert made.director.heard == {"pods"}


async def test_a_frozen_slurm_repeats_its_first_answer() -> None:
    """Reads show the past, writes pass."""
    async with bench(Fault("frozen-slurm", server=SLURM)) as made:
        path = made.slurm_url + "/slurm/v0.0.45/nodes/"

        async def read() -> int:
            async with made.session.get(path) as answer:
                return int((await answer.json())["answer"])

        assert [await read(), await read()] == [1, 1]
        async with made.session.post(path, json={"name": ["a"]}) as answer:
            assert (await answer.json())["answer"] == 2
        made.director.end_fault()
        assert await read() == 3
