"""The stand-in for slurmrestd that benchmarks use, beside a real one: the same questions, the same shapes."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from bench.nodeset.slurmctld import Slurmctld
from bench.nodeset.standin import VERSION, StandIn, serving
from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.rest.client import RestClient
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kubebox.slurm import SlurmBox

FAR = 2**33
READS = (
    *("GET ping/", "GET diag/", "GET partitions/", "GET nodes/", "GET jobs/", "GET reservations/"),
    *("GET node/n0", "GET node/nope", "GET jobs/?flags=ALL"),
    *("GET jobs/state/", "GET jobs/state/?job_id=1", "GET jobs/state/?job_id=1&job_id=99"),
    "GET jobs/state/?job_id=99",
    *(
        f"GET nodes/?update_time={FAR}",
        f"GET jobs/?update_time={FAR}",
        f"GET jobs/?flags=ALL&update_time={FAR}",
        f"GET reservations/?update_time={FAR}",
    ),
)
DRAIN = {"state": ["DRAIN"], "reason": "slurm-operator: test"}
WRITES: tuple[tuple[str, object], ...] = (
    ("POST nodes/", {"name": ["n[0-1]"], **DRAIN}),
    ("POST nodes/", {"name": ["n9"], **DRAIN}),
    ("POST nodes/", {"name": ["n[0-1]"], "comment": "{}"}),
    ("DELETE node/n0", None),
    ("DELETE node/n9", None),
    ("POST new/node/", {"node_conf": "NodeName=c[1-2] State=CLOUD"}),
    ("DELETE node/c1", None),
    ("DELETE reservation/nope", None),
    ("DELETE reservation/window", None),
)


def reservation() -> dict[str, Any]:
    """Return a reservation that begins later."""
    moment = {"set": True, "number": int(time.time()) + 3600}
    return {
        "name": "window",
        "node_list": ["n1"],
        "users": ["root"],
        "start_time": moment,
        "duration": {"set": True, "number": 60},
        "flags": ["MAINT"],
    }


class Asker:
    """Asks one server plain questions, each on its own connection: the real one sends junk after some."""

    def __init__(self, url: str, token: str) -> None:
        self._host = url.removeprefix("http://")
        self._headers = {"X-SLURM-USER-TOKEN": token, "Content-Type": "application/json"}

    async def ask(self, question: str, body: object = None) -> tuple[int, Any]:
        """Return status and content."""
        method, path = question.split()
        return await asyncio.to_thread(self._ask, method, path, body)

    def _ask(self, method: str, path: str, body: object) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._host, timeout=30)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"/slurm/{VERSION}/{path}", sent, self._headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(content) if content else None

    async def states(self) -> dict[str, tuple[frozenset[str], str]]:
        """Return state and reason of the first nodes."""
        _, shown = await self.ask("GET nodes/")
        return {
            one["name"]: (frozenset(one["state"]) - {"NOT_RESPONDING"}, one["reason"])
            for one in shown["nodes"]
            if one["name"] in ("n0", "n1")
        }


def shape(value: object) -> object:
    """Return keys and types; a list is as its first entry, and an empty one says nothing."""
    match value:
        case dict():
            return {key: shape(item) for key, item in value.items()}
        case list():
            return [shape(value[0])] if value else []
        case bool():
            return "boolean"
        case int() | float():
            return "number"
    return type(value).__name__


def differences(real: Any, ours: Any, where: str = "") -> list[str]:
    """Say where two shapes differ; of two lists one of which is empty nothing can be said."""
    if isinstance(real, dict) and isinstance(ours, dict):
        odd = [f"{where}.{key}" for key in real.keys() ^ ours.keys()]
        return odd + [
            found
            for key in real.keys() & ours.keys()
            for found in differences(real[key], ours[key], f"{where}.{key}")
        ]
    if isinstance(real, list) and isinstance(ours, list):
        return differences(real[0], ours[0], f"{where}[]") if real and ours else []
    return [] if real == ours else [f"{where}: {real} in the real one, {ours} here"]


@pytest.fixture
async def both(slurm_box_factory: Callable[..., SlurmBox]) -> AsyncIterator[tuple[Asker, Asker]]:
    """Hand out a real slurmrestd and ours, each with two nodes, a job on the first and a reservation."""
    box = await asyncio.to_thread(slurm_box_factory, nodes=2)
    slurmctld = Slurmctld()
    for name in ("n0", "n1"):
        slurmctld.register(name)
    slurmctld.run_job("n0")
    async with serving(StandIn(slurmctld)) as url:
        real, ours = Asker(box.url, box.token()), Asker(url, "any")
        await asyncio.to_thread(box.submit, seconds=1000, nodes=["n0"])

        async def busy() -> bool:
            return "MIXED" in (await real.states())["n0"][0]

        await eventually(busy, "the job runs")
        for asker in (real, ours):
            assert (await asker.ask("POST reservation", reservation()))[0] == 200
        yield real, ours


async def test_answers_have_the_shape_of_real_ones(both: tuple[Asker, Asker]) -> None:
    """Every answer has the status, the fields and the types of the real one, lists and refusals alike."""
    real, ours = both
    for question, body in (*((read, None) for read in READS), *WRITES):
        status, expected = await real.ask(question, body)
        answered, given = await ours.ask(question, body)
        assert (question, answered) == (question, status)
        assert (question, differences(shape(expected), shape(given))) == (question, [])


async def test_what_a_write_does_is_what_it_really_does(both: tuple[Asker, Asker]) -> None:
    """A drain and its end leave nodes with the state and the reason that they have in real Slurm."""
    real, ours = both
    for state, reason in ((["DRAIN"], "slurm-operator: first"), (["DRAIN"], "again"), (["UNDRAIN"], "over")):
        for asker in both:
            await asker.ask("POST nodes/", {"name": ["n[0-1]"], "state": state, "reason": reason})
        assert await ours.states() == await real.states()


async def test_the_operators_client_sees_changes_and_their_absence() -> None:
    """To the operator's own client, unchanged lists are unchanged and a change of the same second shows."""
    slurmctld = Slurmctld()
    slurmctld.register("n0")
    standin = StandIn(slurmctld)
    async with serving(standin) as url, RestClient(url, lambda: "token") as rest:
        first = await rest.nodes()
        assert first is not None
        await rest.update_nodes("n0", NodeUpdate(state=("DRAIN",), reason="slurm-operator: test"))
        changed = await rest.nodes(first.last_update)
        assert changed is not None
        assert changed.nodes[0].state == ("IDLE", "DRAIN", "DYNAMIC_NORM")
        assert await rest.nodes(changed.last_update + 10) is None
        assert await rest.jobs(changed.last_update + 10) is None
    assert standin.counts["nodes"] == 2
    assert standin.counts["nodes unchanged"] == 1
    assert standin.counts["update_nodes"] == 1
