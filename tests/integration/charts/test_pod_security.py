"""Which Pod Security level a namespace needs for the pods that the charts make themselves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kubebox import BoxError
from tests.support.charts.helm import OPERATOR, SLURM, render

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.charts.helm import Helm

LEVELS = ("restricted", "baseline", "privileged")
# As SECURITY.md has it. What the operator makes is in tests/integration/objects/test_pod_security.py.
NEEDED = {
    "slurm-operator": "restricted",
    "slurm-operator-webhook": "restricted",
    "slurm-operator-test": "restricted",
    "slurm-operator-webhook-test": "restricted",
    "slurm-mariadb": "baseline",
}


def pods(helm: Path) -> dict[str, dict[str, Any]]:
    """Return the spec of every pod of the charts, by the name of the object that has it."""
    objects = [
        *render(helm, OPERATOR, release="slurm-operator"),
        *render(helm, SLURM, "--set", "accounting.enabled=true,mariadb.enabled=true"),
    ]
    templates = {item["metadata"]["name"]: item for item in objects if item["kind"] == "Pod"}
    for item in objects:
        if item["kind"] in ("Deployment", "StatefulSet"):
            templates[item["metadata"]["name"]] = item["spec"]["template"]
    return {name: item["spec"] for name, item in templates.items()}


def test_every_pod_of_the_charts_is_known(helm_program: Path) -> None:
    """No pod of a chart is missing in the table."""
    assert pods(helm_program).keys() == NEEDED.keys()


@pytest.mark.parametrize("name", NEEDED)
def test_the_level_that_a_pod_needs(helm: Helm, name: str) -> None:
    """The API server admits a pod at the level that the documentation names, and at none below."""
    spec = pods(helm.program)[name]
    # Nothing mounts it: accounts and volumes are not what a level is about.
    spec = {key: value for key, value in spec.items() if key != "serviceAccountName"}
    mounted = {volume["name"] for volume in spec.get("volumes", [])}
    for container in spec["containers"]:
        # The volumes of a StatefulSet come from its claims.
        container["volumeMounts"] = [
            item for item in container.get("volumeMounts", []) if item["name"] in mounted
        ]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    admitted = []
    for level in LEVELS:
        label = f"pod-security.kubernetes.io/enforce={level}"
        helm.box.kubectl("label", "namespace", helm.namespace, label, "--overwrite")
        try:
            helm.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(body))
        except BoxError as error:
            assert "violates PodSecurity" in str(error)  # noqa: PT017 - else the pod itself is wrong
        else:
            admitted.append(level)
    assert admitted[0] == NEEDED[name]
    assert admitted == list(LEVELS[LEVELS.index(NEEDED[name]) :])
