"""The webhook behind a real API server: what kubectl shows, what must pass, what an outage stops."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.fixtures.golden import CASES
from tests.fixtures.golden import Case as Recorded
from tests.support.processes import eventually
from tests.support.webhook.rule_cases import MAX, key, manifest
from tests.support.webhook.served_webhook import SKIP

if TYPE_CHECKING:
    from tests.support.webhook.served_webhook import Stage

# Those that are values of a chart are installed by the end-to-end tests, through this webhook.
EXAMPLES = [
    path
    for path in sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
    if not path.stem.endswith("-values")
]
_GROUP = "slinky.slurm.net/"


def kubectl(stage: Stage, *arguments: str, stdin: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl and keep what it says on standard error."""
    return subprocess.run(
        ["kubectl", "--namespace", stage.server.namespace, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **stage.box.environment},
    )


# --- kubectl


async def test_kubectl_shows_every_mistake_on_its_own_line(shared_stage: Stage) -> None:
    """A user who applies a manifest with three mistakes reads three lines, each with field and advice."""
    bad = manifest("NodeSet", {MAX: "0%", "ordinalPadding": 12, "extraConf": "gpu"}, "several")
    result = await asyncio.to_thread(kubectl, shared_stage, "apply", "-f", "-", stdin=json.dumps(bad))
    assert result.returncode == 1
    assert 'The NodeSet "several" is invalid' in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("* ")]
    assert len(lines) == 3
    for line, words in zip(
        sorted(lines), ("extraConf: 'gpu'", "ordinalPadding: 12", "maxUnavailable: '0%'"), strict=True
    ):
        assert words in line


async def test_kubectl_shows_warnings(shared_stage: Stage) -> None:
    """A user who applies what works but is odd sees the warning, and the object is there."""
    odd = manifest("RestApi", {"service.spec": {"externalIPs": ["10.0.0.1"]}}, "odd")
    result = await asyncio.to_thread(kubectl, shared_stage, "apply", "-f", "-", stdin=json.dumps(odd))
    assert (result.returncode, "restapi.slinky.slurm.net/odd created" in result.stdout) == (0, True)
    assert "Warning: spec.service.spec.externalIPs: external IPs are not allowed" in result.stderr


# --- what must be admitted


@pytest.mark.parametrize(
    "text", [path.read_text() for path in EXAMPLES], ids=[path.stem for path in EXAMPLES]
)
async def test_examples_are_admitted(shared_stage: Stage, text: str) -> None:
    """What the documentation shows is admitted without a word."""
    bodies = [body for body in yaml.safe_load_all(text) if body["apiVersion"].startswith(_GROUP)]
    assert bodies
    for body in bodies:
        answer = await shared_stage.server.create(body, dryRun="All")
        assert (answer.status, answer.warnings) == (201, []), (body["kind"], answer)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_recorded_manifests_are_admitted(shared_stage: Stage, case: Recorded) -> None:
    """What the reference operator accepted and built a cluster from is accepted here."""
    made: list[dict[str, Any]] = []
    try:
        for body in case.inputs:
            if not body["apiVersion"].startswith(_GROUP):
                answer = await shared_stage.server.apply(body)
                assert answer.status in (200, 201), answer
                made.append(body)
        for body in case.inputs:
            if body["apiVersion"].startswith(_GROUP):
                answer = await shared_stage.server.create(body, dryRun="All")
                assert answer.status == 201, (body["kind"], answer)
    finally:
        for body in made:
            await shared_stage.server.delete(body)


async def test_a_bad_object_can_be_labelled_and_deleted(shared_stage: Stage) -> None:
    """An object that was stored with mistakes can be labelled, given a status, freed and deleted."""
    server = shared_stage.server
    bad = manifest("NodeSet", {MAX: "0%"}, "old")
    bad["metadata"] |= {"annotations": {SKIP: ""}, "finalizers": ["test/hold"]}
    assert (await server.create(bad)).status == 201
    assert (await server.patch(bad, {"metadata": {"annotations": {SKIP: None}}})).status == 200
    assert (await server.patch(bad, {"metadata": {"labels": {"a": "b"}}})).warnings == []
    worse = await server.patch(bad, {"spec": {"ordinalPadding": 99}})
    assert list(worse.causes) == ["spec.ordinalPadding"]
    fixed = await server.patch(bad, {"spec": {"replicas": 2}})
    assert (fixed.status, fixed.warnings[0].startswith("spec.")) == (200, True)
    assert (await server.delete(bad)).status == 200
    assert (await server.patch(bad, {"metadata": {"finalizers": None}})).status == 200
    assert (await server.stored(bad)).status == 404


async def test_scaling_is_not_asked_about(shared_stage: Stage) -> None:
    """An autoscaler is never stopped by a mistake elsewhere in the object."""
    server = shared_stage.server
    bad = manifest("NodeSet", {MAX: "0%"}, "scaled")
    bad["metadata"]["annotations"] = {SKIP: ""}
    assert (await server.create(bad)).status == 201
    await server.patch(bad, {"metadata": {"annotations": None}})
    path = f"/apis/slinky.slurm.net/v1beta1/namespaces/{server.namespace}/nodesets/scaled/scale"
    answer = await server.ask("PATCH", path, {"spec": {"replicas": 4}}, kind="application/merge-patch+json")
    assert (answer.status, answer.body["spec"]["replicas"]) == (200, 4)


async def test_what_is_stored_is_judged_again(shared_stage: Stage) -> None:
    """A real write, without a dry run: created, changed, refused, and still what it was."""
    server = shared_stage.server
    body = manifest("Controller", {}, "real")
    assert (await server.apply(body)).status == 201
    assert (await server.apply(manifest("Controller", {"extraConf": "MaxJobCount=5"}, "real"))).status == 200
    refused = await server.apply(manifest("Controller", {"slurmKeyRef": key("other")}, "real"))
    assert list(refused.causes) == ["spec.slurmKeyRef"]
    assert (await server.stored(body)).body["spec"]["slurmKeyRef"] == key()


# --- outage


async def test_an_outage_stops_only_what_is_judged(own_stage: Stage) -> None:
    """Without the webhook no custom resource is written unseen; all else goes on, here and elsewhere."""
    server, outside = own_stage.server, own_stage.outside
    # As large as objects get: the API server compares two of them by itself.
    crowd = [{"name": f"N{number}", "value": "x" * 200} for number in range(3000)]
    dying = manifest("NodeSet", {"slurmd": {"image": "any", "env": crowd}}, "dying")
    dying["metadata"]["finalizers"] = ["test/hold"]
    for body in (manifest("NodeSet", {}, "before"), dying):
        assert (await server.create(body)).status == 201
    own_stage.process.__exit__()

    good = manifest("NodeSet", {}, "during")
    answer = await server.create(good)
    assert (answer.status, "failed calling webhook" in answer.body["message"]) == (500, True)
    assert (await server.patch(manifest("NodeSet", {}, "before"), {"spec": {"replicas": 3}})).status == 500
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "free"}, "data": {"a": "b"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "free"},
        "spec": {"containers": [{"name": "a", "image": "any"}]},
    }
    for other in (server, outside):
        assert (await other.create(config)).status == 201
        assert (await other.create(pod)).status == 201
    # A binding waits for nobody: failurePolicy Ignore.
    assert (await bind(own_stage, "free", "no-node")).status == 201
    assert (await outside.create(good)).status == 201
    # What the webhook would not judge does not need it: labels, and the end of an object.
    assert (await server.patch(dying, {"metadata": {"labels": {"a": "b"}}})).status == 200
    assert (await server.patch(dying, {"spec": {"replicas": 3}})).status == 500
    assert (await server.delete(dying)).status == 200
    assert (await server.patch(dying, {"metadata": {"finalizers": None}})).status == 200
    assert (await server.stored(dying)).status == 404
    assert (await server.delete(manifest("NodeSet", {}, "before"))).status == 200

    own_stage.restart()

    async def admitted() -> bool:
        return (await server.create(good)).status == 201

    await eventually(admitted, "a restarted webhook is asked again")


async def bind(
    stage: Stage, pod: str, node: str, annotations: dict[str, str] | None = None, **query: str
) -> Any:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, **({"annotations": annotations} if annotations else {})},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/{stage.server.namespace}/pods/{pod}/binding"
    return await stage.server.ask("POST", path, body, **query)


# --- binding

_TOPOLOGY = "topology.slinky.slurm.net/spec"


async def make_pod(
    stage: Stage, name: str, app: str, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": app},
            "annotations": annotations or {},
        },
        "spec": {"containers": [{"name": "a", "image": "any"}]},
    }
    assert (await stage.server.create(pod)).status == 201
    return pod


@pytest.mark.parametrize(
    ("app", "topology", "own", "given", "expected"),
    [
        ("slurmd", "default:s1:n1", {}, {}, {_TOPOLOGY: "default:s1:n1"}),
        ("slurmd", "default:s1:n1", {_TOPOLOGY: "old"}, {"x": "y"}, {_TOPOLOGY: "default:s1:n1", "x": "y"}),
        ("slurmd", "", {_TOPOLOGY: "mine"}, {}, {_TOPOLOGY: "mine"}),
        ("slurmd", "", {}, {}, {}),
        ("login", "default:s1:n1", {}, {}, {}),
    ],
    ids=["added", "replaced", "kept", "none", "no worker"],
)
async def test_a_worker_is_bound_with_its_topology(
    shared_stage: Stage,
    app: str,
    topology: str,
    own: dict[str, str],
    given: dict[str, str],
    expected: dict[str, str],
) -> None:
    """The pod of a worker has the topology of its node from the write that binds it, and no other pod has."""
    name = f"b-{abs(hash((app, topology, str(own), str(given))))}"
    annotations = {_TOPOLOGY: topology} if topology else {}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}}
    assert (await shared_stage.server.ask("POST", "/api/v1/nodes", node)).status == 201
    try:
        pod = await make_pod(shared_stage, name, app, own)

        assert (await bind(shared_stage, name, name, given, dryRun="All")).status == 201
        assert "nodeName" not in (await shared_stage.server.stored(pod)).body["spec"]

        assert (await bind(shared_stage, name, name, given)).status == 201
        bound = (await shared_stage.server.stored(pod)).body
        assert bound["spec"]["nodeName"] == name
        assert bound["metadata"].get("annotations", {}) == expected
    finally:
        await shared_stage.server.ask("DELETE", f"/api/v1/nodes/{name}")


async def test_a_worker_is_bound_to_a_node_that_is_unknown(shared_stage: Stage) -> None:
    """A node that does not exist is no reason to hold a binding up."""
    await make_pod(shared_stage, "lost", "slurmd")
    assert (await bind(shared_stage, "lost", "nowhere")).status == 201
