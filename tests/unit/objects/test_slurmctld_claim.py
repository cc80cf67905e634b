"""What becomes of a changed wish for slurmctld's volume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api.reasons import Reason
from slurm_operator.objects import slurmctld
from slurm_operator.objects.slurm_conf import SlurmCluster
from slurm_operator.objects.slurmctld_claim import Growth, growths, keep_claims
from tests.support.objects.resources import controller, found

if TYPE_CHECKING:
    from slurm_operator.objects.desired import Manifest

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}


def _workload(**persistence: Any) -> Manifest:
    return slurmctld.stateful_set(SlurmCluster(controller(persistence=persistence)), found())


def _live(**spec: Any) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "statesave", "namespace": "NS"},
            "spec": {**CLAIM, "volumeMode": "Filesystem", **spec},
            "status": {"phase": "Pending"},
        }
    ]


def _volumes(**persistence: Any) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = _workload(**persistence)["spec"]["template"]["spec"]["volumes"]
    return volumes


def test_the_templates_of_a_running_stateful_set_stay() -> None:
    """An existing StatefulSet is updated with the templates it has, since others would be refused."""
    kept, problems = keep_claims(_workload(), _live())
    assert kept["spec"]["volumeClaimTemplates"] == _live()
    assert kept["spec"]["template"] == _workload()["spec"]["template"]
    assert problems == ()


@pytest.mark.parametrize("storage", ["4096Mi", 4294967296])
def test_another_spelling_is_no_change(storage: Any) -> None:
    """The same amount in other words is no change."""
    assert keep_claims(_workload(resources={"requests": {"storage": storage}}), _live())[1] == ()


@pytest.mark.parametrize(
    ("wish", "live", "fields"),
    [
        ({"storageClassName": "fast"}, {}, ["spec.persistence.storageClassName"]),
        ({}, {"storageClassName": "fast"}, ["spec.persistence.storageClassName"]),
        ({"accessModes": ["ReadWriteMany"]}, {}, ["spec.persistence.accessModes"]),
        ({"resources": {"requests": {"storage": "1Gi"}}}, {}, ["spec.persistence.resources"]),
        ({"resources": {"requests": {"storage": "9Gi"}}}, {}, []),
        ({"existingClaim": "mine"}, {}, ["spec.persistence"]),
        ({"enabled": False}, {}, ["spec.persistence"]),
    ],
)
def test_difference_7_a_claim_that_cannot_change_is_a_problem(
    wish: dict[str, Any], live: dict[str, Any], fields: list[str]
) -> None:
    """A wish that cannot be fulfilled names its field; more space is no such wish."""
    problems = keep_claims(_workload(**wish), _live(**live))[1]
    assert [(problem.reason, problem.field) for problem in problems] == [
        (Reason.IMMUTABLE_FIELD, field) for field in fields
    ]


@pytest.mark.parametrize("wish", [{"existingClaim": "mine"}, {"enabled": False}])
def test_a_wish_that_cannot_be_fulfilled_restarts_nothing(wish: dict[str, Any]) -> None:
    """The pods keep the claim of the StatefulSet, so their template stays as it is."""
    kept, _ = keep_claims(_workload(**wish), _live())
    assert kept["spec"]["template"] == _workload()["spec"]["template"]


@pytest.mark.parametrize("before", [{"existingClaim": "mine"}, {"enabled": False}])
def test_no_claim_where_one_is_wanted(before: dict[str, Any]) -> None:
    """A StatefulSet that was made without a claim cannot get one; its pods keep the volume that they have."""
    kept, problems = keep_claims(_workload(), [], _volumes(**before))
    assert "volumeClaimTemplates" not in kept["spec"]
    assert [problem.field for problem in problems] == ["spec.persistence"]
    assert kept["spec"]["template"] == _workload(**before)["spec"]["template"]


@pytest.mark.parametrize("wish", [{"existingClaim": "mine"}, {"existingClaim": "other"}])
def test_a_volume_that_no_claim_template_makes_can_be_another_one(wish: dict[str, Any]) -> None:
    """Without claim templates nothing is fixed: the volume of the spec is used."""
    kept, problems = keep_claims(_workload(**wish), [], _volumes(enabled=False))
    assert kept == _workload(**wish)
    assert problems == ()


@pytest.mark.parametrize(
    ("wanted", "has", "grows"),
    [("8Gi", "4Gi", True), ("4Gi", "4Gi", False), ("4Gi", "8Gi", False), ("5G", "4Gi", True)],
)
def test_difference_7_claims_grow(wanted: str, has: str, grows: bool) -> None:  # noqa: FBT001 - what is expected
    """A claim that asks for less than the spec is to grow; none shrinks, and none that is not there."""
    workload = _workload(resources={"requests": {"storage": wanted}})
    claim = "statesave-slurm-controller-0"
    assert growths(workload, {claim: has}) == ((Growth(claim, wanted),) if grows else ())
    assert growths(workload, {}) == ()
