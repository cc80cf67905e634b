"""Clusters that the Go operator made, taken over with everything in them."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import Accounting, Controller, LoginSet, NodeSet, RestApi
from slurm_operator.controllers.workload.models import Deployment, StatefulSet
from slurm_operator.kube.client import PatchType
from slurm_operator.kube.models import ConfigMap, Pod, Secret, Service
from tests.fixtures.golden import CASES
from tests.integration.objects.comparison import differences
from tests.integration.programs.running import eventually

if TYPE_CHECKING:
    from slurm_operator.kube.meta import Object
    from tests.integration.controllers.workload.stage import Stage

KINDS: dict[str, type[Object]] = {
    kind.RESOURCE.kind: kind
    for kind in (
        Accounting, Controller, LoginSet, NodeSet, RestApi,
        ConfigMap, Secret, Service, StatefulSet, Deployment,
    )
}  # fmt: skip
_NAMESPACE = re.compile(r"(?<![A-Z])NS(?![A-Z])")
_SERVER_SIDE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


async def as_the_go_operator_left_it(stage: Stage, name: str) -> None:
    """Make everything of a recorded case: what a user applied, and what the Go operator made of it."""
    (case,) = (case for case in CASES if case.name == name)
    uids: dict[tuple[str, str], str] = {}
    for item in case.inputs:
        if item["kind"] in KINDS:
            made = await _create(stage, item, "kubectl-client-side-apply")
            uids[item["kind"], made.metadata.name] = made.metadata.uid
    for item in case.made:
        owners = item["metadata"].get("ownerReferences", ())
        if item["kind"] not in KINDS or any(owner["kind"] == "NodeSet" for owner in owners):
            continue
        for owner in owners:
            owner["uid"] = uids[owner["kind"], owner["name"]]
        await _create(stage, item, "manager")


async def _create(stage: Stage, item: dict[str, Any], field_manager: str) -> Object:
    text = _NAMESPACE.sub(stage.namespace, msgspec.json.encode(item).decode())
    body: dict[str, Any] = msgspec.json.decode(text)
    for name in _SERVER_SIDE:
        body["metadata"].pop(name, None)
    if body.get("immutable"):
        # The recording has no keys in it.
        body["data"] = dict.fromkeys(body["data"], base64.b64encode(b"known to users").decode())
    body["metadata"]["namespace"] = stage.namespace
    body.pop("status", None)
    return await stage.client.create(KINDS[item["kind"]], body, field_manager=field_manager)


async def test_slurmdbd_runs_on_and_what_only_the_go_operator_wanted_goes(stage: Stage) -> None:
    """After the takeover nothing has changed but what is better here, slurmdbd least of all."""
    await as_the_go_operator_left_it(stage, "02-accounting")
    before = await stage.children()
    leftover = {"metadata": {"labels": {"example.com/old": "x"}}}
    for name in ("acct-accounting", "slurm-controller"):
        await stage.client.patch(
            Service, name, stage.namespace, leftover, type=PatchType.MERGE, field_manager="manager"
        )
    await eventually(lambda: stage.get(Pod, "acct-accounting-0"), "slurmdbd has a pod")
    pod = await stage.there(Pod, "acct-accounting-0")
    operator = await stage.operator()
    await stage.says(Accounting, "acct", "Available")
    await stage.says(RestApi, "slurm", "Available")
    await operator.look_again(2)
    after = await stage.children()
    assert after.keys() == before.keys()
    changed = {name: [*differences(after[name], before[name])] for name in after}
    assert {name for name, found in changed.items() if found} == {
        "StatefulSet slurm-controller",
        "Deployment slurm-restapi",
    }
    restapi = "spec.template.metadata.annotations.slinky.slurm.net"
    assert changed["Deployment slurm-restapi"] == [
        f"{restapi}/slurm-config-hash: only ours",
        f"{restapi}/slurm-key-hash: only ours",
    ]
    assert (await stage.there(Pod, "acct-accounting-0")).metadata.uid == pod.metadata.uid


async def test_host_keys_are_kept(stage: Stage) -> None:
    """The host keys that users know are those that the Go operator made, and the Secret is not touched."""
    await as_the_go_operator_left_it(stage, "03-login")
    before = await stage.raw(Secret, "login-ssh-host-keys")
    operator = await stage.operator()
    await stage.says(LoginSet, "login", "Available")
    await operator.look_again(2)
    assert await stage.raw(Secret, "login-ssh-host-keys") == before
