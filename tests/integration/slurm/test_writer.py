"""The writer against real Slurm, 26.05 and 24.11: what is changed, what is left alone, how many requests."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.decide.node_changes import (
    Comment,
    Done,
    Drain,
    Failed,
    NotSent,
    NotSentReason,
    Outcome,
    Unchanged,
    Undrain,
)
from slurm_operator.slurm.errors import Refused
from slurm_operator.slurm.model.records import NodeUpdate
from tests.support.slurm.logged_writer import TRUSTING, Writing, writing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from kubebox.slurm import SlurmBox

numbers = itertools.count()


@pytest.fixture(params=["slurm_box", "slurm_box_24"])
def box(request: pytest.FixtureRequest) -> SlurmBox:
    """Hand out a cluster of each release."""
    found: SlurmBox = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def nodes(box: SlurmBox) -> Iterator[list[str]]:
    """Make six nodes of the test's own, without a slurmd."""
    number = next(numbers)
    hostlist = f"w{number}-[0-5]"
    box.run("scontrol", "create", f"NodeName={hostlist}", "State=CLOUD")
    yield [f"w{number}-{index}" for index in range(6)]
    box.run("scontrol", "delete", f"NodeName={hostlist}", check=False)


@pytest.fixture
async def slurm(box: SlurmBox, nodes: list[str]) -> AsyncIterator[Writing]:
    """Hand out a writer as the operator has it, once it sees the nodes."""
    async with writing(box.url, box.token()) as connected:
        await connected.shown(lambda view: nodes[0] in view.nodes)
        yield connected


def by_hand(box: SlurmBox, name: str, *settings: str) -> None:
    """Do what a person does."""
    box.run("scontrol", "update", f"NodeName={name}", *settings)


def not_sent(outcome: Outcome) -> NotSentReason | None:
    """Return why something was not sent."""
    return outcome.reason if isinstance(outcome, NotSent) else None


async def test_many_nodes_are_drained_with_one_request(slurm: Writing, nodes: list[str]) -> None:
    """One look, one update, and the list that shows it; wished for again, it is not sent again."""
    outcomes = await slurm.writer.write({name: Drain("scale-in") for name in nodes})
    assert outcomes == dict.fromkeys(nodes, Done())
    view = await slurm.shown(lambda view: all("DRAIN" in view.nodes[name].state for name in nodes))
    assert {view.nodes[name].reason for name in nodes} == {"slurm-operator: scale-in"}
    assert slurm.operations() == ["nodes", "update_nodes", "nodes"]

    assert await slurm.writer.write({name: Drain("scale-in") for name in nodes}) == dict.fromkeys(
        nodes, Unchanged()
    )
    assert slurm.operations() == []


async def test_drains_do_without_a_look_at_a_new_view(
    slurm: Writing, box: SlurmBox, nodes: list[str]
) -> None:
    """With a view of this second, drains are one update and the list that shows it; undrains always look."""
    async with writing(box.url, box.token(), timing=TRUSTING) as trusting:
        await trusting.shown(lambda view: nodes[0] in view.nodes)
        trusting.operations()
        assert await trusting.writer.write(dict.fromkeys(nodes, Drain("x"))) == dict.fromkeys(nodes, Done())
        await trusting.shown(lambda view: all("DRAIN" in view.nodes[name].state for name in nodes))
        assert trusting.operations() == ["update_nodes", "nodes"]
        await asyncio.to_thread(by_hand, box, nodes[0], "State=DRAIN", "Reason=bad disk")
        outcomes = await trusting.writer.write(dict.fromkeys(nodes, Undrain()))
        assert not_sent(outcomes.pop(nodes[0])) is NotSentReason.FOREIGN_REASON
        assert outcomes == dict.fromkeys(nodes[1:], Done())
    assert (await slurm.node(nodes[0])).reason == "bad disk"


async def test_a_drain_set_a_moment_ago_is_kept(slurm: Writing, box: SlurmBox, nodes: list[str]) -> None:
    """A person's drain that no list has shown yet is neither overwritten nor undone."""
    for name in nodes:
        await slurm.now()
        await asyncio.to_thread(by_hand, box, name, "State=DRAIN", "Reason=bad disk")
        assert not_sent(await slurm.writer.drain(name, "scale-in")) is NotSentReason.FOREIGN_REASON
        await slurm.shown(lambda view, name=name: "DRAIN" in view.nodes[name].state)  # type: ignore[misc]
        assert not_sent(await slurm.writer.undrain(name)) is NotSentReason.FOREIGN_REASON
        assert (await slurm.node(name)).reason == "bad disk"
    assert "update_nodes" not in slurm.operations()


async def test_a_person_takes_over_our_drain(slurm: Writing, box: SlurmBox, nodes: list[str]) -> None:
    """A drain of ours to which a person gives another reason is not ours any more."""
    ours, theirs = nodes[:2]
    await slurm.writer.write(dict.fromkeys((ours, theirs), Drain("cordoned")))
    await slurm.now()
    await asyncio.to_thread(by_hand, box, theirs, "State=DRAIN", "Reason=bad disk")
    outcomes = await slurm.writer.write(dict.fromkeys((ours, theirs), Undrain()))
    assert outcomes[ours] == Done()
    assert not_sent(outcomes[theirs]) is NotSentReason.FOREIGN_REASON
    assert "DRAIN" not in (await slurm.node(ours)).state
    assert "DRAIN" in (await slurm.node(theirs)).state


async def test_an_undrain_leaves_no_claim(slurm: Writing, nodes: list[str]) -> None:
    """After our undrain, a drain that somebody sets without a reason is not taken for ours."""
    name = nodes[0]
    assert await slurm.writer.drain(name, "cordoned") == Done()
    assert await slurm.writer.undrain(name, "uncordoned") == Done()
    assert (await slurm.node(name)).reason in {"", "(slurm-operator: uncordoned)"}
    await slurm.rest.update_nodes(name, NodeUpdate(state=("DRAIN",)))
    await slurm.now()
    assert not_sent(await slurm.writer.undrain(name)) is NotSentReason.FOREIGN_REASON
    assert "DRAIN" in (await slurm.node(name)).state


async def test_what_is_left_of_an_old_reason_is_no_obstacle(
    slurm: Writing, box: SlurmBox, nodes: list[str]
) -> None:
    """A node that a person drained and resumed can be drained by us; 24.11 keeps their reason."""
    name = nodes[0]
    await asyncio.to_thread(by_hand, box, name, "State=DRAIN", "Reason=bad disk")
    await asyncio.to_thread(by_hand, box, name, "State=UNDRAIN")
    await slurm.now()
    assert await slurm.writer.drain(name, "cordoned") == Done()
    assert (await slurm.node(name)).reason == "slurm-operator: cordoned"
    assert await slurm.writer.undrain(name) == Done()
    assert "DRAIN" not in (await slurm.node(name)).state


async def test_a_node_that_is_down_for_a_reason_keeps_it(
    slurm: Writing, box: SlurmBox, nodes: list[str]
) -> None:
    """A drain is added to a node that somebody has set down, and nothing else is changed."""
    name = nodes[0]
    await asyncio.to_thread(by_hand, box, name, "State=DOWN", "Reason=bad disk")
    await slurm.now()
    assert await slurm.writer.drain(name, "scale-in") == Done()
    node = await slurm.node(name)
    assert {"DOWN", "DRAIN"} <= {*node.state}
    assert node.reason == "bad disk"


async def test_a_mark_of_failing_is_not_taken_away(slurm: Writing, box: SlurmBox, nodes: list[str]) -> None:
    """Slurm forgets FAIL when a node is drained, so a failing node is left alone."""
    await asyncio.to_thread(by_hand, box, nodes[0], "State=FAIL", "Reason=bad disk")
    await slurm.now()
    assert not_sent(await slurm.writer.drain(nodes[0], "scale-in")) is NotSentReason.FOREIGN_REASON
    assert "FAIL" in (await slurm.node(nodes[0])).state


async def test_a_state_is_set_with_our_reason(slurm: Writing, nodes: list[str]) -> None:
    """DOWN is set, and RESUME takes it back."""
    assert await slurm.writer.set_state(nodes[0], "DOWN", "pod lost") == Done()
    node = await slurm.node(nodes[0])
    assert ("DOWN" in node.state, node.reason) == (True, "slurm-operator: pod lost")
    assert await slurm.writer.set_state(nodes[0], "RESUME") == Done()
    assert "DOWN" not in (await slurm.node(nodes[0])).state


async def test_reasons_and_comments_come_back_as_they_were_sent(slurm: Writing, nodes: list[str]) -> None:
    """JSON, quotes, backslashes and other scripts survive; what survives is not written again."""
    comment = json.dumps(
        {"namespace": "ns", "podName": "w-0", "note": 'ü "q" \\ [1,2] ☃'}, ensure_ascii=False
    )
    reason = "(a=b, 'c') \"d\" \\ [e] ☃ " + "é" * 300
    for expected in (Done(), Unchanged()):
        assert await slurm.writer.set_comment(nodes[0], comment) == expected
        assert await slurm.writer.drain(nodes[0], reason) == expected
        node = await slurm.node(nodes[0])
        assert node.comment == comment
        assert node.reason == f"slurm-operator: {reason[:256]}"


async def test_features_are_replaced_below_a_prefix(slurm: Writing, nodes: list[str]) -> None:
    """Features of others stay, also when none of ours is left; at the end there may be none at all."""
    name = nodes[0]
    assert await slurm.writer.set_features(name, ["gpu"]) == Done()
    assert await slurm.writer.set_features(name, ["zone-a", "rack1"], prefix="k8s/") == Done()
    node = await slurm.node(name)
    assert {*node.features} == {*node.active_features} == {"gpu", "k8s/rack1", "k8s/zone-a"}
    assert await slurm.writer.set_features(name, ["rack1", "zone-a"], prefix="k8s/") == Unchanged()
    assert await slurm.writer.set_features(name, [], prefix="k8s/") == Done()
    assert (await slurm.node(name)).features == ("gpu",)
    assert await slurm.writer.set_features(name, []) == Done()
    node = await slurm.node(name)
    assert (node.features, node.active_features) == ((), ())


async def test_a_topology_is_set_where_slurm_can(slurm: Writing, nodes: list[str]) -> None:
    """26.05 takes a topology, and refuses one it does not have; 24.11 would ignore it, so it is not sent."""
    outcome = await slurm.writer.set_topology(nodes[0], "default:s1")
    if slurm.rest.version == "v0.0.42":
        assert not_sent(outcome) is NotSentReason.UNSUPPORTED
        assert slurm.operations() == []
        return
    assert outcome == Done()
    assert (await slurm.node(nodes[0])).topology == "default:s1"
    wrong = await slurm.writer.set_topology(nodes[0], "nosuch:s1")
    assert isinstance(wrong, Failed)
    assert isinstance(wrong.error, Refused)
    assert (await slurm.node(nodes[0])).topology == "default:s1"


async def test_a_node_deleted_meanwhile_does_not_keep_the_others(
    slurm: Writing, box: SlurmBox, nodes: list[str]
) -> None:
    """Slurm refuses an update that names a node which is gone; the others are changed all the same."""
    gone = nodes[2]
    await asyncio.to_thread(box.run, "scontrol", "delete", f"NodeName={gone}")
    outcomes = await slurm.writer.write(dict.fromkeys(nodes, Comment("hello")))
    assert not_sent(outcomes.pop(gone)) is NotSentReason.UNKNOWN
    assert outcomes == dict.fromkeys(outcomes, Done())
    view = await slurm.now()
    assert {view.nodes[name].comment for name in outcomes} == {"hello"}
    assert slurm.operations().count("update_nodes") <= 2


async def test_nothing_is_sent_for_names_that_slurm_does_not_have(slurm: Writing) -> None:
    """A name that is not listed is not changed; neither is ALL, which Slurm would take for every node."""
    outcomes = await slurm.writer.write({"nope": Drain("x"), "ALL": Drain("x"), "n[0-9]": Drain("x")})
    assert {not_sent(outcome) for outcome in outcomes.values()} <= {
        NotSentReason.UNKNOWN,
        NotSentReason.ABSENT,
    }
    assert slurm.operations() == []


async def test_a_token_without_rights_fails_each_node(
    box: SlurmBox, slurm: Writing, nodes: list[str]
) -> None:
    """A user who may not change nodes gets that answer for every node, after one attempt."""
    async with writing(box.url, box.token("alice")) as alice:
        await alice.shown(lambda view: nodes[0] in view.nodes)
        alice.operations()
        outcomes = await alice.writer.write({name: Drain("x") for name in nodes})
        assert alice.operations().count("update_nodes") == 1
    for outcome in outcomes.values():
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, Refused)
        assert outcome.error.numbers == {2010}
    assert "DRAIN" not in (await slurm.node(nodes[0])).state
