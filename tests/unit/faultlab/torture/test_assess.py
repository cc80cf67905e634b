from __future__ import annotations

import json
from collections import Counter

from faultlab.torture.assess import Facts, inventory, problems, writes_of
from faultlab.torture.keys import Key, key_set, older_than
from faultlab.torture.netcut import commands
from faultlab.torture.stage import slurm_name, unready
from faultlab.torture.submissions import Loss, Tally

USER = "system:serviceaccount:slinky:slurm-operator"
NONE: Counter[str] = Counter()


def audit(verb: str, resource: str, at: str = "2026-11-16T22:00:10.000000Z", user: str = USER) -> str:
    about = {"resource": resource, "name": "x"}
    return json.dumps(
        {"user": {"username": user}, "verb": verb, "objectRef": about, "requestReceivedTimestamp": at}
    )


def test_a_good_run_has_no_problem() -> None:
    """Jobs have completed, nothing is written, nothing is left."""
    assert problems(Facts(Tally(completed=5, apart=1), [], NONE, NONE, [(1.0, 70.0)])) == []


def test_every_kind_of_problem_is_named() -> None:
    """Lost jobs come first; a run without any completed job shows nothing."""
    jobs = Tally(unfinished=1, lost=(Loss("3", "NODE_FAIL"),))
    before, after = Counter(["pod/a"]), Counter(["pod/b"])
    facts = Facts(jobs, ["patch pods x"], before, after, [(1.0, 300.0)], "Controller slurm")
    assert problems(facts) == [
        "job 3 was lost: NODE_FAIL",
        "not settled after the repair: Controller slurm",
        "1 jobs have not ended",
        "no job has completed: the run shows nothing",
        "a write at rest: patch pods x",
        "left behind: pod/b",
        "missing: pod/a",
        "the operator used 300 MiB, more than 256 MiB",
    ]


def test_only_writes_of_the_operator_after_a_time_count() -> None:
    """Reads, other users, earlier writes, Leases and Events are no writes at rest; half a line is ignored."""
    lines = [
        audit("patch", "pods"),
        audit("get", "pods"),
        audit("patch", "leases"),
        audit("create", "events"),
        audit("create", "subjectaccessreviews"),
        audit("delete", "pods", "2026-11-16T21:59:59.000000Z"),
        audit("patch", "pods", user="kubelet"),
        '{"user": {"us',
    ]
    assert writes_of(lines, USER, "2026-11-16T22:00:00.000000Z") == ["patch pods x"]


def test_objects_are_counted_without_their_hashes() -> None:
    """A Deployment's new pod is no new object; a release of helm and Events are no state."""
    one = ["pod/slurm-login-users-7d9f8b6c5-x2x4z", "secret/sh.helm.release.v1.slurm.v1", "event/a.1"]
    other = ["pod/slurm-login-users-5c9f8b6d7-q4w6z", "secret/sh.helm.release.v1.slurm.v7"]
    assert inventory(one) == inventory(other)
    assert inventory([*one, "pod/slurm-worker-spare-0"]) != inventory(other)


def test_a_nodeset_is_at_rest_with_all_its_workers() -> None:
    """Its status is current, and Slurm can use every worker."""
    status = {
        "observedGeneration": 3,
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "slurmIdle": 1,
        "slurmAllocated": 1,
    }
    nodeset = {"metadata": {"generation": 3}, "status": status}
    assert unready(nodeset, 2) == ""
    assert unready(nodeset, 3) != ""
    assert unready({**nodeset, "metadata": {"generation": 4}}, 2) == "the NodeSet's status is behind"
    assert unready({**nodeset, "status": {**status, "slurmDrain": 1}}, 2) != ""


def test_a_key_set_signs_with_its_first_key() -> None:
    """Both keys are accepted, one is the default."""
    keys = json.loads(key_set(Key("new", b"n"), Key("old", b"o")))["keys"]
    assert [(key["kid"], key.get("use")) for key in keys] == [("new", "default"), ("old", None)]


def test_daemons_from_before_a_step_are_named() -> None:
    """A pod of the same second, or one that ends, may have the keys from before."""
    meta = {"a": "21:00:01", "b": "21:00:02", "c": "21:00:03"}
    pods = {name: {"metadata": {"creationTimestamp": f"2026-11-16T{at}Z"}} for name, at in meta.items()}
    pods["d"] = {
        "metadata": {"creationTimestamp": "2026-11-16T22:00:00Z", "deletionTimestamp": "2026-11-16T22:01:00Z"}
    }
    assert older_than(pods, "2026-11-16T21:00:02Z") == ["a", "b", "d"]


def test_a_cut_is_undone_in_reverse() -> None:
    """Packets go to a neighbour that does not exist; afterwards both entries are removed."""
    cut, mend = commands("cut", ["10.0.0.9"]), commands("mend", ["10.0.0.9"])
    assert [line.split()[2] for line in cut] == ["10.0.0.9/32", "10.0.0.9"]
    assert [line.split()[:2] for line in mend] == [["neigh", "del"], ["route", "del"]]


def test_a_worker_is_called_by_its_host() -> None:
    """The host name of the pod, or of its node in the network of the host, is the name in Slurm."""
    meta = {"name": "slurm-worker-demo-0"}
    assert slurm_name({"metadata": meta, "spec": {"hostname": "demo-0"}}) == "demo-0"
    assert slurm_name({"metadata": meta, "spec": {}}) == "slurm-worker-demo-0"
    assert slurm_name({"metadata": meta, "spec": {"hostNetwork": True, "nodeName": "node-1"}}) == "node-1"
