"""Clusters that Slinky slurm-operator created, migrated with everything in them."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import Accounting, Controller, LoginSet, NodeSet, RestApi, wellknown
from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails, StatefulSetDetails
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.models.kinds import ConfigMap, Pod, Secret, Service
from slurm_operator.objects.content_references import data_checksum
from tests.fixtures.golden import CASES
from tests.support.controllers.volumes import volume
from tests.support.processes import eventually
from tests.support.rendering_comparison import differences

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Object
    from tests.fixtures.golden import Case
    from tests.support.controllers.workload_namespace import Operator, Stage

KINDS: dict[str, type[Object]] = {
    kind.RESOURCE.kind: kind
    for kind in (
        Accounting, Controller, LoginSet, NodeSet, RestApi,
        ConfigMap, Secret, Service, StatefulSetDetails, DeploymentDetails,
    )
}  # fmt: skip
_NAMESPACE = re.compile(r"(?<![A-Z])NS(?![A-Z])")
_HOST_KEYS = "-ssh-host-keys"
_HOST_KEY = b"known to users"  # the recording has no keys in it
_SERVER_SIDE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


async def as_the_go_operator_left_it(stage: Stage, name: str) -> None:
    """Make everything of a recorded case: what a user applied, and what Slinky slurm-operator made of it."""
    (case,) = (case for case in CASES if case.name == name)
    await left_behind(stage, case)


async def left_behind(stage: Stage, case: Case) -> None:
    """Make everything of a case."""
    await volume(stage, "statesave-slurm-controller-0")
    uids: dict[tuple[str, str], str] = {}
    for item in case.inputs:
        if item["kind"] in KINDS:
            made = await _create(stage, item, "kubectl-client-side-apply", {})
            uids[item["kind"], made.metadata.name] = made.metadata.uid
    children = [
        item
        for item in case.made
        if item["kind"] in KINDS
        and not any(owner["kind"] == "NodeSet" for owner in item["metadata"].get("ownerReferences", ()))
    ]
    hashes = _hashes(children, stage.namespace)
    for item in children:
        for owner in item["metadata"].get("ownerReferences", ()):
            owner["uid"] = uids[owner["kind"], owner["name"]]
        await _create(stage, item, "manager", hashes)


def _hashes(children: list[dict[str, Any]], namespace: str) -> dict[str, str]:
    """Return the hashes that depend on the name of the namespace and on keys that the recording lacks."""
    found = {}
    for item in children:
        if "slurmdbd.conf" in item.get("data", {}):
            text = base64.b64decode(item["data"]["slurmdbd.conf"])
            found[wellknown.ANNOTATION_SLURMDBD_CONF_HASH] = data_checksum({"slurmdbd.conf": text})
        if "slurm.conf" in item.get("data", {}):
            files = {key: _NAMESPACE.sub(namespace, text).encode() for key, text in item["data"].items()}
            found[wellknown.ANNOTATION_SLURM_CONFIG_HASH] = data_checksum(files)
        if item["metadata"]["name"].endswith(_HOST_KEYS):
            keys = dict.fromkeys(item["data"], _HOST_KEY)
            found[wellknown.ANNOTATION_SSH_HOST_KEYS_HASH] = data_checksum(keys)
    return found


async def _create(stage: Stage, item: dict[str, Any], field_manager: str, hashes: dict[str, str]) -> Object:
    text = _NAMESPACE.sub(stage.namespace, msgspec.json.encode(item).decode())
    body: dict[str, Any] = msgspec.json.decode(text)
    for name in _SERVER_SIDE:
        body["metadata"].pop(name, None)
    if body["metadata"]["name"].endswith(_HOST_KEYS):
        body["data"] = dict.fromkeys(body["data"], base64.b64encode(_HOST_KEY).decode())
    if item["kind"] in ("StatefulSet", "Deployment"):
        annotations = body["spec"]["template"]["metadata"]["annotations"]
        annotations |= {name: value for name, value in hashes.items() if name in annotations}
        # As Slinky slurm-operator does with the annotations of a custom resource.
        annotations |= {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "hpc"}
    body["metadata"]["namespace"] = stage.namespace
    body.pop("status", None)
    return await stage.client.create(KINDS[item["kind"]], body, field_manager=field_manager)


# ----------------------------------------------------------------------------------------------------- seeing
async def workloads(stage: Stage) -> dict[str, dict[str, Any]]:
    """Return every workload as it is on the wire."""
    found = {}
    for kind in (StatefulSetDetails, DeploymentDetails):
        for one in (await stage.client.list_all(kind, stage.namespace)).items:
            found[f"{kind.RESOURCE.kind} {one.metadata.name}"] = await stage.raw(kind, one.metadata.name)
    return found


async def templates(stage: Stage) -> dict[str, Any]:
    """Return the pod template of every workload."""
    return {name: item["spec"]["template"] for name, item in (await workloads(stage)).items()}


async def pods(stage: Stage) -> dict[str, str]:
    """Return the UID of every pod."""
    page = await stage.client.list_all(Pod, stage.namespace)
    return {pod.metadata.name: pod.metadata.uid for pod in page.items}


async def all_run(stage: Stage) -> bool:
    """Return whether Kubernetes has nothing left to do for any workload, by its own account."""
    for item in (await workloads(stage)).values():
        status, wanted = item.get("status", {}), item["spec"]["replicas"]
        if status.get("observedGeneration") != item["metadata"]["generation"]:
            return False
        counts = {status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")}
        if counts != {wanted}:
            return False
    return True


OBJECTS: list[tuple[type[Any], str]] = [
    (Controller, "slurm"),
    (Accounting, "acct"),
    (RestApi, "slurm"),
    (LoginSet, "login"),
]


async def taken_over(stage: Stage, operator: Operator) -> None:
    """Wait until every object that there is says that it is ready, and nothing is left to write."""
    for kind, name in OBJECTS:
        if await stage.get(kind, name) is not None:
            await stage.says(kind, name, "Available")
    await eventually(operator.rests, "nothing is left to write")


# ------------------------------------------------------------------------------------------------------ tests
@pytest.mark.parametrize("case", ["01-minimal", "02-accounting", "03-login", "04-config-merge"])
async def test_a_takeover_restarts_nothing(stage: Stage, case: str) -> None:
    """Not one pod of a Go operator's cluster is replaced, no template changes, and then all is silent."""
    await as_the_go_operator_left_it(stage, case)
    await eventually(lambda: all_run(stage), "everything runs")
    before, running = await templates(stage), await pods(stage)
    assert before
    operator = await stage.operator()
    await taken_over(stage, operator)
    assert await templates(stage) == before
    assert await pods(stage) == running
    said = {
        (kind, name): await stage.condition(kind, name, "Configured")
        for kind, name in OBJECTS
        if await stage.get(kind, name) is not None
    }
    assert {one and one.reason for one in said.values()} == {"Started"}


async def test_the_first_change_after_a_takeover(stage: Stage) -> None:
    """A real change replaces pods once, with all that is ours in the template, and then no more."""
    await as_the_go_operator_left_it(stage, "02-accounting")
    await eventually(lambda: all_run(stage), "everything runs")
    operator = await stage.operator()
    await taken_over(stage, operator)
    before, running = await workloads(stage), await pods(stage)
    image = "registry.invalid/slurm:new"
    await stage.patch(Controller, "slurm", {"spec": {"slurmctld": {"image": image}}})
    await stage.patch(RestApi, "slurm", {"spec": {"slurmrestd": {"image": image}}})
    for kind, name in ((Controller, "slurm"), (RestApi, "slurm")):
        await stage.says(kind, name, "Available")
    await taken_over(stage, operator)
    await eventually(lambda: all_run(stage), "everything runs")
    after = await workloads(stage)
    name = "StatefulSet slurm-controller"
    assert after[name]["metadata"]["generation"] == before[name]["metadata"]["generation"] + 1
    restapi = "deployment.kubernetes.io/revision"
    assert after["Deployment slurm-restapi"]["metadata"]["annotations"][restapi] == "2"
    for workload in (name, "Deployment slurm-restapi"):
        metadata = after[workload]["spec"]["template"]["metadata"]
        assert "team" not in metadata["annotations"]
        assert wellknown.ANNOTATION_SLURM_KEY_HASH in metadata["annotations"]
    labels = after[name]["spec"]["template"]["metadata"]["labels"]
    assert labels[wellknown.LABEL_CONTROLLER_ACTIVE] == "true"
    assert after["StatefulSet acct-accounting"]["spec"] == before["StatefulSet acct-accounting"]["spec"]
    now = await pods(stage)
    assert {pod for pod in running if now.get(pod) == running[pod]} == {"acct-accounting-0"}


async def test_back_and_over_again(stage: Stage) -> None:
    """After Slinky had a workload of ours in its hands, another migration restarts nothing either."""
    await as_the_go_operator_left_it(stage, "02-accounting")
    await eventually(lambda: all_run(stage), "everything runs")
    name, image = "slurm-controller", "registry.invalid/slurm:new"
    theirs = (await templates(stage))[f"StatefulSet {name}"]
    async with stage.for_a_while() as operator:
        await taken_over(stage, operator)
        await stage.patch(Controller, "slurm", {"spec": {"slurmctld": {"image": image}}})
        await stage.says(Controller, "slurm", "Available")
        await taken_over(stage, operator)
    (slurmctld,) = (one for one in theirs["spec"]["containers"] if one["name"] == "slurmctld")
    slurmctld["image"] = image
    rendered = [{"op": "replace", "path": "/spec/template", "value": theirs}]
    await stage.client.patch(
        StatefulSetDetails, name, stage.namespace, rendered, type=PatchType.JSON, field_manager="manager"
    )
    # What a person does before ours comes back.
    await stage.patch(
        StatefulSetDetails, name, {"metadata": {"annotations": {wellknown.ANNOTATION_TEMPLATE_HASH: None}}}
    )
    await eventually(lambda: all_run(stage), "everything runs")
    before, running = await templates(stage), await pods(stage)
    await taken_over(stage, await stage.operator())
    assert await templates(stage) == before
    assert await pods(stage) == running


async def test_a_key_that_changes_after_a_takeover(stage: Stage) -> None:
    """Also pods whose template had no hash of the key are replaced when it changes."""
    await as_the_go_operator_left_it(stage, "02-accounting")
    await eventually(lambda: all_run(stage), "everything runs")
    operator = await stage.operator()
    await taken_over(stage, operator)
    running = await pods(stage)
    secret = (await stage.there(Controller, "slurm")).spec.slurm_key_ref
    assert secret is not None
    await stage.patch(Secret, secret.name, {"data": {secret.key: base64.b64encode(b"another").decode()}})
    await stage.says(RestApi, "slurm", "Restart", "Configured")
    await taken_over(stage, operator)

    async def replaced() -> bool:
        return not set(running.items()) & set((await pods(stage)).items())

    await eventually(replaced, "every pod is another one")


async def test_what_only_the_go_operator_wanted_goes(stage: Stage) -> None:
    """After the migration nothing is left of what Slinky slurm-operator set and we do not."""
    await as_the_go_operator_left_it(stage, "02-accounting")
    before = await stage.children()
    leftover = {"metadata": {"labels": {"example.com/old": "x"}}}
    for name in ("acct-accounting", "slurm-controller"):
        await stage.client.patch(
            Service, name, stage.namespace, leftover, type=PatchType.MERGE, field_manager="manager"
        )
    operator = await stage.operator()
    await taken_over(stage, operator)
    after = await stage.children()
    assert after.keys() == before.keys()
    changed = {name: [*differences(after[name], before[name])] for name in after}
    labels = [f"metadata.labels.app.kubernetes.io/{name}: only ours" for name in ("managed-by", "part-of")]
    expected = ["metadata.annotations.slinky.slurm.net/template-hash: only ours", *labels]
    for name in ("StatefulSet slurm-controller", "Deployment slurm-restapi", "StatefulSet acct-accounting"):
        assert changed.pop(name) in (expected, ["metadata.annotations: only ours", *labels])
    assert {name: found for name, found in changed.items() if found != labels} == {}


async def test_host_keys_are_kept(stage: Stage) -> None:
    """The host keys that users know are those that Slinky made; their Secret only gets labels."""
    await as_the_go_operator_left_it(stage, "03-login")
    before = await stage.raw(Secret, "login-ssh-host-keys")
    operator = await stage.operator()
    await taken_over(stage, operator)
    after = await stage.raw(Secret, "login-ssh-host-keys")
    assert (after["data"], after["immutable"]) == (before["data"], before["immutable"])
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
