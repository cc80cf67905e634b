"""How the kinds look through kubectl: scale, short names, columns, explain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.manifests import GOOD, V1BETA1, edited, manifest

if TYPE_CHECKING:
    from tests.integration.api.conftest import Kubectl


@pytest.mark.parametrize(("kind", "path"), [("nodeset", "slurmd"), ("loginset", "login")])
def test_scale_subresource(kubectl: Kubectl, kind: str, path: str) -> None:
    """kubectl scale changes spec.replicas, and autoscalers find the pods through status.selector."""
    name = {"nodeset": "NodeSet", "loginset": "LoginSet"}[kind]
    kubectl.apply(manifest(name, GOOD[name]))
    kubectl("scale", kind, "x", "--replicas=5")
    assert kubectl.get(kind, "x")["spec"]["replicas"] == 5
    selector = f"app.kubernetes.io/instance=x,app.kubernetes.io/name={path}"
    status = {"replicas": 4, "selector": selector} | ({"nodeSetHash": "abc"} if kind == "nodeset" else {})
    kubectl(
        "patch", kind, "x", "--subresource=status", "--type=merge", "--patch", json.dumps({"status": status})
    )
    raw = f"/apis/{V1BETA1}/namespaces/{kubectl.namespace}/{kind}s/x/scale"
    scale = json.loads(kubectl("get", "--raw", raw))
    assert (scale["spec"], scale["status"]) == ({"replicas": 5}, {"replicas": 4, "selector": selector})


@pytest.mark.parametrize(
    ("short", "kind"),
    [
        ("slurmctld", "Controller"),
        ("nss", "NodeSet"),
        ("slurmd", "NodeSet"),
        ("lss", "LoginSet"),
        ("sackd", "LoginSet"),
        ("slurmdbd", "Accounting"),
        ("slurmrestd", "RestApi"),
        ("jwt", "Token"),
    ],
)
def test_short_names(kubectl: Kubectl, short: str, kind: str) -> None:
    """Each kind answers to the name of its daemon."""
    kubectl.apply(manifest(kind, GOOD[kind]))
    assert kubectl.get(short, "x")["kind"] == kind


def test_all_kinds_show_in_one_list(kubectl: Kubectl) -> None:
    """`kubectl get slurm` lists the objects of every kind."""
    kubectl.apply(*(edited(kind, {}) for kind in GOOD))
    listed = set(kubectl("get", "slurm", "--output", "name").split())
    assert {name.split(".")[0] for name in listed} == {kind.lower() for kind in GOOD}


_COLUMNS = {
    "Accounting": (["NAME", "READY", "AGE"], ["NAME", "READY", "REASON", "AGE"]),
    "Cluster": (["NAME", "READY", "AGE"], ["NAME", "READY", "HEALTHY", "REASON", "AGE"]),
    "Controller": (["NAME", "READY", "AGE"], ["NAME", "READY", "REASON", "AGE"]),
    "LoginSet": (["NAME", "REPLICAS", "READY", "AGE"], ["NAME", "REPLICAS", "READY", "REASON", "AGE"]),
    "NodeSet": (
        ["NAME", "DESIRED", "REPLICAS", "UPDATED", "READY", "HEALTHY", "AGE"],
        [
            "NAME",
            "DESIRED",
            "REPLICAS",
            "UPDATED",
            "READY",
            "HEALTHY",
            "IDLE",
            "ALLOCATED",
            "DOWN",
            "DRAIN",
            "POWER",
            "REASON",
            "AGE",
        ],
    ),
    "RestApi": (["NAME", "READY", "AGE"], ["NAME", "READY", "REASON", "AGE"]),
    "Token": (["NAME", "USER", "IAT", "READY", "AGE"], ["NAME", "USER", "IAT", "READY", "REASON", "AGE"]),
}


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_ready_condition_shows_in_columns(kubectl: Kubectl, kind: str) -> None:
    """The Ready condition of every kind is in `kubectl get`, and its reason in the wide form."""
    kubectl.apply(edited(kind, {}))
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "WaitingForTest",
        "message": "the test has not looked yet",
        "lastTransitionTime": "2026-12-01T04:00:00Z",
    }
    status = {"conditions": [condition], "observedGeneration": 1}
    status |= {"NodeSet": {"nodeSetHash": "h", "selector": "s"}, "LoginSet": {"selector": "s"}}.get(kind, {})
    patch = json.dumps({"status": status})
    kubectl("patch", kind.lower(), "x", "--subresource=status", "--type=merge", "--patch", patch)
    narrow, wide = (kubectl("get", kind.lower(), *form).splitlines() for form in ((), ("--output", "wide")))
    assert (narrow[0].split(), wide[0].split()) == _COLUMNS[kind]
    assert "WaitingForTest" not in narrow[1]
    assert "WaitingForTest" in wide[1]
    assert "False" in wide[1]


def test_conditions_of_two_owners_live_side_by_side(kubectl: Kubectl) -> None:
    """Two managers that each apply one condition keep each other's, since the list is keyed by type."""
    kubectl.apply(manifest("RestApi", GOOD["RestApi"]))
    for kind in ("Ready", "Other"):
        condition = {
            "type": kind,
            "status": "True",
            "reason": "Fine",
            "message": "",
            "lastTransitionTime": "2026-12-01T04:00:00Z",
        }
        body = {
            "apiVersion": V1BETA1,
            "kind": "RestApi",
            "metadata": {"name": "x"},
            "status": {"conditions": [condition]},
        }
        kubectl(
            *("apply", "--server-side", "--subresource=status", "--field-manager", kind.lower()),
            *("--filename", "-"),
            stdin=json.dumps(body),
        )
    stored = kubectl.get("restapi", "x")["status"]["conditions"]
    assert [condition["type"] for condition in stored] == ["Ready", "Other"]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("nodesets", "never removes a pod while a"),
        ("nodesets.spec.updateStrategy", "The right choice unless you have a"),
        ("nodesets.spec.updateStrategy", "      updateStrategy:\n        type: RollingUpdate\n"),
        ("nodesets.spec.updateStrategy.type", "    OnDelete\n    ScheduledUpdate\n"),
        ("nodesets.spec.scalingMode", "- DaemonSet runs one worker on every Kubernetes node"),
        ("controllers.spec.persistence.enabled", "It cannot be changed after creation."),
        ("controllers.spec.ha", "persistence.existingClaim"),
        ("clusters.spec.server", "http://slurm-restapi.slurm:6820"),
        ("tokens.spec.lifetime", "15 minutes when unset"),
    ],
)
def test_kubectl_explain_teaches(kubectl: Kubectl, field: str, words: str) -> None:
    """kubectl explain tells an administrator what a field does, with its lists and examples intact."""
    assert words in kubectl.eventually(("explain", field), lambda output: words in output)
