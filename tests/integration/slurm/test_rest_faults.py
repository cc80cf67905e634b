"""What the client makes of a slurmrestd that misbehaves in every way we could think of."""

from __future__ import annotations

import asyncio

import pytest

from slurm_operator.slurm.errors import (
    BadReply,
    ControllerDown,
    NoCommonVersion,
    Refused,
    ReplyTooLarge,
    RestUnreachable,
    SlurmError,
    TokenRefused,
)
from tests.support.slurm.hostile_client import DRAIN, failure, reader, soon
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd, job

FAULTS: dict[Fault, type[SlurmError]] = {
    Fault.ERRORS: Refused,
    Fault.ABSENT_LIST: BadReply,
    Fault.NULL_LIST: BadReply,
    Fault.NO_TIME: BadReply,
    Fault.MALFORMED_ENTRY: BadReply,
    Fault.NAMELESS_ENTRY: BadReply,
    Fault.TRUNCATED: BadReply,
    Fault.GARBAGE: BadReply,
    Fault.WRONG_TYPE: BadReply,
    Fault.NOT_HTTP: BadReply,
    Fault.HUGE: ReplyTooLarge,
    Fault.HUGE_HEADERS: ReplyTooLarge,
    Fault.REDIRECT: BadReply,
    Fault.UNAUTHORIZED: TokenRefused,
    Fault.TOKEN_REFUSED: TokenRefused,
    Fault.NOT_FOUND: NoCommonVersion,
    Fault.INTERNAL_ERROR: Refused,
    Fault.BAD_GATEWAY: ControllerDown,
    Fault.CONTROLLER_HANGS: ControllerDown,
    Fault.PROXY_PAGE: RestUnreachable,
    Fault.HANG: RestUnreachable,
    Fault.DRIP: RestUnreachable,
    Fault.CLOSE: RestUnreachable,
    Fault.RESET: RestUnreachable,
    Fault.SHORT_BODY: RestUnreachable,
    Fault.LONG_BODY: BadReply,
    Fault.CUT_CHUNKED: RestUnreachable,
}
# A list that is well-formed and wrong: nothing in the reply itself tells, the view has to.
DECEPTIVE = {Fault.EMPTY, Fault.HALF, Fault.UNKNOWN_WORDS}
HARMLESS = {Fault.POISON}


def populate(server: HostileSlurmrestd) -> None:
    server.add_nodes("n[1-9]")
    server.jobs[1] = job(1, "n1")


def test_every_fault_is_covered() -> None:
    """No fault that the server knows is left out here."""
    assert {*FAULTS} | DECEPTIVE | HARMLESS == {*Fault}


@pytest.mark.parametrize(("fault", "kind"), FAULTS.items())
async def test_a_fault_is_the_error_that_fits_and_passes(
    hostile: HostileSlurmrestd, fault: Fault, kind: type[SlurmError]
) -> None:
    """Each fault of a list is its own error, never a list, and is over when the fault is."""
    populate(hostile)
    async with reader(hostile, fault) as client:
        before = await soon(client.nodes)
        hostile.fault = fault
        for ask in (client.nodes, client.jobs):
            error = await failure(ask())
            assert type(error) is kind
            assert f" of {hostile.url}: " in str(error)
            assert len(str(error)) < 600
        hostile.fault = None
        assert await soon(client.nodes) == before


@pytest.mark.parametrize(("fault", "kind"), FAULTS.items())
async def test_a_fault_at_first_contact_passes(
    hostile: HostileSlurmrestd, fault: Fault, kind: type[SlurmError]
) -> None:
    """A client that meets only faults at first works as soon as they stop."""
    populate(hostile)
    async with reader(hostile, fault) as client:
        hostile.fault = fault
        assert isinstance(await failure(client.nodes()), kind | BadReply | RestUnreachable)
        hostile.fault = None
        listed = await soon(client.nodes)
        assert listed is not None
        assert len(listed.nodes) == 9


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {Fault.NOT_FOUND}))
async def test_a_write_is_never_repeated(hostile: HostileSlurmrestd, fault: Fault) -> None:
    """Whatever becomes of a write, it is sent once, and nothing looks like a success that was none."""
    hostile.add_nodes("n[1-3]")
    async with reader(hostile, fault) as client:
        await soon(client.ping)
        hostile.fault = fault
        outcomes = await asyncio.gather(
            client.update_nodes("n[1-3]", DRAIN),
            client.delete_node("n1"),
            client.reconfigure(),
            return_exceptions=True,
        )
        for what in ("POST nodes", "DELETE node", "GET reconfigure"):
            assert len(hostile.seen(what)) == 1
        hostile.fault = None
        state = hostile.nodes["n2"]["state"]
        assert (outcomes[0] is None) <= ("DRAIN" in state)
        assert all(outcome is None or isinstance(outcome, SlurmError) for outcome in outcomes)


async def test_deceptive_lists_are_what_they_say(hostile: HostileSlurmrestd) -> None:
    """An empty or half list is passed on as it came, with unknown words: judging is the view's task."""
    populate(hostile)
    async with reader(hostile) as client:
        sizes = {}
        for fault in sorted(DECEPTIVE):
            hostile.fault = fault
            listed = await client.nodes()
            assert listed is not None
            sizes[fault] = len(listed.nodes)
        assert sizes == {Fault.EMPTY: 0, Fault.HALF: 4, Fault.UNKNOWN_WORDS: 9}
        jobs = await client.jobs()
        assert jobs is not None
        assert not jobs.jobs[0].finished


async def test_a_long_list_is_read_in_pieces(hostile: HostileSlurmrestd) -> None:
    """A list of several megabytes is the same list in the same order, whatever its strings look like."""
    hostile.add_nodes("n[1-5000]", comment="x" * 1000)
    hostile.nodes.change(
        "n2500", comment='},{"name": "n1"}, {"name": "n2"', reason="x" * 5000, boot_time=None
    )
    async with reader(hostile) as client:
        listed = await client.nodes()
        assert listed is not None
        assert [node.name for node in listed.nodes] == [*hostile.nodes]
        odd = listed.nodes[2499]
        assert odd.comment == hostile.nodes["n2500"]["comment"]
        assert odd.reason == "x" * 1024 + "…"
