"""The envelope of questions and answers, the paths, the time, and the patch of a Binding."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from slurm_operator.api import KINDS
from slurm_operator.kube.errors import ConnectionFailed, DeadlineExceeded, Forbidden, KubeError
from slurm_operator.kube.models.kinds import Node, Pod, Secret
from slurm_operator.kube.models.meta import ObjectMeta
from slurm_operator.webhook.binding import Binding, is_worker, topology_patch
from slurm_operator.webhook.lookups import reason
from slurm_operator.webhook.rules import review
from slurm_operator.webhook.rules.admission import Verdict
from slurm_operator.webhook.rules.findings import CauseType, Finding
from slurm_operator.webhook.rules.registration import BINDING_PATH, WEBHOOKS
from slurm_operator.webhook.server import budget

KEY = "topology.slinky.slurm.net/spec"


def ask(version: str = "v1", **request: Any) -> review.Review:
    body = {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "request": {"uid": "u", "name": "x", "kind": {"group": "g", "kind": "NodeSet"}, **request},
    }
    return review.parse(json.dumps(body).encode())


def test_every_kind_has_a_path_of_the_reference() -> None:
    """Names and paths are those that existing configurations and the chart have."""
    assert {webhook.name: webhook.path for webhook in WEBHOOKS} == {
        f"{kind}-{version}.kb.io": f"/validate-slinky-slurm-net-{version}-{kind}"
        for kind, version in (
            ("accounting", "v1beta1"),
            ("cluster", "v1alpha1"),
            ("controller", "v1beta1"),
            ("loginset", "v1beta1"),
            ("nodeset", "v1beta1"),
            ("restapi", "v1beta1"),
            ("token", "v1beta1"),
        )
    } | {"secret-v1.kb.io": "/validate--v1-secret"}
    assert {webhook.kind for webhook in WEBHOOKS} == {*KINDS, Secret}
    assert BINDING_PATH == "/mutate--v1-binding"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_refusal_carries_every_mistake_twice(version: str) -> None:
    """Each mistake is in the sentence and among the causes, with field and kind of mistake."""
    errors = (Finding("spec.a", "is bad", CauseType.REQUIRED), Finding("spec.b", "is worse"))
    answer = json.loads(review.answer(ask(version), Verdict(errors, ("careful",))))
    assert answer == {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {
            "uid": "u",
            "allowed": False,
            "warnings": ["careful"],
            "status": {
                "status": "Failure",
                "code": 422,
                "reason": "Invalid",
                "message": "spec.a: is bad; spec.b: is worse",
                "details": {
                    "name": "x",
                    "group": "g",
                    "kind": "NodeSet",
                    "causes": [
                        {"reason": "FieldValueRequired", "field": "spec.a", "message": "is bad"},
                        {"reason": "FieldValueInvalid", "field": "spec.b", "message": "is worse"},
                    ],
                },
            },
        },
    }


def test_no_object_is_none() -> None:
    """A null and an absent object are the same: there is none."""
    assert (ask(object=None).request.new, ask().request.new) == (None, None)
    assert ask(object={"a": 1}).request.new == b'{"a": 1}'


def test_a_patch_is_encoded() -> None:
    """A patch is JSON in base64, and no patch is no word of one."""
    patch = [{"op": "add", "path": "/a", "value": 1}]
    response = json.loads(review.patched(ask(), patch))["response"]
    assert json.loads(base64.b64decode(response["patch"])) == patch
    assert response["patchType"] == "JSONPatch"
    assert json.loads(review.patched(ask(), []))["response"] == {"uid": "u", "allowed": True}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 8), ("1s", 0.8), ("1m", 24), ("0s", 0.08), ("-5s", 0.08), ("soon", 8), ("", 8), (None, 8)],
)
def test_the_answer_comes_before_the_api_server_gives_up(text: str | None, seconds: float) -> None:
    """The time for an answer is less than the API server grants, whatever its query says."""
    assert budget({} if text is None else {"timeout": text}) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DeadlineExceeded("slow"), "try again"),
        (Forbidden("no", status=403), "role"),
        (ConnectionFailed("refused"), "kubectl logs"),
    ],
)
def test_a_failed_lookup_says_what_to_do(error: KubeError, words: str) -> None:
    """A user whose write is refused because of a lookup learns whether to wait or to change a role."""
    assert words in reason(error)


# --- binding


def binding(**annotations: str) -> Binding:
    return Binding(metadata=ObjectMeta(name="p", annotations=annotations))


def pod(app: str = "slurmd", **annotations: str) -> Pod:
    return Pod(metadata=ObjectMeta(labels={"app.kubernetes.io/name": app}, annotations=annotations))


def node(topology: str | None) -> Node:
    return Node(metadata=ObjectMeta(annotations={} if topology is None else {KEY: topology}))


def test_topology_is_added_to_the_binding() -> None:
    """The annotation is added beside those that the scheduler gave, or as the first."""
    assert topology_patch(binding(), pod(), node("t")) == [
        {"op": "add", "path": "/metadata/annotations", "value": {KEY: "t"}}
    ]
    assert topology_patch(binding(a="b"), pod(**{KEY: "old"}), node("t")) == [
        {"op": "add", "path": "/metadata/annotations/topology.slinky.slurm.net~1spec", "value": "t"}
    ]


@pytest.mark.parametrize(
    ("own", "topology"), [({}, None), ({}, ""), ({KEY: "t"}, "t"), ({KEY: "mine"}, None)]
)
def test_nothing_is_taken_from_a_pod(own: dict[str, str], topology: str | None) -> None:
    """A node that says nothing, or nothing new, changes nothing."""
    assert topology_patch(binding(), pod(**own), node(topology)) == []


def test_only_workers_are_annotated() -> None:
    """Other pods of a Slurm cluster, and pods of others, are none of our business."""
    assert is_worker(pod())
    assert not any(map(is_worker, (pod("slurmctld"), pod("web"), Pod())))


def test_patches_are_of_the_binding_that_was_sent() -> None:
    """A Binding is read as the API server writes it."""
    text = b'{"metadata": {"name": "p", "creationTimestamp": null}, "target": {"kind": "Node", "name": "n"}}'
    read = msgspec.json.decode(text, type=Binding)
    assert (read.metadata.name, read.target.name) == ("p", "n")
