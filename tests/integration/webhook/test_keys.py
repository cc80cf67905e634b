"""Keys of Slurm clusters in Secrets, behind a real API server: refused, admitted, and never asked about."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from kubebox import BoxError
from slurm_operator.api import wellknown
from tests.support.processes import eventually
from tests.support.webhook.admission_reviews import PATHS, question
from tests.support.webhook.clusters_with_keys import KEY, SET, encoded, key_set, secret
from tests.support.webhook.lone_webhook import lonely
from tests.support.webhook.rule_cases import EXTERNAL, key
from tests.support.webhook.served_webhook import NOWHERE, post

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.webhook.clusters_with_keys import Made
    from tests.support.webhook.served_webhook import Answer, Stage

NAMED = wellknown.ANNOTATION_SLURM_KEY
# A value that can be found wherever it appears, as it is and as the API server writes it.
HIDDEN = "hunter2-hunter2-hunter2"


def is_refused(answer: Answer, name: str = KEY) -> bool:
    """Return whether a write was refused because of workers, and by nothing else."""
    return (answer.status, [*answer.causes]) == (422, [f"data[{name}]"]) and (
        "cannot be replaced in one step" in answer.body["message"]
    )


# --- refused


async def test_a_key_cannot_be_replaced_while_workers_have_it(slurm: Made) -> None:
    """By whatever verb: the API server refuses, says what to do, and the Secret is what it was."""
    one = await slurm()
    before = await one.content()
    stored = (await one.server.stored(one.secret)).body
    answer = await one.write({KEY: "new"})
    assert is_refused(answer)
    for words in (
        'admission webhook "secret-v1.kb.io" denied the request: data[slurm.key]: ',
        f"the key of Controller '{one.name}'",
        f"(such as pod '{one.name}-worker')",
        "three steps with slurm.jwks (docs/guides/keys.md)",
    ):
        assert words in answer.body["message"]
    assert is_refused(await one.write({KEY: None}))
    assert is_refused(await one.server.patch(one.secret, {"data": None}))
    assert is_refused(await one.server.patch(one.secret, {"stringData": {KEY: "new"}}))
    assert is_refused(await one.server.replace(stored | {"data": {KEY: encoded("new")}}))
    assert is_refused(await one.server.apply(secret(one.name, {KEY: "new"})))
    assert is_refused(await one.server.replace(stored | {"data": {KEY: encoded("new")}}, dryRun="All"))
    assert await one.content() == before


async def test_kubectl_shows_the_way(slurm: Made, shared_stage: Stage) -> None:
    """A user who applies a Secret with another key reads which field, why, and what to do."""
    one = await slurm()
    text = json.dumps(secret(one.name, {KEY: HIDDEN}))
    namespace = ("--namespace", one.server.namespace)
    with pytest.raises(BoxError, match=r"docs/guides/keys\.md") as caught:
        await asyncio.to_thread(shared_stage.box.kubectl, *namespace, "apply", "-f", "-", stdin=text)
    assert f'The Secret "{one.name}" is invalid: data[slurm.key]: ' in str(caught.value)
    assert HIDDEN not in str(caught.value)
    assert encoded(HIDDEN) not in str(caught.value)


async def test_a_set_of_keys_goes_in_steps(slurm: Made) -> None:
    """The three steps are open, a leap over one of them or the end of the set is not, nor what is no set."""
    both, last = key_set("old", "new"), key_set("new", signs="new")
    one = await slurm({KEY: "old", SET: key_set("old")}, SET)
    assert is_refused(await one.write({SET: last}), SET)
    assert is_refused(await one.write({SET: key_set("old", "new", signs="new")}), SET)
    assert (await one.write({SET: both})).status == 200
    assert is_refused(await one.write({SET: last}), SET)
    assert (await one.write({SET: key_set("old", "new", signs="new")})).status == 200
    assert (await one.write({SET: last, KEY: None})).status == 200
    assert is_refused(await one.write({SET: None}), SET)
    answer = await one.write({SET: '{"keys": []}'})
    assert (answer.status, [*answer.causes]) == (422, [f"data[{SET}]"])
    assert [cause["reason"] for cause in answer.body["details"]["causes"]] == ["FieldValueInvalid"]
    assert (await one.content()) == {SET: encoded(last)}
    assert (await one.server.delete(one.worker)).status == 200
    assert (await one.write({SET: key_set("third")})).status == 200


async def test_what_is_no_set_can_be_mended(slurm: Made) -> None:
    """A set that no daemon can read does not stand in the way of one that they can."""
    one = await slurm({SET: "{old"}, SET)
    assert (await one.write({SET: "{new"})).status == 422
    assert (await one.write({SET: key_set("new")})).status == 200


async def test_a_key_of_another_name_is_guarded_where_it_is_told(slurm: Made) -> None:
    """A Secret says in an annotation which of its keys is one; in the same write it cannot be unsaid."""
    one = await slurm({"mine": "old"}, "mine")
    named = {"metadata": {"annotations": {NAMED: "mine"}}}
    assert (await one.server.patch(one.secret, named)).status == 200
    assert is_refused(await one.write({"mine": "new"}), "mine")
    unsaid = {"metadata": {"annotations": {NAMED: None}}, "data": {"mine": encoded("new")}}
    assert is_refused(await one.server.patch(one.secret, unsaid), "mine")
    assert (await one.write({KEY: "nobody's"})).status == 200


async def test_a_set_of_another_name_is_guarded_where_it_is_told(slurm: Made) -> None:
    """The annotation names a set as well as a single key."""
    one = await slurm({"mine.jwks": key_set("old")}, "mine.jwks")
    named = {"metadata": {"annotations": {NAMED: "mine.jwks"}}}
    assert (await one.server.patch(one.secret, named)).status == 200
    assert is_refused(await one.write({"mine.jwks": key_set("new")}), "mine.jwks")
    assert (await one.write({"mine.jwks": key_set("old", "new")})).status == 200


async def test_every_cluster_of_a_key_is_asked_about(slurm: Made) -> None:
    """Of two clusters with one key the one with workers counts, and is named."""
    one = await slurm(workers=False)
    two = await slurm(spec={"slurmKeyRef": key(one.name, KEY)})
    answer = await one.write({KEY: "new"})
    assert is_refused(answer)
    assert f"Controller '{two.name}'" in answer.body["message"]
    assert f"Controller '{one.name}'" not in answer.body["message"]


async def test_a_worker_that_is_going_is_still_one(slurm: Made) -> None:
    """A pod that is being deleted may still run its job; one that has ended does not, wherever it is."""
    one = await slurm()
    assert (await one.server.patch(one.worker, {"metadata": {"finalizers": ["test/hold"]}})).status == 200
    assert (await one.server.delete(one.worker)).status == 200
    assert is_refused(await one.write({KEY: "new"}))
    path = f"/api/v1/namespaces/{one.server.namespace}/pods/{one.name}-worker/status"
    for phase, status in (("Running", 422), ("Failed", 200)):
        change = {"status": {"phase": phase}}
        answer = await one.server.ask("PATCH", path, change, kind="application/merge-patch+json")
        assert answer.status == 200, answer
        assert (await one.write({KEY: f"new in {phase}"})).status == status


# --- admitted


async def test_without_workers_a_key_can_be_replaced(slurm: Made) -> None:
    """When the last worker is gone the same write is admitted, without a word."""
    one = await slurm()
    assert is_refused(await one.write({KEY: "new"}))
    assert (await one.server.delete(one.worker)).status == 200
    answer = await one.write({KEY: "new"})
    assert (answer.status, answer.warnings) == (200, [])
    assert (await one.write({KEY: None})).status == 200


async def test_workers_of_others_do_not_matter(slurm: Made) -> None:
    """A key that only clusters without workers, external ones, or no Controller at all have is free."""
    await slurm()
    idle = await slurm(workers=False)
    external = await slurm(spec=EXTERNAL)
    unnamed = await slurm({KEY: "old", "mine": "m"}, "mine")
    for one in (idle, external, unnamed):
        assert (await one.write({KEY: "new"})).status == 200


async def test_all_else_of_a_secret_is_free(slurm: Made) -> None:
    """Labels, other keys, the same key again, and the end: nobody is asked."""
    one = await slurm()
    assert (await one.server.patch(one.secret, {"metadata": {"labels": {"a": "b"}}})).status == 200
    assert (await one.write({"other": "p", SET: "{}"})).status == 200
    assert (await one.write({KEY: "old", "other": None})).status == 200
    held = {"metadata": {"finalizers": ["test/hold"]}}
    assert (await one.server.patch(one.secret, held)).status == 200
    assert (await one.server.delete(one.secret)).status == 200
    assert (await one.write({KEY: "dying"})).status == 200
    assert (await one.server.patch(one.secret, {"metadata": {"finalizers": None}})).status == 200
    assert (await one.server.stored(one.secret)).status == 404
    # Whoever must can: delete it, and make it again.
    assert (await one.server.create(secret(one.name, {KEY: "new"}))).status == 201


# --- outage


async def test_an_outage_stops_no_other_secret(own_stage: Stage) -> None:
    """Without the webhook a key cannot be replaced; every other write of every Secret goes on."""
    server = own_stage.server
    # As large as Secrets get, in one key or in many: the API server compares these by itself.
    large = secret("large", {KEY: "x" * 760_000})
    many = secret("many", {f"key-{number}": "x" for number in range(20_000)})
    foreign = secret("foreign", {"tls.key": "a"})
    several, dying = secret("several", {SET: "a"}), secret("dying", {KEY: "a"}, finalizers=["test/hold"])
    for body in (large, many, foreign, several, dying, secret("ours", {KEY: "a"})):
        assert (await server.create(body)).status == 201
    own_stage.process.__exit__()

    refused = await server.patch(secret("ours", {}), {"data": {KEY: encoded("b")}})
    assert (refused.status, "failed calling webhook" in refused.body["message"]) == (500, True)
    assert 'webhook "secret-v1.kb.io"' in refused.body["message"]
    for body in (large, many, foreign, secret("ours", {})):
        assert (await server.patch(body, {"metadata": {"labels": {"a": "b"}}})).status == 200
        assert (await server.patch(body, {"data": {"added": encoded("c")}})).status == 200
    assert (await server.patch(many, {"data": {"key-7": encoded("y")}})).status == 200
    assert (await server.patch(several, {"data": {SET: encoded("b")}})).status == 500
    assert (await server.patch(several, {"data": {SET: None}})).status == 500
    assert (await server.patch(several, {"data": {"added": encoded("c"), SET: encoded("a")}})).status == 200
    assert (await server.delete(dying)).status == 200
    assert (await server.patch(dying, {"data": None, "metadata": {"finalizers": None}})).status == 200
    assert (await server.stored(dying)).status == 404
    assert (await server.patch(foreign, {"data": None, "stringData": {"tls.key": "b"}})).status == 200
    outside = own_stage.outside
    assert (await outside.create(secret("ours", {KEY: "a"}))).status == 201
    assert (await outside.patch(secret("ours", {}), {"data": {KEY: encoded("b")}})).status == 200
    for body in (large, many, foreign, secret("ours", {})):
        assert (await server.delete(body)).status == 200
        assert (await server.stored(body)).status == 404


async def test_what_cannot_be_known_is_refused(tmp_path: Path) -> None:
    """Where the API server cannot be asked, a key cannot be replaced, and the refusal says so."""
    process, context, url = await lonely(tmp_path, NOWHERE)
    with process:
        change = question(
            secret("keys", {KEY: "new"}), operation="UPDATE", oldObject=secret("keys", {KEY: "old"})
        )
        _, answer = await post(url + PATHS["Secret"], change, context)
        assert answer["response"]["allowed"] is False
        message = answer["response"]["status"]["message"]
        assert message.startswith("data: ")
        assert "try again" in message


@pytest.mark.parametrize(
    ("request_", "metadata", "allowed"),
    [
        ({"operation": "UPDATE"}, {}, False),
        ({"operation": "UPDATE"}, {"deletionTimestamp": "2030-01-01T00:00:00Z"}, True),
        ({"operation": "UPDATE", "oldObject": None}, {}, False),
        ({"operation": "UPDATE", "namespace": "elsewhere"}, {}, True),
        ({"operation": "CREATE"}, {}, True),
        ({"operation": "DELETE", "object": None}, {}, True),
    ],
    ids=["change", "dying", "half a question", "elsewhere", "new", "gone"],
)
async def test_other_conditions_than_those_of_the_chart_do_no_harm(
    shared_stage: Stage, slurm: Made, *, request_: dict[str, Any], metadata: dict[str, Any], allowed: bool
) -> None:
    """Asked about more than the chart asks, the webhook refuses what endangers workers, and nothing else."""
    one = await slurm()
    body = secret(one.name, {KEY: "new"}, **metadata)
    asked = {"name": one.name, "namespace": one.server.namespace, "oldObject": one.secret, **request_}
    status, answer = await shared_stage.post(PATHS["Secret"], question(body, **asked))
    assert (status, answer["response"]["allowed"]) == (200, allowed)


# --- secrecy


def questions() -> list[tuple[str, bytes]]:
    """Return questions that hold a secret, most of them with a mistake at or near it."""
    good = secret("keys", {KEY: HIDDEN})
    text = encoded(HIDDEN)
    bodies: dict[str, Any] = {
        "good": good,
        "list": good | {"data": [text]},
        "text": good | {"data": text},
        "number": good | {"data": {KEY: 5, "other": text}},
        "nested": good | {"data": {KEY: {"value": text}}},
        "no base64": good | {"data": {KEY: HIDDEN}},
        "set": secret("keys", {SET: key_set(HIDDEN)}),
        "broken set": secret("keys", {SET: HIDDEN}),
        "metadata": good | {"metadata": text},
        "applied": good | {"metadata": {"annotations": {"last-applied-configuration": text}}},
    }
    asked = [
        (name, json.dumps(question(body, operation="UPDATE", oldObject=old, uid=f"hidden-{name}")).encode())
        for name, body in bodies.items()
        for old in (None, secret("keys", {KEY: "old", SET: key_set("old")}), body)
    ]
    whole = json.dumps(question(good, operation="UPDATE", oldObject=good, uid="hidden-cut")).encode()
    return [
        *asked,
        *(("cut", whole[:end]) for end in range(whole.index(text.encode()), len(whole), 40)),
        ("cut", whole[:-1]),
    ]


async def test_no_key_is_ever_shown(shared_stage: Stage, slurm: Made) -> None:
    """Whatever is asked, well or malformed, no answer, log line or metric has a word of a key."""
    one = await slurm()
    several = await slurm({SET: key_set(f"{HIDDEN}-old")}, SET)
    said = [json.dumps((await one.write({KEY: HIDDEN})).body)]
    for text in (key_set(HIDDEN), key_set(HIDDEN, HIDDEN), HIDDEN, f'{{"keys": [{{"k": "{HIDDEN}"}}]}}'):
        answer = await several.write({SET: text})
        assert answer.status == 422
        said.append(json.dumps(answer.body))
    for name, body in questions():
        status, answer = await shared_stage.post(PATHS["Secret"], body)
        assert status == (400 if name == "cut" else 200), (name, answer)
        said.append(json.dumps(answer))
    for path in (PATHS["Controller"], PATHS["NodeSet"]):
        _, answer = await shared_stage.post(path, questions()[0][1])
        said.append(json.dumps(answer))
    process = shared_stage.process
    await eventually(lambda: process.logged("denied", uid="hidden-list"), "the last of them are logged")
    _, metrics = await process.get("metrics", "/metrics")
    everything = "\n".join((*said, process.text(), metrics))
    assert 'slurm_operator_admission_total{kind="Secret",operation="UPDATE",verdict="denied"}' in metrics
    for hidden in (HIDDEN, HIDDEN[:7], encoded(HIDDEN), encoded(HIDDEN)[:10]):
        assert hidden not in everything
