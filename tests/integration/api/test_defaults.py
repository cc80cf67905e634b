"""What the API server stores: equal to what it stored with the reference's definitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.golden import CASES, NAMES, Case
from tests.support.manifests import GOOD, manifest

if TYPE_CHECKING:
    from kubebox import Box
    from tests.integration.api.conftest import Kubectl


def test_definitions_are_structural_and_established(slurm_box: Box) -> None:
    """The API server finds nothing to complain about in any definition."""
    definitions = json.loads(slurm_box.kubectl("get", "crd", "--output", "json"))["items"]
    ours = [item for item in definitions if item["spec"]["group"] == "slinky.slurm.net"]
    assert len(ours) == 7
    for item in ours:
        conditions = {condition["type"]: condition["status"] for condition in item["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}, item["metadata"]["name"]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_stored_objects_equal_those_of_the_reference(kubectl: Kubectl, case: Case) -> None:
    """What is stored for each recorded manifest is, to the field, what the reference's definitions stored."""
    kubectl.apply(*case.inputs)
    assert case.stored
    for expected in case.stored:
        stored = kubectl.get(expected["kind"].lower(), expected["metadata"]["name"])
        assert stored["spec"] == expected["spec"]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_status_of_the_reference_is_accepted(kubectl: Kubectl, case: Case) -> None:
    """A status that the reference wrote can be stored as it is."""
    kubectl.apply(*case.inputs)
    for recorded in case.stored:
        if recorded["status_"]:
            target = (recorded["kind"].lower(), recorded["metadata"]["name"])
            body = json.dumps({"status": recorded["status_"]})
            kubectl("patch", *target, "--subresource=status", "--type=merge", "--patch", body)
            stored = kubectl.get(*target)["status"]
            # The default of a status that no operator has written yet, where the reference writes none.
            assert {"observedGeneration": -1, **recorded["status_"]} == {"observedGeneration": -1, **stored}


@pytest.mark.parametrize(
    ("kind", "spec", "path", "expected"),
    [
        ("Controller", {"persistence": {}}, "persistence", {"enabled": True}),
        (
            "Controller",
            {"metrics": {"serviceMonitor": {}}},
            "metrics",
            {"enabled": False, "serviceMonitor": {"enabled": False}},
        ),
        ("Controller", {"accountingRef": {}}, "accountingRef", {"name": ""}),
        ("Controller", {"ha": {}}, "ha", {"enabled": False, "backups": 1}),
        ("Controller", {"configFileRefs": None}, "configFileRefs", None),
        ("NodeSet", {"updateStrategy": {}}, "updateStrategy", {"type": "RollingUpdate"}),
        (
            "NodeSet",
            {"updateStrategy": {"rollingUpdate": {}, "scheduledUpdate": {}}},
            "updateStrategy",
            {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "25%"},
                "scheduledUpdate": {"duration": "30m"},
            },
        ),
        (
            "NodeSet",
            {"persistentVolumeClaimRetentionPolicy": {}},
            "persistentVolumeClaimRetentionPolicy",
            {"whenDeleted": "Retain", "whenScaled": "Retain"},
        ),
        ("NodeSet", {"partition": {}}, "partition", {"enabled": False}),
        ("NodeSet", {"template": None, "slurmd": None}, "slurmd", "absent"),
        ("NodeSet", {"volumeClaimTemplates": None}, "volumeClaimTemplates", None),
    ],
)
def test_nested_defaults(kubectl: Kubectl, kind: str, spec: dict[str, Any], path: str, expected: Any) -> None:
    """A default inside an object is filled in when the object is there, and never creates the object."""
    kubectl.create(manifest(kind, GOOD[kind] | spec))
    assert kubectl.get(kind.lower(), "x")["spec"].get(path, "absent") == expected
