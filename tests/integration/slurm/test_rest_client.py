"""The client against a server whose every answer is known: versions, conditions, tokens, metrics."""

from __future__ import annotations

import pytest

from slurm_operator.slurm.errors import (
    BadReply,
    ControllerDown,
    NoCommonVersion,
    NotInSlurm,
    Refused,
    TokenRefused,
    Unsupported,
)
from slurm_operator.slurm.model.records import NodeUpdate, ReservationSpec
from slurm_operator.slurm.rest.client import CallInfo, RestClient
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd, job, node, number, ping, reservation


async def test_the_newest_common_version_is_used(hostile: HostileSlurmrestd) -> None:
    """The version is agreed on once, by pings from the newest downwards, and remembered."""
    hostile.versions = ("v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43")
    async with RestClient(hostile.url, lambda: "t") as client:
        versions = [client.version]
        await client.nodes()
        await client.nodes()
        assert [*versions, client.version] == [None, "v0.0.43"]
        assert client.release == "26.05.5"
    assert [(seen.endpoint, seen.version) for seen in hostile.log] == [
        ("ping", "v0.0.45"),
        ("ping", "v0.0.44"),
        ("ping", "v0.0.43"),
        ("nodes", "v0.0.43"),
        ("nodes", "v0.0.43"),
    ]


async def test_a_server_that_was_downgraded_is_asked_in_its_own_version(
    hostile: HostileSlurmrestd, client: RestClient
) -> None:
    """When the remembered version is gone, another is agreed on, and even a write is sent again."""
    hostile.add_nodes("n1")
    await client.nodes()
    hostile.versions = ("v0.0.42",)
    await client.update_nodes("n1", NodeUpdate(comment="hello"))
    assert client.version == "v0.0.42"
    assert hostile.nodes["n1"]["comment"] == "hello"


async def test_a_server_that_was_upgraded_is_asked_in_its_newest_version(
    hostile: HostileSlurmrestd, client: RestClient
) -> None:
    """When the server says it is another release, the next request agrees on a version again."""
    hostile.versions, hostile.release = ("v0.0.42",), "24.11.5"
    await client.nodes()
    assert (client.version, client.release) == ("v0.0.42", "24.11.5")
    hostile.versions, hostile.release = ("v0.0.42", "v0.0.45"), "26.05.5"
    await client.nodes()
    await client.nodes()
    assert (client.version, client.release) == ("v0.0.45", "26.05.5")


async def test_no_common_version(hostile: HostileSlurmrestd, client: RestClient) -> None:
    """A server with only older or newer versions is told apart from one that is broken."""
    hostile.versions = ("v0.0.40", "v0.0.99")
    with pytest.raises(NoCommonVersion, match=r"v0\.0\.42, v0\.0\.43, v0\.0\.44, v0\.0\.45.*24\.11 or later"):
        await client.nodes()


async def test_what_an_old_slurm_cannot_do_is_not_sent(
    hostile: HostileSlurmrestd, client: RestClient
) -> None:
    """Topology, reservations and new nodes are refused here where the server does not know them."""
    hostile.versions = ("v0.0.42",)
    hostile.add_nodes("n1")
    await client.ping()
    hostile.log.clear()
    for call in (
        client.update_nodes("n1", NodeUpdate(topology_str="default:s1")),
        client.create_nodes("NodeName=n2 State=CLOUD"),
        client.create_reservation(ReservationSpec(name="r")),
        client.update_reservation(ReservationSpec(name="r")),
        client.delete_reservation("r"),
    ):
        with pytest.raises(Unsupported, match=r"needs v0\.0\.4[34] \(Slurm 25.* or later\)") as caught:
            await call
        assert not caught.value.sent
    assert hostile.log == []


async def test_an_endpoint_that_is_missing_is_unsupported(
    hostile: HostileSlurmrestd, client: RestClient
) -> None:
    """A 404 for one endpoint, in a version that is there, means that this Slurm cannot do it."""
    hostile.fail(Fault.NOT_FOUND, on="diag")
    with pytest.raises(Unsupported, match=r"Slurm 26\.05\.5 cannot do this"):
        await client.diag()


async def test_lists_are_conditional(hostile: HostileSlurmrestd, client: RestClient) -> None:
    """A list that has not changed since is None; one that has is the whole list."""
    hostile.add_nodes("n[1-3]")
    hostile.jobs[1] = job(1, "n[1-2]")
    hostile.reservations["r"] = reservation("r", "n3")
    nodes, jobs, held = await client.nodes(), await client.jobs(), await client.reservations()
    assert nodes is not None
    assert jobs is not None
    assert held is not None
    assert [node.name for node in nodes.nodes] == ["n1", "n2", "n3"]
    assert [entry.nodes for entry in jobs.jobs] == ["n[1-2]"]
    assert [entry.node_list for entry in held.reservations] == ["n3"]
    assert await client.nodes(nodes.last_update) is None
    assert await client.jobs(jobs.last_update) is None
    assert await client.reservations(held.last_update) is None
    hostile.nodes.change("n2", state=["MIXED"])
    hostile.jobs[2] = job(2, "n3")
    changed = await client.nodes(nodes.last_update)
    assert changed is not None
    assert [node.state[0] for node in changed.nodes] == ["IDLE", "MIXED", "IDLE"]
    more = await client.jobs(jobs.last_update)
    assert more is not None
    assert len(more.jobs) == 2


async def test_a_server_that_stumbles_over_a_condition_is_asked_without(hostile: HostileSlurmrestd) -> None:
    """A 500 to a conditional question for nodes is no failure, the whole list comes with the same call."""
    seen: list[CallInfo] = []
    hostile.stumbles = True
    hostile.add_nodes("n1")
    async with RestClient(hostile.url, lambda: "t", observe=seen.append) as client:
        listed = await client.nodes()
        assert listed is not None
        assert await client.nodes(listed.last_update) is None
        hostile.nodes.change("n1", state=["DOWN"])
        changed = await client.nodes(listed.last_update)
        assert changed is not None
        assert changed.nodes[0].state == ("DOWN",)
    assert [info.outcome for info in seen] == ["ok", "unchanged", "ok"]


async def test_an_empty_list_of_jobs_is_only_a_list_if_it_says_when(
    hostile: HostileSlurmrestd, client: RestClient
) -> None:
    """No jobs at the time 0 is how Slurm says `unchanged`; none at another time is none, none at no time is
    nonsense, though all of them come with a warning.
    """
    listed = await client.jobs()
    assert listed is not None
    assert listed.jobs == ()
    assert await client.jobs(listed.last_update) is None
    again = await client.jobs(listed.last_update - 1)
    assert again is not None
    assert again.jobs == ()
    hostile.fail(Fault.NO_TIME, on="jobs")
    with pytest.raises(BadReply, match="time of its last update"):
        await client.jobs()
    with pytest.raises(BadReply, match="time of its last update"):
        await client.jobs(listed.last_update)


async def test_not_modified_is_only_an_answer_to_a_condition(
    hostile: HostileSlurmrestd, client: RestClient
) -> None:
    """A list that was asked for without a condition is never taken as unchanged."""
    await client.ping()
    hostile.nodes.changed = -(10**12)
    with pytest.raises(BadReply, match="without a condition"):
        await client.nodes()


async def test_ping_tells_a_refused_token_from_a_slurmctld_that_is_down(hostile: HostileSlurmrestd) -> None:
    """Both look the same to a plain ping; one that requires a response finds out."""
    async with RestClient(hostile.url, lambda: "wrong") as client:
        hostile.token = "right"  # noqa: S105 - a word
        assert [entry.responding for entry in await client.ping()] == [False]
        with pytest.raises(TokenRefused):
            await client.ping(require=True)
        hostile.token = None
        assert [entry.responding for entry in await client.ping(require=True)] == [True]
        hostile.pings = [ping("a", responding=False), ping("b", responding=False, primary=False)]
        hostile.fail(Fault.BAD_GATEWAY, on="reservations")
        with pytest.raises(ControllerDown):
            await client.ping(require=True)
        hostile.fault = None
        with pytest.raises(ControllerDown, match="no slurmctld responds"):
            await client.ping(require=True)
        hostile.pings = [ping("a", responding=False), ping("b", primary=False)]
        assert [entry.responding for entry in await client.ping(require=True)] == [False, True]


async def test_the_token_is_taken_anew_for_each_request(hostile: HostileSlurmrestd) -> None:
    """A token that is renewed is used with the next request; line breaks around it do not matter."""
    tokens = iter(["first\n", "second"])
    async with RestClient(hostile.url, lambda: next(tokens)) as client:
        await client.ping()
        await client.nodes()
    assert hostile.seen("GET ping")[-1].headers["x-slurm-user-token"] == "first"
    assert hostile.seen("GET nodes")[-1].headers["x-slurm-user-token"] == "second"


@pytest.mark.parametrize("token", ["", " \n", "two words", "in\r\nX-Header: jected", "t\u00f6ken"])
async def test_what_is_no_token_is_not_sent(hostile: HostileSlurmrestd, token: str) -> None:
    """An empty token, or one that would break the request, is refused here, and not quoted."""
    async with RestClient(hostile.url, lambda: token) as client:
        with pytest.raises(TokenRefused, match="the token") as caught:
            await client.nodes()
        assert not caught.value.sent
        assert len(token) < 3 or token not in str(caught.value)
    assert hostile.log == []


async def test_a_token_source_that_fails_is_heard(hostile: HostileSlurmrestd) -> None:
    """What the token source raises reaches the caller as it is, and the slot is free again."""

    def source() -> str:
        raise TokenRefused("no key yet")

    async with RestClient(hostile.url, source, concurrency=1) as client:
        for _ in range(3):
            with pytest.raises(TokenRefused, match="no key yet"):
                await client.nodes()


async def test_what_is_asked_is_observed(hostile: HostileSlurmrestd) -> None:
    """Each call is reported once with its outcome and size."""
    seen: list[CallInfo] = []
    hostile.add_nodes("n1")
    async with RestClient(hostile.url, lambda: "t", observe=seen.append) as client:
        listed = await client.nodes()
        assert listed is not None
        await client.nodes(listed.last_update)
        with pytest.raises(NotInSlurm):
            await client.delete_node("n9")
        hostile.fault = Fault.TOKEN_REFUSED
        with pytest.raises(TokenRefused):
            await client.jobs()
    assert [(info.operation, info.method, info.outcome) for info in seen] == [
        ("nodes", "GET", "ok"),
        ("nodes", "GET", "unchanged"),
        ("delete_node", "DELETE", "NotFound"),
        ("jobs", "GET", "TokenRefused"),
    ]
    assert seen[0].size > 100
    assert seen[1].size == 0
    assert all(info.seconds >= 0 for info in seen)


async def test_names_that_mean_more_than_one_node_are_not_sent(
    hostile: HostileSlurmrestd, client: RestClient
) -> None:
    """A malformed hostlist, a list or a path in the place of a name, and ALL never reach the server."""
    for call in (
        client.delete_node("n[1-9]"),
        client.delete_node("ALL"),
        client.node("../ping"),
        client.update_nodes("n[1-", NodeUpdate(comment="x")),
        client.update_nodes("ALL", NodeUpdate(comment="x")),
        client.update_nodes("", NodeUpdate(comment="x")),
        client.create_reservation(ReservationSpec(name="r", node_list="ALL")),
        client.create_reservation(ReservationSpec(name="")),
        client.delete_reservation(".."),
        client.create_nodes("NodeName=n[1- State=CLOUD"),
        client.create_nodes("NodeName=ALL State=CLOUD"),
    ):
        with pytest.raises(ValueError, match=r"hostlist|name of a (node|reservation)"):
            await call
    assert hostile.log == []


async def test_names_of_reservations_are_quoted(hostile: HostileSlurmrestd, client: RestClient) -> None:
    """A reservation may be named as people like; its name does not become another path."""
    hostile.reservations["a/b ?"] = reservation("a/b ?", "n1")
    await client.delete_reservation("a/b ?")
    assert hostile.reservations.data == {}


async def test_an_answer_about_another_node_is_bad(hostile: HostileSlurmrestd, client: RestClient) -> None:
    """A node is not taken for another one, and not for absent either."""
    hostile.nodes["n1"] = node("n2")
    with pytest.raises(BadReply, match="not about it"):
        await client.node("n1")


async def test_uptime_is_a_lower_bound(hostile: HostileSlurmrestd, client: RestClient) -> None:
    """slurmctld tells since when it counts, by its own clock."""
    hostile.started -= 1000
    assert ((await client.diag()).uptime or 0) >= 86_400 + 1000


async def test_refusals_carry_what_slurm_said(hostile: HostileSlurmrestd, client: RestClient) -> None:
    """A refusal has Slurm's number, its words, the status, what was wanted and of which server."""
    hostile.fault = Fault.ERRORS
    with pytest.raises(Refused, match="try again later, error 2020") as caught:
        await client.update_nodes("n1", NodeUpdate(comment="x"))
    assert caught.value.numbers == {2020}
    hostile.fault = None
    hostile.add_nodes("n1")
    with pytest.raises(NotInSlurm) as absent:
        await client.update_nodes("n[1-2]", NodeUpdate(comment="x"))
    assert absent.value.numbers == {2018}
    assert str(absent.value).startswith(f"update nodes n[1-2] of {hostile.url}: ")


async def test_a_thousand_nodes(hostile: HostileSlurmrestd, client: RestClient) -> None:
    """A thousand nodes are listed with one request and drained with one more."""
    hostile.add_nodes("n[0001-1000]", reason_changed_at=number(5))
    listed = await client.nodes()
    assert listed is not None
    assert len(listed.nodes) == 1000
    hostile.log.clear()
    await client.update_nodes("n[0001-1000]", NodeUpdate(state=("DRAIN",), reason="slurm-operator: test"))
    drained = await client.nodes(listed.last_update)
    assert drained is not None
    assert all("DRAIN" in node.state for node in drained.nodes)
    assert len(hostile.log) == 2
