from __future__ import annotations

import base64
from typing import Any

from faultlab.state import compare, differences, normalise, normalise_slurm, unstable

UID = "11111111-2222-3333-4444-555555555555"


def nodeset(**more: Any) -> dict[str, Any]:
    meta = {
        "name": "compute",
        "namespace": "run-1",
        "uid": UID,
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{}],
    }
    status = {
        "observedGeneration": 2,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
    }
    return {"kind": "NodeSet", "metadata": meta, "spec": {"replicas": 3}, "status": status, **more}


def test_what_differs_from_run_to_run_is_removed() -> None:
    """Two runs that did the same are equal: names, UIDs, times and versions are none of their state."""
    other = nodeset()
    other["metadata"] |= {"namespace": "run-2", "uid": UID.replace("1", "9"), "resourceVersion": "99"}
    other["metadata"]["creationTimestamp"] = "2027-02-02T00:00:00Z"
    other["metadata"]["generation"] = other["status"]["observedGeneration"] = 5
    assert normalise([nodeset()], "run-1") == normalise([other], "run-2")


def test_a_status_that_lags_is_a_difference() -> None:
    """A status of an earlier generation is no end of a run."""
    late = nodeset()
    late["status"]["observedGeneration"] = 1
    found = differences(normalise([nodeset()], "run-1"), normalise([late], "run-1"))
    assert found == {"NodeSet/compute.status.observedGeneration": "expected current, found behind"}


def test_owners_are_compared_by_name() -> None:
    """A reference to another object of the same name is no difference, one to a stranger is."""

    def pod(uid: str) -> dict[str, Any]:
        meta = {"name": "compute-0", "uid": "x", "ownerReferences": [{"uid": uid}]}
        return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": "lab-0"}}

    found = normalise([nodeset(), pod(UID)], "run-1")["Pod/compute-0"]
    assert found["metadata"]["ownerReferences"] == [{"uid": "UID of NodeSet/compute"}]
    assert "nodeName" not in found["spec"]
    stranger = normalise([nodeset(), pod(UID.replace("1", "9"))], "run-1")["Pod/compute-0"]
    assert stranger != found


def secret(**data: str) -> dict[str, Any]:
    """Return a Secret as kube-apiserver sends it."""
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}
    return {"kind": "Secret", "metadata": {"name": "s", "uid": "u"}, "data": encoded}


def test_secrets_are_compared_by_the_hash_of_each_value() -> None:
    """The data of a Secret never appears in a report; the namespace in it is no difference."""
    found = normalise([secret(conf="Host=db.run-1")], "run-1")
    assert found == normalise([secret(conf="Host=db.run-2")], "run-2")
    assert [*differences(found, normalise([secret(conf="Host=other.run-1")], "run-1"))] == [
        "Secret/s.data.conf"
    ]
    assert [*differences(found, normalise([secret(conf="")], "run-1"))] == ["Secret/s.data.conf"]
    assert "db" not in str(found)
    assert "SG9zd" not in str(found)


def test_tokens_are_not_compared() -> None:
    """Each is another one; that there is one is compared."""
    one, other = (normalise([secret(jwt=f"eyJhbGciOiJIUzI1NiJ9.{end}")], "run-1") for end in ("x", "y"))
    assert one == other
    assert one != normalise([secret(jwt="none")], "run-1")


def test_two_objects_of_one_generated_name_are_two() -> None:
    """A leaked second object is a difference."""
    made = [
        {"kind": "Pod", "metadata": {"name": f"a-{end}", "uid": end}, "spec": {}}
        for end in ("x7k2p", "b9c4d")
    ]
    assert [*normalise(made, "run-1")] == ["Pod/a-…", "Pod/a-… (2)"]


def test_ignored_paths() -> None:
    """What a scenario ignores is removed, by a pattern for the object and keys with escaped dots."""
    item = nodeset()
    item["metadata"]["annotations"] = {"a.b/c": "1", "d": "2"}
    found = normalise([item], "run-1", ["NodeSet/*.metadata.annotations.a\\.b/c", "Pod/*"])
    assert found["NodeSet/compute"]["metadata"]["annotations"] == {"d": "2"}
    assert normalise([item], "run-1", ["NodeSet/compute"]) == {}


def test_what_is_unstable_without_faults_is_not_compared() -> None:
    """A path that differs between two references is left out, with all below it, and nothing else is."""
    one, other = {"a": {"b": 1}, "c": 1}, {"a": {"b": 2}, "c": 1}
    ignored = unstable(one, other)
    assert ignored == {"a.b"}
    assert compare(one, {"a": {"b": {"d": 3}}, "c": 1}, ignored) == {}
    assert [*compare(one, {"a": {"b": 1}}, ignored)] == ["c"]


def test_slurm_comments_do_not_name_the_run() -> None:
    """Namespace, UIDs and nodes inside of a text are replaced, too."""
    found = normalise_slurm({"comment": f"run-1/compute {UID} on lab-3"}, [nodeset()], "run-1")
    assert found == {"comment": "NAMESPACE/compute UID of NodeSet/compute on NODE"}


def test_revisions_are_in_order_of_their_number() -> None:
    """Which of two names has the smaller hash says nothing; the number of a revision does."""

    def revision(name: str, number: int) -> dict[str, Any]:
        meta = {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        return {"kind": "ControllerRevision", "metadata": meta, "revision": number}

    one = normalise([revision("compute-5bc6d7f8", 1), revision("compute-6bc6d7f8", 2)], "run-1")
    other = normalise([revision("compute-7bc6d7f8", 1), revision("compute-4bc6d7f8", 2)], "run-1")
    assert one == other


def test_history_is_not_compared_where_something_was_done_and_undone() -> None:
    """Counts of revisions and the reasons of conditions differ then; whether a condition is true must not."""
    ready = {"status": {"conditions": {"Ready": {"status": "True", "reason": "Started"}}}}
    again = {"status": {"conditions": {"Ready": {"status": "True", "reason": "Restart"}}}}
    broken = {"status": {"conditions": {"Ready": {"status": "False", "reason": "Started"}}}}
    one = {"ControllerRevision/a": {"revision": 1}, "Controller/a": ready}
    other = {"ControllerRevision/a": {"revision": 2}, "Controller/a": again}
    assert len(compare(one, other, frozenset())) == 2
    assert compare(one, other, frozenset(), history=False) == {}
    path = "Controller/a.status.conditions.Ready.status"
    assert [*compare(one, {**other, "Controller/a": broken}, frozenset(), history=False)] == [path]
