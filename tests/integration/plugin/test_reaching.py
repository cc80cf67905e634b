"""How the command finds the manager, what it does without one, and how it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.plugin.bench import Bench

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox.pytest_plugin import BoxFactory
    from tests.support.plugin.fake_manager import FakeManager

NODESET = {
    "apiVersion": "slinky.slurm.net/v1beta1",
    "kind": "NodeSet",
    "metadata": {"name": "workers"},
    "spec": {"controllerRef": {"name": "slurm"}, "slurmd": {"image": "x"}, "replicas": 1},
}
EVENT: dict[str, Any] = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "workers.1"},
    "eventTime": "2026-11-16T12:00:00.000000Z",
    "reportingController": "slurm-operator",
    "reportingInstance": "x",
    "type": "Normal",
    "reason": "ScalingDown",
    "action": "ScaleDown",
    "note": "Removing 1 pod",
    "regarding": {"apiVersion": NODESET["apiVersion"], "kind": "NodeSet", "name": "workers"},
}


async def test_every_view_comes_from_the_manager(bench: Bench, manager: FakeManager) -> None:
    """The commands ask the manager through the pod proxy, with a token for it, and print what it knows."""
    bench.install(manager)
    status = await bench.run("status")
    assert (status.code, status.err) == (0, "")
    assert "JobsRunning" in status.out
    assert "Limited" not in status.out
    nodes = await bench.run("nodes", "workers", "--blocked")
    assert "MIXED+DRAIN" in nodes.out
    assert "IDLE" not in nodes.out
    jobs = await bench.run("jobs", "--user", "alice", "--state=running")
    assert "train" in jobs.out
    assert manager.asked("jobs")[0] == {"namespace": bench.namespace, "user": "alice", "state": "RUNNING"}
    pod = await bench.run("explain", "pod", "workers-2")
    assert "JobsRunning: workers-2 is MIXED+DRAIN, job 42 is on it" in pod.out
    job = await bench.run("explain", "job", "43")
    assert "Resources: The job is next in line" in job.out
    node = await bench.run("explain", "node", "node-2")
    assert "Kubernetes node node-2 with 1 worker" in node.out
    history = await bench.run("history", "nodeset/workers", "-o", "yaml")
    assert yaml.safe_load(history.out)["items"][0]["what"] == "DrainNode"
    explained = await bench.run("explain", "nodeset", "workers", "-o", "json")
    assert json.loads(explained.out)["waitsFor"]


async def test_the_leader_is_followed_and_a_token_renewed(bench: Bench, manager: FakeManager) -> None:
    """A standby's refusal, an old token and too many requests lead to another try, not to a limited view."""
    bench.install(manager)
    manager.refuse(503, "NotLeader", "standby", leader="manager-0_1234")
    manager.refuse(401, "Unauthenticated", "expired")
    manager.refuse(429, "TooManyRequests", "later")
    ended = await bench.run("status")
    assert (ended.code, "Limited" in ended.out) == (0, False)


async def test_an_unknown_object_is_one_line_and_code_3(bench: Bench, manager: FakeManager) -> None:
    """What does not exist is named with the namespace in which it was looked for."""
    bench.install(manager)
    for arguments, told in (
        (("explain", "pod", "nope"), "no worker pod 'nope'"),
        (("explain", "nodeset", "nope"), "no NodeSet 'nope'"),
        (("explain", "node", "nope"), "no Slurm node and no Kubernetes node 'nope'"),
        (("explain", "job", "999"), "Slurm lists no job 999"),
        (("status", "nope"), "no Slurm cluster (Controller) 'nope'"),
        (("jobs", "nope"), "no Slurm cluster (Controller) 'nope'"),
        (("nodes", "nope"), "no NodeSet 'nope'"),
        (("drain", "nope", "--reason=x"), "no worker with the Slurm node or pod 'nope'"),
    ):
        ended = await bench.run(*arguments)
        assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1), ended
        assert told in ended.err
        assert bench.namespace in ended.err


async def test_without_an_operator_the_view_is_limited(bench: Bench) -> None:
    """Status and explain report what conditions show and say why; jobs end with code 5 and one line."""
    bench.apply(NODESET)
    bench.worker("workers-0")
    blocked = {
        "type": "SlurmSafeToDelete",
        "status": "False",
        "reason": "JobsRunning",
        "message": "job 42 is on it",
    }
    bench.status("pod", "workers-0", conditions=[blocked])
    status = await bench.run("status")
    assert status.code == 0
    assert "Limited view, from conditions and Events only: no operator runs" in status.out
    assert "JobsRunning" in status.out
    pod = await bench.run("explain", "pod", "workers-0")
    assert "Limited view" in pod.out
    assert "JobsRunning: job 42 is on it" in pod.out
    regarding = {**EVENT["regarding"], "namespace": bench.namespace}
    bench.apply({**EVENT, "regarding": regarding})
    history = await bench.run("history", "nodeset/workers")
    assert (history.code, "Limited view" in history.out, "Removing 1 pod" in history.out) == (0, True, True)
    for command in (("jobs",), ("explain", "job", "1"), ("dashboard",)):
        ended = await bench.run(*command)
        assert (ended.code, ended.out, ended.err.count("\n")) == (5, "", 1), ended
        assert "no operator runs" in ended.err


async def test_an_old_operator(bench: Bench, manager: FakeManager) -> None:
    """An operator without the API gives a limited view; what needs the API ends with code 6."""
    bench.install(manager, port_name="metrics")
    bench.apply(NODESET)
    assert "has no status API" in (await bench.run("status")).out
    jobs = await bench.run("jobs")
    assert (jobs.code, jobs.err.count("\n")) == (6, 1)
    assert "older than this command" in jobs.err


async def test_an_operator_whose_api_is_older_or_disabled(bench: Bench, manager: FakeManager) -> None:
    """A path that the manager does not have, or a missing account for viewers, is told as an old operator."""
    bench.install(manager, viewer=False)
    jobs = await bench.run("jobs")
    assert (jobs.code, "there is no ServiceAccount" in jobs.err) == (6, True)
    bench.install(manager)
    manager.refuse(404, "NotFound", "unknown path")
    assert (await bench.run("jobs")).code == 6


async def test_an_unreachable_manager(bench: Bench) -> None:
    """A pod that does not answer gives a limited view with the API server's words."""
    bench.install(None)
    bench.apply(NODESET)
    bench.status("pod", "manager-0", podIP="127.0.0.1", podIPs=[{"ip": "127.0.0.1"}])
    ended = await bench.run("status")
    assert ended.code == 0
    assert "cannot be reached" in ended.out


async def test_without_permission(bench: Bench, manager: FakeManager) -> None:
    """A user who may list NodeSets gets a limited view; one who may nothing gets one line and code 4."""
    bench.install(manager)
    bench.apply(NODESET)
    reader = bench.user(
        "reader", "list nodesets.slinky.slurm.net", "list controllers.slinky.slurm.net", "list pods"
    )
    ended = await bench.run("status", kubeconfig=reader)
    assert (ended.code, "you may not look for the operator" in ended.out) == (0, True), ended
    nothing = bench.user("nothing")
    for command in ("status", "nodes", "jobs", "dashboard"):
        ended = await bench.run(command, kubeconfig=nothing)
        assert (ended.code, ended.out, ended.err.count("\n")) == (4, "", 1), ended
    half = bench.user("half", "get leases", "get pods", "list pods")
    ended = await bench.run("jobs", kubeconfig=half)
    assert (ended.code, "may not create a token" in ended.err) == (4, True)
    most = bench.user("most", "get leases", "get pods", "create serviceaccounts/token")
    ended = await bench.run("jobs", kubeconfig=most)
    assert (ended.code, "may not use the proxy" in ended.err) == (4, True)


async def test_the_manager_forbids(bench: Bench, manager: FakeManager) -> None:
    """Its own refusal is told in its words."""
    bench.install(manager)
    manager.refuse(403, "Forbidden", "account x may list NodeSets in no namespace")
    ended = await bench.run("jobs")
    assert (ended.code, "may list NodeSets in no namespace" in ended.err) == (4, True)


async def test_no_cluster_at_all(bench: Bench, tmp_path: Path) -> None:
    """Without an API server, or without a kubeconfig, there is one line and code 1."""
    ended = await bench.run("status", kubeconfig=tmp_path / "nope")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1), ended


async def test_no_crds(kube_box_factory: BoxFactory, tmp_path: Path) -> None:
    """Where the operator was never installed, the line says what to install, with code 5."""
    box = kube_box_factory()
    ended = await Bench(box, "default", tmp_path).run("status", home=False)
    assert (ended.code, ended.out, ended.err.count("\n")) == (5, "", 1), ended
    assert "the CRDs of slinky.slurm.net are not installed" in ended.err


async def test_an_operator_without_leader_election_is_found(bench: Bench, manager: FakeManager) -> None:
    """Without a Lease, the running pod with the operator's labels is asked."""
    bench.install(manager)
    bench.box.kubectl("delete", "lease", "slurm-operator", "-n", bench.namespace)
    labels = ("app.kubernetes.io/name=slurm-operator", "app.kubernetes.io/part-of=slurm-operator")
    bench.box.kubectl("label", "pod", "manager-0", *labels, "-n", bench.namespace)
    assert "JobsRunning" in (await bench.run("status")).out


async def test_nothing_in_a_namespace_says_where_to_look(bench: Bench, manager: FakeManager) -> None:
    """An empty namespace is no error, and the hint names -A."""
    bench.install(manager)
    manager.state = type(manager.state)(clusters=(), nodesets=(), workers=())
    ended = await bench.run("status")
    assert (ended.code, ended.out) == (
        0,
        f"No Slurm cluster in namespace {bench.namespace}. Add -n NAMESPACE, or -A for all namespaces.\n",
    )
