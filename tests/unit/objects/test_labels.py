"""The labels by which everything that the operator made is found."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec
import pytest

from slurm_operator.api import Token
from slurm_operator.controllers.token import token_secret
from slurm_operator.objects import labels, migration, slurmctld, slurmd_claims, slurmd_shared
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.fixtures.golden import CASES
from tests.support.objects.golden_cases import world
from tests.support.objects.recorded_workers import made_from
from tests.support.objects.resources import controller, found, node_set

if TYPE_CHECKING:
    from slurm_operator.objects.desired import Manifest
    from tests.fixtures.golden import Case

MANAGED_BY, PART_OF = "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of"
RECOMMENDED = {MANAGED_BY: "slurm-operator", PART_OF: "slurm"}
OF_THE_CHART = {"labels": {MANAGED_BY: "Helm", PART_OF: "slurm"}}


def _labels(item: Manifest) -> dict[str, str]:
    return {name: item["metadata"]["labels"].get(name, "") for name in RECOMMENDED}


def _name(item: Manifest) -> str:
    return f"{item['kind']}/{item['metadata']['name']}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_child_names_the_operator(case: Case) -> None:
    """Children of every kind carry both labels, and so do new workers."""
    made = world(case)
    items = [item for desired in made.desired() for item in desired.objects] + made_from(made)
    assert {_name(item): _labels(item) for item in items} == {_name(item): RECOMMENDED for item in items}


def test_the_secret_of_a_token_names_the_operator() -> None:
    """The Secret of a Token carries both labels, and keeps the token."""
    token = msgspec.convert(
        {"metadata": {"name": "t", "namespace": "NS", "uid": "u"}, "spec": {"username": "a"}}, Token
    )
    made = token_secret.desired(token, "value")
    assert _labels(made) == RECOMMENDED
    assert base64.b64decode(made["data"][token.secret_key]) == b"value"


def test_claims_of_workers_name_the_operator() -> None:
    """A PVC of a worker carries both labels; labels of its template win."""
    templates = [
        {"metadata": {"name": "a"}, "spec": {}},
        {"metadata": {"name": "b", "labels": {PART_OF: "mine"}}, "spec": {}},
    ]
    first, second = slurmd_claims.claims(node_set("workers", volumeClaimTemplates=templates), "0")
    assert _labels(first) == RECOMMENDED
    assert _labels(second) == RECOMMENDED | {PART_OF: "mine"}


def test_the_labels_of_a_user_win() -> None:
    """What is set on the custom resource, or for one child, stays; `Helm` manages only the former."""
    service = {"metadata": {"labels": {PART_OF: "front"}}}
    own = controller({"labels": {MANAGED_BY: "me", PART_OF: "platform"}}, service=service)
    assert _labels(slurmctld.internal_service(own)) == {MANAGED_BY: "me", PART_OF: "platform"}
    assert _labels(slurmctld.service(own)) == {MANAGED_BY: "me", PART_OF: "front"}
    assert _labels(slurmctld.service(controller(OF_THE_CHART))) == RECOMMENDED


def test_no_pod_template_and_no_selector_changes() -> None:
    """The labels are those of objects: templates, which restart daemons, and selectors have none of them."""
    made = slurmctld.stateful_set(SlurmCluster(controller()), found())
    assert _labels(made) == RECOMMENDED
    assert not RECOMMENDED.keys() & made["spec"]["template"]["metadata"]["labels"].keys()
    assert not RECOMMENDED.keys() & made["spec"]["selector"]["matchLabels"].keys()
    inherited = slurmctld.stateful_set(SlurmCluster(controller(OF_THE_CHART)), found())
    assert inherited["spec"]["template"]["metadata"]["labels"].items() >= OF_THE_CHART["labels"].items()
    budget = slurmd_shared.disruption_budget(node_set("workers"), [])
    assert not RECOMMENDED.keys() & budget["spec"]["selector"]["matchLabels"].keys()


def test_a_workload_without_the_labels_is_not_restarted() -> None:
    """A workload of an older version gets the labels and keeps its pod template."""
    now = migration.settle(slurmctld.stateful_set(SlurmCluster(controller()), found()), None)
    before = msgspec.json.decode(msgspec.json.encode(now))
    for name in RECOMMENDED:
        del before["metadata"]["labels"][name]
    assert migration.settle(slurmctld.stateful_set(SlurmCluster(controller()), found()), before) == now
    assert now["spec"]["template"] == before["spec"]["template"]
    assert labels.recommended({}) == RECOMMENDED
