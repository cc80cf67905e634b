"""What the API server refuses because it is too much; objects that are older than a limit."""

from __future__ import annotations

import copy
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from kubebox import BoxError
from slurm_operator.api import NodeSet
from slurm_operator.api.schema import crd
from tests.support.manifests import GOOD, V1BETA1, edited, key, manifest
from tests.support.processes import await_kinds

if TYPE_CHECKING:
    from tests.integration.api.conftest import Kubectl

MOST = 2**31 - 1
_DEADLINE = 60.0

# kind, edit, the field that the message must name
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("NodeSet", {"replicas": 65_537}, "spec.replicas"),
    ("NodeSet", {"ordinalPadding": 64}, "spec.ordinalPadding"),
    ("NodeSet", {"revisionHistoryLimit": 1_001}, "spec.revisionHistoryLimit"),
    ("NodeSet", {"extraConf": "x" * 65_537}, "spec.extraConf"),
    ("NodeSet", {"volumeClaimTemplates": [{}] * 129}, "spec.volumeClaimTemplates"),
    (
        "NodeSet",
        {"updateStrategy.scheduledUpdate.flags": ["x"] * 257},
        "spec.updateStrategy.scheduledUpdate.flags",
    ),
    (
        "NodeSet",
        {"updateStrategy.scheduledUpdate.flags": ["x" * 257]},
        "spec.updateStrategy.scheduledUpdate.flags[0]",
    ),
    (
        "NodeSet",
        {"template.metadata.labels": {f"k{n}": "" for n in range(1_025)}},
        "spec.template.metadata.labels",
    ),
    ("NodeSet", {"template.metadata.labels": {"k": "x" * 64}}, "spec.template.metadata.labels.k"),
    ("NodeSet", {"controllerRef": {"name": "x" * 254}}, "spec.controllerRef.name"),
    ("LoginSet", {"replicas": 4_097}, "spec.replicas"),
    ("LoginSet", {"extraSshdConfig": "x" * 524_289}, "spec.extraSshdConfig"),
    ("RestApi", {"replicas": MOST}, "spec.replicas"),
    ("RestApi", {"service": {"port": 65_536}}, "spec.service.port"),
    ("Controller", {"configFileRefs": [{"name": "c"}] * 257}, "spec.configFileRefs"),
    ("Controller", {"ha": {"backups": MOST}}, "spec.ha.backups"),
    (
        "Accounting",
        {"storageConfig": {"host": "x" * 2_049, "passwordKeyRef": key()}},
        "spec.storageConfig.host",
    ),
    ("Token", {"username": "x" * 254}, "spec.username"),
    ("Cluster", {"server": f"http://{'x' * 2_048}"}, "spec.server"),
]


@pytest.mark.parametrize(("kind", "edits", "field"), REFUSED)
def test_what_is_too_much_is_refused(
    dry_kubectl: Kubectl, kind: str, edits: dict[str, Any], field: str
) -> None:
    """A value beyond a limit is refused with the field and the limit in the message."""
    refusal = dry_kubectl.refusal(edited(kind, edits))
    assert f"{field}: " in refusal
    assert "Too long" in refusal or "Too many" in refusal or "less than or equal to" in refusal


@pytest.mark.parametrize("kind", ["NodeSet", "LoginSet"])
def test_kubectl_scale_keeps_the_limit(kubectl: Kubectl, kind: str) -> None:
    """The scale subresource refuses what the object itself refuses, and takes what it takes."""
    kubectl.apply(manifest(kind, GOOD[kind]))
    with pytest.raises(BoxError, match="less than or equal to"):
        kubectl("scale", f"{kind.lower()}/x", f"--replicas={MOST}")
    kubectl("scale", f"{kind.lower()}/x", "--replicas=4096")
    assert kubectl.get(kind.lower(), "x")["spec"]["replicas"] == 4096


@pytest.mark.parametrize("kind", ["NodeSet", "LoginSet"])
def test_the_controller_of_an_object_stays_without_a_webhook(kubectl: Kubectl, kind: str) -> None:
    """The API server refuses another controllerRef by itself, and still takes every other change."""
    kubectl.apply(manifest(kind, GOOD[kind]))
    patch = json.dumps({"spec": {"controllerRef": {"name": "other"}}})
    with pytest.raises(BoxError, match="controllerRef cannot be changed after creation"):
        kubectl("patch", kind.lower(), "x", "--type=merge", "--patch", patch)
    kubectl("patch", kind.lower(), "x", "--type=merge", "--patch", json.dumps({"spec": {"replicas": 3}}))


def test_the_pins_of_20000_workers_fit_into_one_object(kubectl: Kubectl) -> None:
    """The largest part of a status, the node of each worker of a pinned NodeSet, can be stored."""
    kubectl.apply(manifest("NodeSet", GOOD["NodeSet"]))
    pins = {str(number): f"ip-10-{number % 250}-{number % 199}-17.ec2.internal" for number in range(20_000)}
    status = {"ordinalToNode": pins, "nodeSetHash": "h", "selector": "s"}
    body = {"apiVersion": V1BETA1, "kind": "NodeSet", "metadata": {"name": "x"}, "status": status}
    kubectl(
        *("apply", "--server-side", "--subresource=status", "--filename", "-"),
        stdin=json.dumps(body),
    )
    assert len(kubectl.get("nodeset", "x")["status"]["ordinalToNode"]) == 20_000


# -------------------------------------------------------------------- objects that are older than a limit
GROUP = "limits.example.com"
_BOUNDS = {"maximum", "maxLength", "maxItems", "maxProperties", "x-kubernetes-validations"}


def _definition(*, bounded: bool) -> dict[str, Any]:
    """Return the CRD of NodeSets in a group of its own; unbounded, as it was before there were limits."""
    definition = copy.deepcopy(crd(NodeSet))
    # Names of its own, so that no other test means this kind.
    names = {"kind": "Older", "listKind": "OlderList", "plural": "olders", "singular": "older"}
    definition["metadata"]["name"] = f"olders.{GROUP}"
    definition["spec"] |= {"group": GROUP, "names": names}
    if not bounded:
        spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        _strip(spec)
    return definition


def _strip(schema: Any) -> None:
    if isinstance(schema, dict):
        for name in _BOUNDS & schema.keys():
            if not isinstance(schema[name], dict):
                del schema[name]
        for below in schema.values():
            _strip(below)


def test_objects_older_than_a_limit_can_be_changed_and_deleted(kubectl: Kubectl) -> None:
    """A NodeSet stored with too many replicas keeps them; status, labels, finalizers and deletion work."""
    name = f"olders.{GROUP}"
    kubectl("apply", "--server-side", "--filename", "-", stdin=json.dumps(_definition(bounded=False)))
    await_kinds(kubectl.box, f"crd/{name}")
    old = manifest("NodeSet", GOOD["NodeSet"] | {"replicas": MOST, "ordinalPadding": 100})
    old |= {"apiVersion": f"{GROUP}/v1beta1", "kind": "Older"}
    old["metadata"] |= {"finalizers": ["example.com/drain"]}
    kubectl.eventually_accepts(old)
    kubectl("apply", "--server-side", "--filename", "-", stdin=json.dumps(_definition(bounded=True)))
    _refuses(kubectl, name, {"spec": {"replicas": MOST - 1}})

    def patch(body: dict[str, Any], *more: str) -> None:
        kubectl("patch", name, "x", "--type=merge", "--patch", json.dumps(body), *more)

    patch({"metadata": {"labels": {"a": "b"}}})
    patch({"status": {"replicas": 1, "nodeSetHash": "h", "selector": "s"}}, "--subresource=status")
    patch({"spec": {"pinToNode": True}})
    kubectl("delete", name, "x", "--wait=false")
    patch({"metadata": {"finalizers": None}})
    kubectl.eventually(("get", name, "--output=name"), lambda output: "x" not in output.split("/"))


def _refuses(kubectl: Kubectl, kind: str, body: dict[str, Any]) -> None:
    """Wait until the API server works with the new definition."""
    deadline = time.monotonic() + _DEADLINE
    while True:
        try:
            kubectl("patch", kind, "x", "--type=merge", "--dry-run=server", "--patch", json.dumps(body))
        except BoxError as error:
            assert "less than or equal to" in str(error)  # noqa: PT017 - it is the answer that is waited for
            return
        assert time.monotonic() < deadline, "the API server still accepts what is beyond the limit"
        time.sleep(0.1)
