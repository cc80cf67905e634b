"""The sentences of the webhook: one for each refused object, warning and failed lookup."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import KINDS, Controller, NodeSet
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.errors import ConnectionFailed, DeadlineExceeded, Forbidden
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.webhook.certificates import Certificates
from slurm_operator.webhook.lookups import Lookups, reason
from slurm_operator.webhook.rules import keys, keysets, review
from slurm_operator.webhook.rules.admission import Undecodable, decode, validate
from slurm_operator.webhook.rules.findings import Finding, Findings
from slurm_operator.webhook.rules.world import Running, Unreadable, World
from slurm_operator.webhook.validate import Validator
from tests.support import message_golden
from tests.support.webhook.key_set_texts import NOW, UNUSABLE, encoded, entry, written
from tests.support.webhook.rule_cases import GOOD, HA, key, manifest, read
from tests.support.webhook.rule_results import validated
from tests.support.webhook.rule_table import DENIED, WARNED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_operator.kube.models.meta import Object

GROUP = NodeSet.RESOURCE.group
UNKNOWN = Unreadable(reason(DeadlineExceeded("slow")))


def envelope(**request: Any) -> bytes:
    body = {"apiVersion": review.VERSIONS[0], "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode()


def line(kind: str, finding: Finding) -> str:
    return f"{kind} {finding.path} ({finding.cause.value}): {finding.message}"


def refusals() -> Iterator[str]:
    """Yield what is said of each refused object, of what cannot be read, and of lookups without an answer."""
    for case in DENIED:
        for error in validated(case)[0]:
            yield line(case.kind, error)
    for kind, edits, world in (
        ("Controller", {"configFileRefs": [{"name": "files"}]}, World(config_maps={"files": UNKNOWN})),
        ("Controller", HA, World(claims={"state": UNKNOWN})),
    ):
        for error in validate(read(manifest(kind, edits)), None, world)[0]:
            yield line(kind, error)
    mistyped: dict[str, Any] = {"replicas": "three", "template": {"spec": []}, "volumeClaimTemplates": [5]}
    for field, value in mistyped.items():
        with pytest.raises(Undecodable) as refused:
            decode(NodeSet, json.dumps(manifest("NodeSet", {field: value})).encode())
        yield line("NodeSet", refused.value.finding)
    for raw in (b"", b"[]", b"{", b'{"spec": ' + b"[" * 100_000):
        with pytest.raises(Undecodable) as refused:
            decode(Controller, raw)
        yield line("Controller", refused.value.finding)


def warnings() -> Iterator[str]:
    """Yield what is said of each object that is admitted with a warning."""
    for case in WARNED:
        for warning in validated(case)[1]:
            yield f"{case.kind} {warning}"
    for warning in validate(read(manifest("NodeSet")), None, World(node_sets=UNKNOWN))[1]:
        yield f"NodeSet {warning}"


def key_changes() -> Iterator[str]:
    """Yield what is said of changes to a Secret that daemons use."""
    good = encoded(written(entry("a")))
    losses = [
        keys.REPLACED,
        keys.GONE,
        *(way for way in keysets.STEPS.values() if way is not None),
        *(keysets.lost(good, encoded(text), NOW) for text, _ in UNUSABLE),
    ]
    for loss in losses:
        assert loss is not None
        data_key = "slurm.key" if loss is keys.REPLACED else "slurm.jwks"
        controller = read(manifest("Controller", {"slurmKeyRef": key("keys", data_key)}, "slurm"))
        assert isinstance(controller, Controller)
        # Of a set that cannot be used, the workers do not change what is said.
        for worker in ("gpu-0",) if loss.fault else ("gpu-0", "", UNKNOWN):
            yield from _key_change(data_key, loss, World(clusters=(Running(controller, worker),)))
    yield from _key_change("slurm.key", keys.REPLACED, World(clusters=UNKNOWN))


def _key_change(data_key: str, loss: keysets.Loss, world: World) -> Iterator[str]:
    findings = Findings()
    keys.check_loss("keys", {data_key: loss}, world, findings)
    for error in findings.errors.values():
        yield line("Secret", error)


def envelopes() -> Iterator[str]:
    """Yield what is said of requests that cannot be answered."""
    for body in (
        b"{",
        b"[" * 100_000,
        json.dumps({"apiVersion": "v1", "kind": "Pod", "request": {"uid": "u"}}).encode(),
        envelope(uid=""),
    ):
        with pytest.raises(review.ReviewError) as refused:
            review.parse(body)
        yield f"AdmissionReview: {refused.value}"
    for error in (DeadlineExceeded("slow"), Forbidden("no", status=403), ConnectionFailed("refused")):
        yield f"Lookup ({type(error).__name__}): {reason(error)}"


async def verdicts() -> list[str]:
    """Return what is said where the webhook itself is wrong: its path, its request, or a rule that fails."""
    # A client that was never opened fails in a way that no rule foresees.
    validator = Validator(Lookups(Client(ClientConfig(server="https://127.0.0.1:1"))))
    node_set = {
        "operation": "CREATE",
        "object": manifest("NodeSet"),
        "kind": {"group": GROUP, "kind": "NodeSet"},
    }
    asked: list[tuple[type[Object], dict[str, Any]]] = [
        (NodeSet, node_set),
        (NodeSet, node_set | {"kind": {"group": GROUP, "kind": "Controller"}}),
        (Secret, {"operation": "UPDATE", "object": {}, "kind": {"kind": "Secret"}}),
    ]
    found = []
    for kind, request in asked:
        verdict = await validator.validate(kind, review.parse(envelope(uid="u-1", **request)).request, 1.0)
        found += [line(kind.RESOURCE.kind, error) for error in verdict.errors]
    return found


async def test_webhook(tmp_path: Path) -> None:
    """Each sentence is as in the golden file."""
    certificates = Certificates(tmp_path, period=1.0)
    certificates.refresh()
    problem = certificates.problem.replace(str(tmp_path), "/certificates")
    message_golden.compare(
        "Webhook",
        [
            *refusals(),
            *warnings(),
            *key_changes(),
            *envelopes(),
            *await verdicts(),
            f"Certificates: {problem}",
        ],
    )


def test_every_kind_is_rendered() -> None:
    """No kind is left out of the tables that the sentences are rendered from."""
    assert {case.kind for case in DENIED} == {kind.RESOURCE.kind for kind in KINDS} == set(GOOD)
