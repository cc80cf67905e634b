"""Secrets with keys of daemons: which changes endanger whom, and what is said about it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from slurm_operator.api import Controller
from slurm_operator.webhook.rules import keys, keysets
from slurm_operator.webhook.rules.admission import Undecodable, decode, validate
from slurm_operator.webhook.rules.findings import CauseType, Finding, Findings
from slurm_operator.webhook.rules.keys import GONE, REPLACED, Content
from slurm_operator.webhook.rules.keysets import Loss
from slurm_operator.webhook.rules.world import NOTHING, Running, Unreadable, World
from tests.support.webhook.rule_cases import DROP, EXTERNAL, key, manifest, read

KEY, SET = "slurm.key", "slurm.jwks"
HIDDEN = "aHVudGVyMg=="
NOW = 1_900_000_000.0


def key_set(*kids: str) -> str:
    """Return a set of keys, of which the first signs, as it is in a Secret."""
    entries = [{"alg": "HS256", "kty": "oct", "kid": kid, "k": HIDDEN} for kid in kids]
    return base64.b64encode(json.dumps({"keys": entries}).encode()).decode()


OTHER, BAD = (keysets.lost(key_set("a"), new, NOW) or Loss() for new in (key_set("b"), key_set()))


def controller(spec: dict[str, Any] | None = None, name: str = "x") -> Controller:
    item = read(manifest("Controller", {"slurmKeyRef": key("keys", KEY)} | (spec or {}), name))
    assert isinstance(item, Controller)
    return item


def found(
    item: Controller, answer: str | Unreadable | None, losses: dict[str, Loss] | None = None
) -> list[Finding]:
    """Return what is said of changes in the Secret of a cluster of whose workers a lookup says this."""
    findings = Findings()
    lost = {KEY: REPLACED, SET: GONE} if losses is None else losses
    keys.check_loss("keys", lost, World(clusters=(Running(item, answer),)), findings)
    return [*findings.errors.values()]


@pytest.mark.parametrize(
    ("old", "new", "losses"),
    [
        ({KEY: "a"}, {KEY: "a"}, {}),
        ({KEY: "a"}, {KEY: "b"}, {KEY: REPLACED}),
        ({KEY: "a"}, {KEY: ""}, {KEY: REPLACED}),
        ({KEY: ""}, {KEY: "a"}, {}),
        ({KEY: ""}, {}, {}),
        ({KEY: "a"}, {}, {KEY: REPLACED}),
        ({KEY: "a"}, None, {KEY: REPLACED}),
        ({}, {KEY: "a"}, {}),
        (None, {KEY: "a"}, {}),
        ({SET: key_set("a")}, {SET: key_set("a", "b")}, {}),
        ({SET: key_set("a")}, {SET: key_set("b")}, {SET: OTHER}),
        ({"my.jwks": key_set("a")}, {"my.jwks": key_set("b")}, {"my.jwks": OTHER}),
        ({SET: key_set("a")}, {SET: key_set()}, {SET: BAD}),
        ({SET: key_set()}, {SET: key_set("a")}, {}),
        ({SET: ""}, {SET: key_set()}, {}),
        ({SET: key_set("a")}, {}, {SET: GONE}),
        ({SET: key_set()}, {}, {SET: GONE}),
        ({KEY: "a", SET: key_set("a"), "other": "o"}, {KEY: "a", "new": "n"}, {SET: GONE, "other": REPLACED}),
    ],
)
def test_what_is_lost(
    old: dict[str, str] | None, new: dict[str, str] | None, losses: dict[str, Loss]
) -> None:
    """A key is lost with its content, a set with the keys that sign; what is added, kept or empty is not."""
    assert keys.lost(Content(data=old), Content(data=new), NOW) == losses


@pytest.mark.parametrize(
    ("item", "losses", "in_danger"),
    [
        (controller(), {KEY: REPLACED}, True),
        (controller(), {SET: GONE, "other": REPLACED}, False),
        (controller(), {}, False),
        (controller({"slurmKeyRef": key("keys", "mine")}), {"mine": REPLACED}, True),
        (controller({"slurmKeyRef": key("keys", SET)}), {KEY: REPLACED}, False),
        (controller({"slurmKeyRef": key("keys", SET)}), {SET: GONE}, True),
        (controller({"slurmKeyRef": key("keys", SET)}), {SET: OTHER}, True),
        (controller({"slurmKeyRef": key("keys", SET)}), {SET: BAD}, True),
        (controller({"slurmKeyRef": key("others", KEY)}), {KEY: REPLACED}, False),
        (controller(EXTERNAL), {KEY: REPLACED}, False),
        (controller(EXTERNAL | {"slurmKeyRef": DROP}), {KEY: REPLACED}, False),
    ],
)
def test_whom_a_change_endangers(*, item: Controller, losses: dict[str, Loss], in_danger: bool) -> None:
    """What is lost endangers who has it; external clusters and others it does not."""
    assert bool(found(item, "gpu-0", losses)) is in_danger
    assert found(item, None, losses) == []


def test_a_key_with_workers_cannot_be_replaced() -> None:
    """The refusal names the key, whose it is, a worker, the danger, and both ways to do it."""
    (error,) = found(controller(), "gpu-0")
    assert (error.path, error.cause) == ("data[slurm.key]", CauseType.FORBIDDEN)
    for words in (
        "Controller 'x'",
        "pod 'gpu-0'",
        REPLACED.way,
        "docs/guides/keys.md",
        "NodeSets to 0",
    ):
        assert words in error.message


@pytest.mark.parametrize("loss", [GONE, OTHER])
def test_a_set_with_workers_cannot_be_lost(loss: Loss) -> None:
    """The refusal of another set, or of none, says whose it is and what to do."""
    (error,) = found(controller({"slurmKeyRef": key("keys", SET)}), "gpu-0", {SET: loss})
    assert (error.path, error.cause) == ("data[slurm.jwks]", CauseType.FORBIDDEN)
    assert "Controller 'x'" in error.message
    assert f"{loss.way}, or scale its NodeSets to 0 first" in error.message


def test_what_is_no_set_is_no_question_of_steps() -> None:
    """The refusal of a set that cannot be read says what is wrong with it, and not to go slowly."""
    (error,) = found(controller({"slurmKeyRef": key("keys", SET)}), "gpu-0", {SET: BAD})
    assert (error.path, error.cause) == ("data[slurm.jwks]", CauseType.INVALID)
    for words in ("Controller 'x'", BAD.fault, "docs/guides/keys.md"):
        assert words in error.message
    assert "NodeSets" not in error.message


@pytest.mark.parametrize("loss", [REPLACED, *(loss for loss in keysets.STEPS.values() if loss)])
def test_the_longest_names_leave_room_for_the_advice(loss: Loss) -> None:
    """However long the names are, the sentence is not cut before it says what to do."""
    name = KEY if loss == REPLACED else SET
    item = controller({"slurmKeyRef": key("keys", name)}, name="c" * 40)
    (error,) = found(item, "w" * 63, {name: loss})
    assert not error.message.endswith("…")


def test_a_worker_without_a_name_is_one() -> None:
    """That there is a worker counts, whatever it is called."""
    (error,) = found(controller(), "")
    assert (error.cause, "pod" in error.message) == (CauseType.FORBIDDEN, False)


def test_without_workers_a_key_is_free() -> None:
    """Where no worker is, nobody loses touch."""
    assert found(controller(), None) == []


def test_unknown_workers_are_no_absent_ones() -> None:
    """A lookup without an answer refuses, and says why."""
    (error,) = found(controller(), Unreadable("no answer; try again"))
    assert error.path == "data[slurm.key]"
    assert error.message.endswith(": no answer; try again")
    findings = Findings()
    keys.check_loss("keys", {KEY: REPLACED}, World(clusters=Unreadable("no answer")), findings)
    (error,) = findings.errors.values()
    assert (error.path, error.message.endswith(": no answer")) == ("data", True)


@pytest.mark.parametrize("kind", ["Controller", "Accounting"])
def test_unknown_clusters_are_no_absent_ones(kind: str) -> None:
    """Who names another single key is refused it where nobody knows whether there are workers."""
    old, new = (read(manifest(kind, {"slurmKeyRef": key("keys", name)})) for name in (KEY, "other"))
    world = World(clusters=Unreadable("no answer"))
    (error,), _ = validate(new, old, world)
    assert (error.path, error.message.endswith(": no answer")) == ("spec.slurmKeyRef.key", True)
    assert validate(new, new, world)[0] == ()


def test_namespaces_of_others_are_not_found() -> None:
    """Where nothing is looked at, as in namespaces of another operator, nothing is refused."""
    findings = Findings()
    keys.check_loss("keys", {KEY: REPLACED}, NOTHING, findings)
    assert not findings.errors


@pytest.mark.parametrize(
    ("wanted", "refused"), [(key("keys", KEY), False), (key("keys", "third"), True), (key("k", KEY), True)]
)
def test_an_accounting_may_be_given_the_key_of_its_cluster(*, wanted: dict[str, Any], refused: bool) -> None:
    """An Accounting that names another key than its Controller can be fixed, and not be made worse."""
    user = controller({"accountingRef": {"name": "x"}})
    old = read(manifest("Accounting", {"slurmKeyRef": key("keys", "wrong")}))
    new = read(manifest("Accounting", {"slurmKeyRef": wanted}))
    errors, _ = validate(new, old, World(clusters=(Running(user, "gpu-0"),)))
    assert any(error.path == "spec.slurmKeyRef.key" for error in errors) is refused


@pytest.mark.parametrize(
    "text",
    [
        f'{{"data": ["{HIDDEN}"]}}',
        f'{{"data": {{"slurm.key": ["{HIDDEN}"]}}}}',
        f'{{"data": "{HIDDEN}"}}',
        f'{{"data": {{"slurm.key": "{HIDDEN}"',
        f'{{"metadata": "{HIDDEN}", "data": {{}}}}',
        f"{HIDDEN}",
    ],
)
def test_no_complaint_repeats_a_key(text: str) -> None:
    """What cannot be read is refused without a word of what is in it."""
    with pytest.raises(Undecodable) as caught:
        decode(Content, text.encode())
    assert HIDDEN not in f"{caught.value}{caught.value.finding}{caught.value.__cause__}"


def test_a_key_is_never_shown() -> None:
    """Whoever prints a Secret sees the names of its keys."""
    assert repr(Content(data={KEY: HIDDEN})) == "Content(keys=['slurm.key'])"


def test_a_dying_secret_is_known() -> None:
    """A Secret that is being deleted is told from one that is not."""
    assert decode(Content, b'{"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}').dying
    assert not decode(Content, b'{"metadata": {"deletionTimestamp": null}}').dying
