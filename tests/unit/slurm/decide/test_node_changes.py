"""The decisions of the writer: what is sent, what is left alone, and for whose sake."""

from __future__ import annotations

import json
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from slurm_operator.slurm.decide.node_changes import (
    MAX_REASON,
    MAX_TEXT,
    Comment,
    Done,
    Drain,
    Failed,
    Features,
    NodeChange,
    NodeField,
    NotSent,
    NotSentReason,
    SetState,
    Topology,
    Unchanged,
    Undrain,
    decide,
    drained_by_us,
    field_of,
    sanitise,
)
from slurm_operator.slurm.model.answers import Absent, AnswerReason, Known, Unknown
from slurm_operator.slurm.model.records import Node, NodeUpdate

PREFIX = "slurm-operator: "
OURS = "slurm-operator: Pod (ns/worker-0) was cordoned"
UNDRAINED = "(slurm-operator: undrained)"
FOREIGN = "bad disk, ask Alice"

CHANGES: list[NodeChange] = [
    Drain("why"),
    Undrain(),
    SetState("DOWN", "why"),
    Comment("c"),
    Topology("t"),
    Features(("f",)),
]

BASE = ("IDLE", "MIXED", "ALLOCATED", "DOWN", "ERROR", "UNKNOWN", "FUTURE")
FLAGS = (
    *("DRAIN", "UNDRAIN", "FAIL", "NOT_RESPONDING", "COMPLETING", "CLOUD", "POWERED_DOWN", "DYNAMIC_NORM"),
    *("MAINTENANCE", "RESERVED", "REBOOT_REQUESTED", "REBOOT_ISSUED", "INVALID_REG", "PLANNED", "TOMORROW"),
)
states = st.tuples(st.sampled_from(BASE), st.sets(st.sampled_from(FLAGS))).map(
    lambda parts: (parts[0], *sorted(parts[1]))
)
reasons = st.sampled_from(
    ["", OURS, UNDRAINED, FOREIGN, "Not responding", "slurm-operator:", "slurm-operators: x"]
)
nodes = st.builds(Node, name=st.just("n1"), state=states, reason=reasons)


def on(change: NodeChange, *state: str, reason: str = "", **fields: object) -> object:
    """Decide a wish on a node in this state."""
    node = msgspec.convert({"name": "n1", "state": state, "reason": reason, **fields}, Node)
    return decide(change, Known(node, at=1.0), PREFIX)


def with_features(change: NodeChange, available: list[str], active: list[str]) -> object:
    """Decide a wish on a node with these features."""
    return on(change, "IDLE", reason="", features=available, active_features=active)


def not_sent(decision: object) -> NotSentReason | None:
    """Return why a change is not sent."""
    return decision.reason if isinstance(decision, NotSent) else None


# --- nodes that are not known


@pytest.mark.parametrize("change", CHANGES, ids=repr)
def test_nothing_is_sent_for_a_node_that_is_not_known(change: NodeChange) -> None:
    """Unknown and absent nodes are not changed, each with its own reason."""
    assert decide(change, Unknown(AnswerReason.VIEW_STALE, "the view is old"), PREFIX) == NotSent(
        NotSentReason.UNKNOWN, "the view is old"
    )
    assert not_sent(decide(change, Absent(at=1.0, lists=3, since=0.0), PREFIX)) is NotSentReason.ABSENT


# --- draining


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "DOWN"])
@pytest.mark.parametrize("reason", ["", "Not responding", UNDRAINED, OURS])
def test_a_drain_gives_its_reason(state: str, reason: str) -> None:
    """Where nobody else has a say, the node gets the drain and our reason."""
    expected = NodeUpdate(state=("DRAIN",), reason="slurm-operator: why")
    assert on(Drain("why"), state, "DYNAMIC_NORM", reason=reason) == expected


def test_a_drain_is_not_repeated() -> None:
    """A node that is drained with this very reason is left alone: at rest nothing is written."""
    assert on(Drain("why"), "MIXED", "DRAIN", reason="slurm-operator: why") == Unchanged()
    assert on(Drain(" why\n"), "IDLE", "DRAIN", reason="slurm-operator: why") == Unchanged()


def test_our_reason_may_be_replaced_by_us() -> None:
    """A drain of ours takes a new reason."""
    expected = NodeUpdate(state=("DRAIN",), reason="slurm-operator: new")
    assert on(Drain("new"), "IDLE", "DRAIN", reason=OURS) == expected


@pytest.mark.parametrize("reason", ["", FOREIGN, "Not responding", UNDRAINED])
def test_a_node_drained_by_others_is_held(reason: str) -> None:
    """A drain that does not carry our reason is somebody else's, with or without a reason of its own."""
    assert not_sent(on(Drain("why"), "IDLE", "DRAIN", reason=reason)) is NotSentReason.FOREIGN_REASON


@pytest.mark.parametrize("state", ["DOWN", "ERROR"])
@pytest.mark.parametrize("reason", [FOREIGN, "Not responding to IPMI, ask Alice"])
def test_a_drain_keeps_a_foreign_reason_that_is_in_force(state: str, reason: str) -> None:
    """A node that is down for somebody's reason is drained and keeps that reason."""
    assert on(Drain("why"), state, reason=reason) == NodeUpdate(state=("DRAIN",))


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED"])
def test_a_leftover_reason_is_no_obstacle(state: str) -> None:
    """24.11 never clears a reason; on a node in good order it explains nothing any more."""
    expected = NodeUpdate(state=("DRAIN",), reason="slurm-operator: why")
    assert on(Drain("why"), state, reason=FOREIGN) == expected


@pytest.mark.parametrize("reason", ["", FOREIGN, OURS])
def test_a_failing_node_is_held(reason: str) -> None:
    """DRAIN takes the mark FAIL away, so it is not sent."""
    assert not_sent(on(Drain("why"), "IDLE", "FAIL", reason=reason)) is NotSentReason.FOREIGN_REASON


def test_a_drain_that_is_being_lifted_is_none() -> None:
    """DRAIN together with UNDRAIN counts as not drained, for either wish."""
    assert isinstance(on(Drain("why"), "IDLE", "DRAIN", "UNDRAIN", reason="slurm-operator: why"), NodeUpdate)
    assert on(Undrain(), "IDLE", "DRAIN", "UNDRAIN", reason=OURS) == Unchanged()


def test_a_drain_without_text_is_recognised_as_ours() -> None:
    """A reason of which nothing is left still marks the drain as ours, and is not written twice."""
    update = on(Drain("\x00\n"), "IDLE")
    assert update == NodeUpdate(state=("DRAIN",), reason="slurm-operator:")
    assert on(Drain(""), "IDLE", "DRAIN", reason="slurm-operator:") == Unchanged()
    assert isinstance(on(Undrain(), "IDLE", "DRAIN", reason="slurm-operator:"), NodeUpdate)


def test_the_message_of_a_hold_names_who_and_why() -> None:
    """Whoever reads that a node is not changed learns its state, who set it, and their reason."""
    decision = on(Drain("why"), "IDLE", "DRAIN", reason="bad\ndisk " + "x" * 999, reason_set_by_user="alice")
    assert isinstance(decision, NotSent)
    assert "IDLE+DRAIN" in decision.message
    assert "'bad disk xx" in decision.message
    assert "alice" in decision.message
    assert len(decision.message) < 300


# --- undraining


def test_an_undrain_takes_back_a_drain_of_ours() -> None:
    """UNDRAIN leaves a reason behind that is not ours, for releases which keep it."""
    expected = NodeUpdate(state=("UNDRAIN",), reason="(slurm-operator: Pod is back)")
    assert on(Undrain("Pod is back"), "IDLE", "DRAIN", reason=OURS) == expected
    assert on(Undrain("Pod is back"), "DOWN", "DRAIN", reason=OURS) == expected


@pytest.mark.parametrize("reason", ["", FOREIGN, "Not responding", UNDRAINED, "slurm-operators: x"])
def test_a_foreign_drain_is_never_undone(reason: str) -> None:
    """Only our reason, as it stands now, is proof that a drain is ours."""
    assert not_sent(on(Undrain(), "IDLE", "DRAIN", reason=reason)) is NotSentReason.FOREIGN_REASON


@pytest.mark.parametrize("reason", ["", FOREIGN, OURS])
def test_a_node_that_is_not_drained_needs_no_undrain(reason: str) -> None:
    """Nothing is sent for a node that takes work."""
    assert on(Undrain(), "IDLE", reason=reason) == Unchanged()


# --- both


@given(nodes, st.sampled_from(["why", "", "slurm-operator: why"]))
def test_wishes_come_to_rest(node: Node, reason: str) -> None:
    """Once Slurm has carried out a drain or an undrain, the same wish sends nothing more."""
    for change in (Drain(reason), Undrain(reason)):
        decision = decide(change, Known(node, at=1.0), PREFIX)
        if isinstance(decision, NodeUpdate):
            assert not isinstance(
                decide(change, Known(carried_out(node, decision), at=2.0), PREFIX), NodeUpdate
            )


@given(nodes, st.sampled_from([FOREIGN, "slurm-operators: x"]), st.sampled_from(["DOWN", "FAIL", "DRAIN"]))
def test_a_foreign_reason_in_force_outlives_every_wish(node: Node, reason: str, trouble: str) -> None:
    """Whatever is wished for, the reason that somebody else gave for the state of a node stays."""
    theirs = replace(node, state=(*node.state, trouble), reason=reason)
    for change in (
        Drain("why"),
        Undrain(),
        SetState("DOWN", "why"),
        SetState("RESUME"),
        SetState("POWER_UP", "why"),
    ):
        decision = decide(change, Known(theirs, at=1.0), PREFIX)
        assert not isinstance(decision, NodeUpdate) or decision == NodeUpdate(state=("DRAIN",))


@given(nodes, st.sampled_from(["", FOREIGN, "Not responding", UNDRAINED]))
def test_no_wish_lifts_a_drain_that_is_not_ours(node: Node, reason: str) -> None:
    """No change that would end a drain is sent when another client has drained the node."""
    theirs = replace(node, state=tuple({*node.state, "DRAIN"} - {"UNDRAIN"}), reason=reason)
    assert not drained_by_us(theirs, PREFIX)
    for change in (Undrain(), SetState("RESUME"), SetState("IDLE"), SetState("DOWN", "why")):
        assert not_sent(decide(change, Known(theirs, at=1.0), PREFIX)) is NotSentReason.FOREIGN_REASON


def carried_out(node: Node, update: NodeUpdate) -> Node:
    """Do what slurmctld does with DRAIN and UNDRAIN."""
    flags = {*node.state}
    if update.state == ("DRAIN",):
        flags = (flags | {"DRAIN"}) - {"UNDRAIN", "FAIL"}
    elif update.state == ("UNDRAIN",):
        flags -= {"DRAIN"}
    reason = node.reason if update.reason is None else update.reason
    return replace(node, state=tuple(sorted(flags)), reason=reason)


# --- states


def test_a_state_is_set_once() -> None:
    """A state comes with our reason, and is not set again where it stands."""
    expected = NodeUpdate(state=("DOWN",), reason="slurm-operator: pod lost")
    assert on(SetState("DOWN", "pod lost"), "IDLE") == expected
    assert on(SetState("DOWN", "pod lost"), "DOWN", reason="slurm-operator: pod lost") == Unchanged()
    assert on(SetState("POWER_UP"), "IDLE", "POWERED_DOWN") == NodeUpdate(state=("POWER_UP",))
    assert on(SetState("POWER_UP"), "IDLE") == Unchanged()


def test_resume_is_for_nodes_out_of_order() -> None:
    """Slurm refuses to resume a node that is in order, so it is not asked to."""
    assert on(SetState("RESUME"), "IDLE", "DYNAMIC_NORM") == Unchanged()
    assert on(SetState("RESUME"), "DOWN", reason="Not responding") == NodeUpdate(state=("RESUME",))
    assert on(SetState("RESUME"), "IDLE", "DRAIN", reason=OURS) == NodeUpdate(state=("RESUME",))


@pytest.mark.parametrize("state", ["DRAIN", "UNDRAIN", "FUTURE", "FAIL", "idle", ""])
def test_not_every_state_can_be_wished_for(state: str) -> None:
    """A drain as a plain state would go without the rules for drains, and FUTURE hides the node."""
    assert not_sent(on(SetState(state, "why"), "IDLE")) is NotSentReason.INVALID


# --- comment, topology, features


def test_a_comment_is_written_when_it_differs() -> None:
    """A JSON text goes through as it is; an equal one is not sent again."""
    text = json.dumps({"namespace": "slurm", "podName": "w-0", "note": 'ü "q" \\ [1,2]'}, ensure_ascii=False)
    assert on(Comment(text), "IDLE") == NodeUpdate(comment=text)
    assert on(Comment(text), "IDLE", comment=text) == Unchanged()
    assert on(Comment("a\x00b\nc"), "IDLE") == NodeUpdate(comment="ab c")
    assert on(Comment(""), "IDLE", comment="old") == NodeUpdate(comment="")


def test_a_text_too_long_is_refused_not_cut() -> None:
    """Half of a comment or of a topology would be wrong in its own way."""
    assert not_sent(on(Comment("x" * (MAX_TEXT + 1)), "IDLE")) is NotSentReason.INVALID
    assert not_sent(on(Topology("x" * (MAX_TEXT + 1)), "IDLE")) is NotSentReason.INVALID


def test_a_topology_is_written_when_it_differs() -> None:
    """The empty topology is one, too."""
    assert on(Topology("switch:s1"), "IDLE") == NodeUpdate(topology_str="switch:s1")
    assert on(Topology("switch:s1 \n"), "IDLE", topology="switch:s1") == Unchanged()
    assert on(Topology(""), "IDLE", topology="switch:s1") == NodeUpdate(topology_str="")


def test_features_replace_those_with_the_prefix() -> None:
    """Features of others stay, in their order; ours are sorted behind them."""
    both = ["gpu", "k8s/old", "ib"], ["gpu", "k8s/old"]
    decision = with_features(Features(("b", " a ", "b", ""), "k8s/"), *both)
    expected = ("gpu", "ib", "k8s/a", "k8s/b"), ("gpu", "k8s/a", "k8s/b")
    assert decision == NodeUpdate(features=expected[0], features_act=expected[1])


def test_features_in_another_order_are_the_same() -> None:
    """Slurm's order of features means nothing."""
    both = ["k8s/b", "gpu", "k8s/a"], ["k8s/a", "k8s/b"]
    assert with_features(Features(("a", "b"), "k8s/"), *both) == Unchanged()


def test_no_features_left_are_written_as_an_empty_name() -> None:
    """Slurm takes an empty list for no wish at all."""
    both = ["k8s/a"], ["k8s/a"]
    assert with_features(Features((), "k8s/"), *both) == NodeUpdate(features=("",), features_act=("",))


@pytest.mark.parametrize("feature", ["a,b", "a b", "a\tb"])
def test_a_feature_that_would_be_split_is_refused(feature: str) -> None:
    """Slurm keeps features in one comma-separated text."""
    assert not_sent(on(Features((feature,)), "IDLE")) is NotSentReason.INVALID


# --- text


@given(st.text())
def test_sanitised_text_is_one_short_line(text: str) -> None:
    """Nothing that could break a line, a terminal or a limit is left, and doing it twice changes nothing."""
    clean = sanitise(text)
    assert len(clean) <= MAX_REASON
    assert clean == clean.strip() == sanitise(clean)
    assert not any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in clean)
    clean.encode()


def test_white_space_becomes_spaces_and_control_characters_go() -> None:
    """Words stay apart; what has no picture is dropped; a cut leaves no space at the end."""
    assert sanitise("\ta\nb\r\nc\x00\x1b[31m\u202ed\ud800 ") == "a b  c[31md"
    assert sanitise("x" * 255 + " yz") == "x" * 255
    assert sanitise("é" * 300) == "é" * 256


def test_each_wish_is_about_one_field() -> None:
    """Drain, undrain and other states contradict each other; comment, topology and features stand alone."""
    fields = [field_of(change) for change in CHANGES]
    assert fields == [
        NodeField.STATE,
        NodeField.STATE,
        NodeField.STATE,
        NodeField.COMMENT,
        NodeField.TOPOLOGY,
        NodeField.FEATURES,
    ]


def test_outcomes_are_values() -> None:
    """Outcomes can be compared and kept."""
    assert {Done(), Done(), Unchanged()} == {Done(), Unchanged()}
    assert Failed not in {type(Done()), type(Unchanged())}
