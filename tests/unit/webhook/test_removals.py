"""Which evictions and deletions are recorded on a worker: the pure decisions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from slurm_operator.api import removal, wellknown
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import ObjectMeta
from slurm_operator.webhook.removals import RecordedRequest, asked, value
from slurm_operator.webhook.rules.review import AdmissionRequest

NOW = datetime(2026, 11, 16, 17, 0, tzinfo=UTC)
LABELS = {wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD, wellknown.LABEL_POD_PROTECT: "true"}


def request(**fields: Any) -> AdmissionRequest:
    """Return a request as the API server sends it: a deletion, unless told otherwise."""
    body = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "name": "worker-0",
        "namespace": "slurm",
        "operation": "DELETE",
        "userInfo": {"username": "alice", "groups": ["admins"]},
        "dryRun": False,
        "object": None,
        "oldObject": None,
        "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
        **fields,
    }
    return msgspec.json.decode(json.dumps(body), type=AdmissionRequest)


def eviction(deletion: dict[str, Any] | None = None, **fields: Any) -> AdmissionRequest:
    """Return the request for an eviction."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "worker-0"}}
    more = {} if deletion is None else {"deleteOptions": deletion}
    create = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    return request(
        **{"operation": "CREATE", "subResource": "eviction", "object": body | more, "options": create}
        | fields
    )


def pod(labels: dict[str, str] = LABELS, **metadata: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name="worker-0", namespace="slurm", uid="1", labels=labels, **metadata))


ALICE = RecordedRequest("deletion by alice")


def test_a_deletion_and_an_eviction_ask_for_the_removal_of_a_pod() -> None:
    """Who asks, and in which way, is what will be recorded."""
    assert asked(request()) == ALICE
    assert asked(eviction()) == RecordedRequest("eviction by alice")
    assert asked(request(options={"preconditions": {"uid": "7"}})) == RecordedRequest(
        "deletion by alice", "7"
    )
    assert asked(eviction({"preconditions": {"uid": "7"}})) == RecordedRequest("eviction by alice", "7")


@pytest.mark.parametrize(
    "nothing",
    [
        request(dryRun=True),
        request(options={"dryRun": ["All"]}),
        eviction(dryRun=True),
        eviction({"dryRun": ["All"]}),
        eviction(options={"kind": "CreateOptions", "dryRun": ["All"]}),
        request(name=""),
        request(operation="CONNECT"),
        request(operation="UPDATE"),
        request(subResource="status"),
        eviction(operation="DELETE"),
        request(operation="CREATE"),
    ],
)
def test_what_removes_no_pod_asks_for_nothing(nothing: AdmissionRequest) -> None:
    """A dry run, also one that only the eviction itself states, a collection, and any other operation."""
    assert asked(nothing) is None


@pytest.mark.parametrize("make", [eviction, lambda options: request(options=options)])
def test_a_deletion_of_one_version_of_a_pod_is_not_recorded(make: Any) -> None:
    """Recording makes another version of the pod, so a deletion that would succeed could fail by it."""
    assert asked(make({"preconditions": {"resourceVersion": "5"}})) is None


@pytest.mark.parametrize("body", ["text", 5, {"deleteOptions": "All"}, {"deleteOptions": {"dryRun": "All"}}])
def test_an_eviction_that_cannot_be_read_is_an_error(body: Any) -> None:
    """Whether it is a dry run is unknown then, so nothing may be written."""
    with pytest.raises(msgspec.MsgspecError):
        asked(eviction(object=body))


def test_fields_that_are_null_are_absent() -> None:
    """The API server may send null for what is not given."""
    assert asked(eviction(object={"deleteOptions": None})) == RecordedRequest("eviction by alice")
    assert asked(eviction({"dryRun": None, "preconditions": None})) == RecordedRequest("eviction by alice")
    assert asked(request(options=None)) == ALICE
    assert asked(request(options={"preconditions": {"uid": None, "resourceVersion": None}})) == ALICE


def test_a_request_is_recorded_on_a_protected_worker() -> None:
    """The annotation says when, how and by whom."""
    assert value(ALICE, pod(), NOW) == "2026-11-16T17:00:00Z deletion by alice"
    assert (
        value(RecordedRequest("eviction by bob", "1"), pod(), NOW) == "2026-11-16T17:00:00Z eviction by bob"
    )


@pytest.mark.parametrize(
    "other",
    [
        pod({}),
        pod({wellknown.LABEL_POD_PROTECT: "true"}),
        pod({wellknown.LABEL_APP_NAME: "slurmctld", wellknown.LABEL_POD_PROTECT: "true"}),
        pod({wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD}),
        pod(LABELS | {wellknown.LABEL_POD_PROTECT: "false"}),
        pod(annotations={wellknown.ANNOTATION_ALLOW_DELETION: "true"}),
        pod(deletion_timestamp=NOW),
    ],
)
def test_nothing_is_recorded_on_a_pod_that_may_go_anyway(other: Pod) -> None:
    """A pod that is no worker, is not protected, may be deleted, or is being deleted stays as it is."""
    assert value(ALICE, other, NOW) is None


def test_a_request_for_another_pod_of_the_name_is_not_recorded() -> None:
    """The pod was replaced in the meantime: the deletion fails, and the new one is not asked to go."""
    assert value(RecordedRequest("deletion by alice", "2"), pod(), NOW) is None


def test_a_request_is_recorded_once_in_thirty_seconds() -> None:
    """A client that retries every second causes one write in thirty seconds."""
    said = pod(annotations={wellknown.ANNOTATION_REMOVAL_REQUESTED: removal.text(NOW, "eviction by bob")})
    assert value(ALICE, said, NOW + timedelta(seconds=29)) is None
    assert value(ALICE, said, NOW + timedelta(seconds=30)) is not None
    by_hand = pod(annotations={wellknown.ANNOTATION_REMOVAL_REQUESTED: "true"})
    assert value(ALICE, by_hand, NOW) is None
