from __future__ import annotations

import pytest

from faultlab.writes import (
    SLURM,
    Target,
    Write,
    body_hash,
    is_numbered,
    kubernetes_name,
    kubernetes_target,
    sample,
    slurm_target,
    stable_name,
)


def write(number: int, name: str, method: str = "PATCH") -> Write:
    return Write(number, "kubernetes", method, "pods", name, 1, "", 0.0, 1, counted=True)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/namespaces/a/pods/p-0/status", Target("pods", "a", "p-0", "status")),
        ("/api/v1/namespaces/a", Target("namespaces", "", "a")),
        ("/api/v1/nodes?watch=1", Target("nodes")),
        ("/apis/apps/v1/namespaces/a/statefulsets", Target("statefulsets", "a", group="apps")),
        ("/version", Target("/version")),
    ],
)
def test_kubernetes_paths(path: str, target: Target) -> None:
    """The path of a request says what it is about."""
    assert kubernetes_target(path) == target


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "name"),
    [
        (
            "POST",
            "/slurm/v0.0.45/nodes/",
            b'{"name": ["a", "b"], "state": ["DRAIN"]}',
            "slurm:nodes",
            "a,b DRAIN",
        ),
        ("DELETE", "/slurm/v0.0.45/node/a", b"", "slurm:node", "a"),
        ("POST", "/slurm/v0.0.45/new/node/", b'{"node_conf": "NodeName=a"}', "slurm:new/node", "NodeName=a"),
        ("POST", "/slurm/v0.0.45/nodes/", b'{"name": ["a"], "comment": "c"}', "slurm:nodes", "a comment"),
    ],
)
def test_slurm_requests(method: str, path: str, body: bytes, kind: str, name: str) -> None:
    """A request to slurmrestd is named by its list, the names and the state it asks for."""
    target = slurm_target(method, path, body)
    assert (target.resource, target.name) == (kind, name)


@pytest.mark.parametrize(
    ("name", "stable"),
    [
        ("compute-0", "compute-0"),
        ("slurm-restapi-5685bd577d-x7k2p", "slurm-restapi-…"),
        ("slurm-controller-6d5f7c9b84", "slurm-controller-…"),
        ("slurm-auth-key", "slurm-auth-key"),
    ],
)
def test_generated_names(name: str, stable: str) -> None:
    """Only hashes at the end of a name are replaced."""
    assert stable_name(name) == stable


def test_a_created_object_is_named_by_its_body() -> None:
    """A creation has the name of the object, or what it is generated from."""
    target = Target("pods", "a")
    assert kubernetes_name(target, b'{"metadata": {"name": "compute-1"}}') == "compute-1"
    assert kubernetes_name(target, b'{"metadata": {"generateName": "x-"}}') == "x-…"
    assert kubernetes_name(target, b"nonsense") == "…"


def test_what_changes_nothing_has_no_number() -> None:
    """Reviews, tokens and Events are no crash points; Leases only if asked for."""
    assert not is_numbered(Target("subjectaccessreviews"), leases=True)
    assert not is_numbered(Target("serviceaccounts", "a", "b", "token"), leases=True)
    assert not is_numbered(Target("events", "a"), leases=True)
    assert not is_numbered(Target("leases", "a"), leases=False)
    assert is_numbered(Target("leases", "a"), leases=True)
    assert is_numbered(Target("pods", "a"), leases=False)


def test_sample_takes_the_first_and_the_last_of_each_family() -> None:
    """Of many writes that differ only in a number some are taken, in order; 0 takes all."""
    writes = [write(number, f"compute-{number}") for number in range(1, 10)] + [write(10, "other")]
    assert [one.number for one in sample(writes, 2)] == [1, 9, 10]
    assert [one.number for one in sample(writes, 3)] == [1, 5, 9, 10]
    assert [one.number for one in sample(writes, 1)] == [1, 10]
    assert len(sample(writes, 0)) == 10


def test_hashes_are_the_same_in_any_namespace() -> None:
    """The body's hash does not depend on the namespace of the run."""
    assert body_hash(b'{"namespace": "run-1"}', "run-1") == body_hash(b'{"namespace": "run-2"}', "run-2")
    assert body_hash(b"a", "run-1") != body_hash(b"b", "run-1")


def test_the_size_of_a_hostlist_does_not_make_another_family() -> None:
    """One request for several nodes and one for each of them are writes of the same kind."""
    names = ("lab-0", "lab-[0-3]", "lab-[0,2-3]")
    families = {
        Write(1, SLURM, "POST", "slurm:nodes", f"{name} UNDRAIN", 1, "", 0.0, 1, counted=True).family
        for name in names
    }
    assert families == {"POST slurm:nodes lab-N UNDRAIN"}
