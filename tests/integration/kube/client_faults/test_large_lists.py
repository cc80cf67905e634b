"""Lists that take long to decode."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from slurm_operator.kube.errors import DecodeError
from slurm_operator.kube.models.kinds import ConfigMap
from slurm_operator.kube.models.meta import Key, Object
from tests.support.kube.scripted_server import Server, respond

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client

MANY = 1000
FILLER = "x" * 1000


class Told(Object, frozen=True):
    """An object that tells which thread has decoded it."""

    RESOURCE: ClassVar = ConfigMap.RESOURCE
    threads: ClassVar[set[int]] = set()

    data: dict[str, str] | None = None

    def __post_init__(self) -> None:
        self.threads.add(threading.get_ident())


def listed(count: int, **odd: Any) -> dict[str, Any]:
    items = [{"metadata": {"name": f"c{number}"}, "data": {"k": FILLER}} for number in range(count)]
    items[count // 2] |= odd
    return {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": items}


async def test_a_large_list_is_decoded_beside_the_event_loop(server: Server, client: Client) -> None:
    """A short list is decoded at once, a large one in a thread, and both are all there and in order."""
    for count, beside in ((2, False), (MANY, True)):
        Told.threads.clear()
        server.script = [respond(200, listed(count))]
        page = await client.list(Told)
        assert [item.metadata.name for item in page.items] == [f"c{number}" for number in range(count)]
        assert (page.resource_version, page.continue_token, page.bad) == ("7", "more", [])
        assert (Told.threads != {threading.get_ident()}) is beside


async def test_a_large_list_is_decoded_while_name_servers_hang(server: Server, client: Client) -> None:
    """All threads that asyncio looks up names with may wait for an answer; decoding has its own."""
    server.script = [respond(200, listed(MANY))]
    answered = threading.Event()
    # More than asyncio has threads.
    lookups = [asyncio.get_running_loop().run_in_executor(None, answered.wait) for _ in range(64)]
    try:
        async with asyncio.timeout(60.0):
            page = await client.list(Told)
    finally:
        answered.set()
        await asyncio.wait(lookups)
    assert len(page.items) == MANY


async def test_one_bad_object_in_a_large_list_costs_only_itself(server: Server, client: Client) -> None:
    """The others of a large list are decoded as they would be of a short one."""
    server.script = [respond(200, listed(MANY, data=5))]
    page = await client.list(Told)
    assert len(page.items) == MANY - 1
    assert [bad.key for bad in page.bad] == [Key("", f"c{MANY // 2}")]


async def test_a_large_answer_that_is_no_list(server: Server, client: Client) -> None:
    """What is wrong with a large answer reaches who asked for it."""
    server.script = [respond(200, {"metadata": FILLER * MANY})]
    with pytest.raises(DecodeError, match=r"^list configmaps: the answer is not a list of Told"):
        await client.list(Told)
