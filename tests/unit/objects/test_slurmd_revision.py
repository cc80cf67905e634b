"""The data of a NodeSet's revisions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.kube.manifests.revisions import go_json, hash_revision, same_data
from slurm_operator.kube.models.kinds import ControllerRevision
from slurm_operator.kube.runtime.revision_history import HistoryOwner, plan_history
from slurm_operator.objects.slurmd_revision import ZERO_FIELDS, revision_data, revision_labels, trusted_hash
from tests.fixtures.golden import CASES
from tests.support.objects.golden_cases import WORLDS, decode
from tests.support.objects.recorded_workers import nodesets, revision_hash
from tests.support.objects.resources import node_set

RECORDED = [(case.name, item) for case in CASES for item in case.made if item["kind"] == "ControllerRevision"]


@pytest.mark.parametrize(
    ("case", "recorded"), RECORDED, ids=[f"{case}-{item['metadata']['name']}" for case, item in RECORDED]
)
def test_revisions_are_those_of_the_reference(case: str, recorded: dict[str, Any]) -> None:
    """For every recorded NodeSet the data are the same bytes, and so the hash is the one that pods carry."""
    owner = recorded["metadata"]["ownerReferences"][0]["name"]
    (nodeset,) = (item for item in nodesets(WORLDS[case]) if item.metadata.name == owner)
    assert go_json(revision_data(nodeset)) == go_json(recorded["data"])
    assert f"{owner}-{revision_hash(nodeset)}" == recorded["metadata"]["name"]


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_defaults_of_the_api_server_change_nothing(name: str) -> None:
    """A NodeSet as a user wrote it and as the API server stores it stand for the same revision."""
    written = {item.metadata.name: revision_hash(item) for item in nodesets(WORLDS[name])}
    (case,) = (case for case in CASES if case.name == name)
    stored = [item for item in case.stored if item["kind"] == "NodeSet"]
    for item in stored:
        nodeset: Any = decode(item)
        assert hash_revision(go_json(revision_data(nodeset)), 0) == written[nodeset.metadata.name]
    assert len(stored) == len(written)


FIELDS: dict[str, Any] = {
    "extraConf": "Weight=1",
    "logfile": {"image": "l"},
    "ordinalPadding": 2,
    "oversubscribeNode": True,
    "slurmd": {"image": "s"},
    "ssh": {"enabled": True, "sssdConfRef": {"name": "s", "key": "k"}},
    "template": {"metadata": {"labels": {"a": "b"}}},
}
OUTSIDE: dict[str, Any] = {
    "controllerRef": {"name": "other"},
    "minReadySeconds": 5,
    "partition": {"enabled": True},
    "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
    "pinToNode": True,
    "pruneSlurmNodeRecords": "ScaledIn",
    "autoscaling": {"maxReplicas": 3},
    "replicas": 7,
    "revisionHistoryLimit": 3,
    "scalingMode": "DaemonSet",
    "updateStrategy": {"type": "OnDelete"},
    "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
    "workloadDisruptionProtection": False,
}


def test_every_field_is_decided_about() -> None:
    """A new field of the spec is part of a revision, or named here as one that shapes no pod."""
    fields = {field.encode_name for field in msgspec.structs.fields(type(node_set("gpu").spec))}
    assert fields == {*FIELDS, *OUTSIDE}
    assert not {*FIELDS} & {*OUTSIDE}


@pytest.mark.parametrize("field", FIELDS)
def test_what_shapes_a_worker_makes_a_revision(field: str) -> None:
    """A change of each of these fields is a new revision."""
    assert revision_hash(node_set("gpu", **{field: FIELDS[field]})) != revision_hash(node_set("gpu"))


@pytest.mark.parametrize("field", OUTSIDE)
def test_what_does_not_shape_a_worker_makes_none(field: str) -> None:
    """A change of each of these fields replaces no worker."""
    assert revision_hash(node_set("gpu", **{field: OUTSIDE[field]})) == revision_hash(node_set("gpu"))


def test_only_the_spec_counts() -> None:
    """Neither the name nor labels, annotations or status of a NodeSet are part of a revision."""
    gpu = node_set("gpu", status={"nodeSetHash": "x", "replicas": 3})
    named = msgspec.structs.replace(
        gpu,
        metadata=msgspec.structs.replace(gpu.metadata, name="x", annotations={"a": "b"}, labels={"c": "d"}),
    )
    assert revision_data(named) == revision_data(node_set("gpu"))


def test_spellings_that_go_drops_make_the_same_bytes() -> None:
    """Nulls, empty lists and numbers as quantities are written as Go's types write them."""
    plain = {"resources": {"limits": {"cpu": "4"}}, "image": "s"}
    respelled: dict[str, Any] = {
        "resources": {"limits": {"cpu": 4, "memory": None}},
        "image": "s",
        "args": [],
        "env": None,
    }
    template = {
        "spec": {"tolerations": [], "containers": [{"name": "a", "resources": {"limits": {"cpu": 1}}}]}
    }
    assert revision_hash(node_set("gpu", slurmd=plain)) == revision_hash(node_set("gpu", slurmd=respelled))
    containers = revision_data(node_set("gpu", template=template))["spec"]["template"]["spec"]
    assert containers == {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}


def test_ssh_that_is_written_out_as_off_still_counts_as_written() -> None:
    """SSH that names a Secret is part of a revision, with every field that Go writes, though it is off."""
    ssh = revision_data(node_set("gpu", ssh={"enabled": False, "sssdConfRef": {"name": "s", "key": "k"}}))[
        "spec"
    ]["ssh"]
    assert ssh == {"$patch": "replace", "enabled": False, "sssdConfRef": {"name": "s", "key": "k"}}
    assert (
        "ssh"
        not in revision_data(node_set("gpu", ssh={"enabled": False, "sssdConfRef": {"key": ""}}))["spec"]
    )


def test_zero_fields_are_those_that_go_always_writes() -> None:
    """Data that lack a field which Go always writes mean the same as with its zero."""
    data = revision_data(node_set("gpu"))
    without = {"spec": {key: value for key, value in data["spec"].items() if key not in ZERO_FIELDS}}
    assert data != without
    assert same_data(data, without, zero_fields=ZERO_FIELDS)


def test_the_status_is_believed_for_its_own_generation() -> None:
    """The hash in the status counts for the spec that it was computed for, and for no other."""
    gpu = node_set("gpu", status={"nodeSetHash": "x", "observedGeneration": 3})
    for generation, wanted in ((3, "x"), (4, "")):
        metadata = msgspec.structs.replace(gpu.metadata, generation=generation)
        assert trusted_hash(msgspec.structs.replace(gpu, metadata=metadata)) == wanted


@pytest.mark.parametrize(
    ("case", "recorded"), RECORDED, ids=[f"{case}-{item['metadata']['name']}" for case, item in RECORDED]
)
def test_taking_over_a_set_makes_no_revision(case: str, recorded: dict[str, Any]) -> None:
    """A revision of Slinky slurm-operator is used as it is, and only gets the labels by which it is found."""
    owner = recorded["metadata"]["ownerReferences"][0]["name"]
    (nodeset,) = (item for item in nodesets(WORLDS[case]) if item.metadata.name == owner)
    resource = nodeset.RESOURCE
    history = HistoryOwner(
        resource.api_version, resource.kind, "NS", owner, nodeset.metadata.uid, revision_labels(nodeset)
    )
    metadata = recorded["metadata"] | {"uid": "r", "ownerReferences": [history.reference()]}
    revision = msgspec.convert(recorded | {"metadata": metadata}, ControllerRevision)
    plan = plan_history(
        history, [revision], revision_data(nodeset), live=set(), limit=0, zero_fields=ZERO_FIELDS
    )
    assert plan.create is None
    assert plan.delete == ()
    assert [patch.body["metadata"].keys() for patch in plan.patches] == [{"uid", "labels"}]
