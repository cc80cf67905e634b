"""Migrating a NodeSet whose revision Slinky slurm-operator made, as recorded from a real one."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.kube.manifests.revisions import go_json, hash_of, hash_revision
from slurm_operator.kube.models.kinds import ControllerRevision
from slurm_operator.kube.runtime.revision_history import HistoryOwner, HistoryPlan, plan_history
from tests.fixtures.golden import CASES

if TYPE_CHECKING:
    from collections.abc import Callable

LABELS = {"app.kubernetes.io/instance": "gpu", "app.kubernetes.io/name": "slurmd"}
OWNER = HistoryOwner("slinky.slurm.net/v1beta1", "NodeSet", "slurm", "gpu", "gpu-uid", LABELS)
ZERO_FIELDS = ("ordinalPadding", "oversubscribeNode")

CASE = next(case for case in CASES if case.name == "06-nodeset-rich")
RECORDED = next(item for item in CASE.made if item["kind"] == "ControllerRevision")
STATUS = next(item["status_"] for item in CASE.stored if item["metadata"]["name"] == "gpu")
HASH = str(STATUS["nodeSetHash"])


def go_revision(**metadata: Any) -> ControllerRevision:
    """Return the recorded revision as the API server would give it back to this owner."""
    recorded = {**RECORDED["metadata"], "uid": "r", "resourceVersion": "5", "namespace": "slurm"}
    recorded["ownerReferences"] = [OWNER.reference()]
    return msgspec.convert({**RECORDED, "metadata": {**recorded, **metadata}}, ControllerRevision)


def decide(revision: ControllerRevision, data: Any, **keywords: Any) -> HistoryPlan:
    return plan_history(OWNER, [revision], data, live={HASH}, limit=0, zero_fields=ZERO_FIELDS, **keywords)


def edited(edit: Callable[[Any], object]) -> Any:
    """Return the recorded data after an edit of their spec."""
    data = copy.deepcopy(RECORDED["data"])
    edit(data["spec"])
    return data


# What a user may write and Go's types drop, so that Slinky slurm-operator's revision does not have it.
WRITTEN_OUT: dict[str, Callable[[Any], object]] = {
    "hostNetwork": lambda spec: spec["template"]["spec"].update(hostNetwork=False),
    "readOnly": lambda spec: spec["slurmd"]["volumeMounts"][0].update(readOnly=False),
    "initialDelaySeconds": lambda spec: spec["slurmd"]["livenessProbe"].update(initialDelaySeconds=0),
    "workingDir": lambda spec: spec["slurmd"].update(workingDir=""),
    "unknown field": lambda spec: spec["template"]["spec"].update(nodeSelectr={"a": "b"}),
}


def test_the_recording_is_the_one_that_pods_carry() -> None:
    """The hash in the recorded status is the label of the recorded revision and the hash of its data."""
    assert hash_of(go_revision()) == HASH == hash_revision(go_json(RECORDED["data"]), 0)


@pytest.mark.parametrize("edit", WRITTEN_OUT.values(), ids=WRITTEN_OUT)
def test_a_status_for_this_generation_is_believed(edit: Callable[[Any], object]) -> None:
    """Values that Go dropped from its revision do not replace the workers that the status calls current."""
    data = edited(edit)
    decided = decide(go_revision(), data, trusted=HASH)
    assert decided.create is None
    assert decided.current == go_revision()
    assert decided.current_hashes == {HASH}
    assert decide(go_revision(), data).create is not None


def test_the_note_is_a_well_known_annotation() -> None:
    """What a revision stands for is written under the name that the API knows for it."""
    assert OWNER.digest_annotation == wellknown.ANNOTATION_REVISION_STANDS_FOR


@pytest.mark.parametrize("edit", WRITTEN_OUT.values(), ids=WRITTEN_OUT)
def test_what_the_status_said_is_kept(edit: Callable[[Any], object]) -> None:
    """After the migration a new generation with the same template, such as a scaling, changes no revision."""
    data = edited(edit)
    (patch,) = decide(go_revision(), data, trusted=HASH).patches
    assert patch.body["metadata"]["labels"] == LABELS
    taken_over = go_revision(
        labels={**RECORDED["metadata"]["labels"], **LABELS},
        annotations=patch.body["metadata"]["annotations"],
    )
    decided = decide(taken_over, data)
    assert decided.settled
    assert decided.current_hashes == {HASH}
    assert decide(taken_over, data, trusted=HASH).settled


def test_a_real_change_after_the_takeover_is_seen() -> None:
    """What was kept speaks for one content only; another makes a new revision."""
    data = edited(WRITTEN_OUT["hostNetwork"])
    (patch,) = decide(go_revision(), data, trusted=HASH).patches
    taken_over = go_revision(annotations=patch.body["metadata"]["annotations"])
    changed = edited(lambda spec: spec["template"]["spec"].update(hostNetwork=True))
    decided = decide(taken_over, changed)
    assert decided.create is not None
    assert decided.current_hashes == frozenset()


def test_equal_content_needs_no_note() -> None:
    """A revision that says the same by itself gets its labels and nothing else."""
    (patch,) = decide(go_revision(), RECORDED["data"], trusted=HASH).patches
    assert patch.body == {"metadata": {"uid": "r", "labels": LABELS}}


def test_a_hash_without_revision_is_no_reason_to_trust() -> None:
    """Where the revision that the status names is gone, a new one is made."""
    assert decide(go_revision(), {"spec": {}}, trusted="other").create is not None


def test_an_orphan_of_a_deleted_set_is_taken_over() -> None:
    """After a deletion with --cascade=orphan the set recreated uses the old revision, and its pods stay."""
    orphan = go_revision(ownerReferences=[])
    respelled = edited(lambda spec: spec["slurmd"]["resources"]["limits"].update(cpu=3.5))
    for data in (RECORDED["data"], respelled):
        decided = decide(orphan, data)
        assert decided.create is None
        assert decided.current_hashes == {HASH}
        (patch,) = decided.patches
        assert patch.body["metadata"]["ownerReferences"] == [OWNER.reference()]
        assert patch.body["metadata"]["labels"] == LABELS


def test_an_orphan_with_other_content_is_left_alone() -> None:
    """An orphan that only has a fitting name is neither adopted nor deleted."""
    decided = decide(go_revision(ownerReferences=[]), {"spec": {}}, trusted=HASH)
    assert decided.create is not None
    assert decided.patches == ()
    assert decided.delete == ()
