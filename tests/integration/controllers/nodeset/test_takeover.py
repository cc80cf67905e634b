"""Workers that Slinky slurm-operator created, migrated while they run."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import Controller, NodeSet, RestApi, wellknown
from slurm_operator.kube.models.kinds import (
    ConfigMap,
    ControllerRevision,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Secret,
    Service,
)
from slurm_operator.objects import node_fit
from tests.fixtures.golden import CASES
from tests.fixtures.slinky_releases import LEFT_BEHIND
from tests.integration.controllers.nodeset.test_rest import quiet

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Object
    from tests.support.controllers.kubernetes_nodes import NodePool
    from tests.support.controllers.nodeset_namespace import Stage

KINDS: dict[str, type[Object]] = {
    kind.RESOURCE.kind: kind
    for kind in (
        Controller, NodeSet, RestApi, ConfigMap, ControllerRevision, PersistentVolumeClaim, Pod,
        PodDisruptionBudget, Secret, Service,
    )
}  # fmt: skip
_NAMESPACE = re.compile(r"(?<![A-Z])NS(?![A-Z])")
_SERVER_SIDE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
_MACHINE = "kwok-00001"


class Migration:
    """One recorded case, made as the Go operator left it."""

    def __init__(self, stage: Stage, name: str) -> None:
        (self.case,) = (case for case in (*CASES, *LEFT_BEHIND) if case.name == name)
        self._stage = stage
        self._uids: dict[str, str] = {}

    async def make(self) -> dict[str, str]:
        """Make what a user applied and what came of it; return the UID of each worker."""
        for item in self.case.inputs:
            if item["kind"] not in KINDS:
                continue
            made = await self._create(item, "kubectl-client-side-apply")
            self._uids[made.metadata.name] = made.metadata.uid
        pods = {}
        for item in self.case.made:
            owners = item["metadata"].get("ownerReferences", ())
            if any(owner["kind"] == "NodeSet" for owner in owners):
                made = await self._create(item, "manager")
                if isinstance(made, Pod):
                    pods[made.metadata.name] = made.metadata.uid
        return pods

    async def report(self) -> None:
        """Write the status that the Go operator had written."""
        for item in self.case.made:
            if item["kind"] == "ControllerRevision":
                (owner,) = item["metadata"]["ownerReferences"]
                live = await self._stage.there(NodeSet, owner["name"])
                status = {
                    "nodeSetHash": item["metadata"]["labels"]["controller.kubernetes.io/hash"],
                    "observedGeneration": live.metadata.generation,
                    "selector": live.selector,
                }
                await self._stage.client.patch_status(
                    NodeSet, owner["name"], self._stage.namespace, status, field_manager="manager"
                )

    @property
    def nodesets(self) -> list[str]:
        """Return the names of the NodeSets."""
        return [item["metadata"]["name"] for item in self.case.inputs if item["kind"] == "NodeSet"]

    async def _create(self, item: dict[str, Any], field_manager: str) -> Object:
        text = _NAMESPACE.sub(self._stage.namespace, msgspec.json.encode(item).decode())
        body: dict[str, Any] = msgspec.json.decode(text)
        metadata = body["metadata"]
        for name in _SERVER_SIDE:
            metadata.pop(name, None)
        metadata["namespace"] = self._stage.namespace
        for owner in metadata.get("ownerReferences", ()):
            owner["uid"] = self._uids[owner["name"]]
        body.pop("status", None)
        if item["kind"] == "Pod":
            # Where the scheduler put it: its volumes are bound by nobody here.
            terms = body["spec"].get("affinity", {}).get("nodeAffinity", {})
            pinned = re.search(r"kwok-\d+", msgspec.json.encode(terms).decode())
            body["spec"]["nodeName"] = pinned.group() if pinned else _MACHINE
        return await self._stage.client.create(KINDS[item["kind"]], body, field_manager=field_manager)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("01-minimal", True),
        ("04-config-merge", False),
        ("06-nodeset-rich", True),
        ("06-nodeset-rich", False),
        ("07-daemonset", True),
        ("08-external", False),
    ],
    ids=lambda value: value if isinstance(value, str) else ("status" if value else "no status"),
)
async def test_no_worker_notices_the_takeover(
    stage: Stage, node_pool: NodePool, name: str, *, reported: bool
) -> None:
    """Every worker runs on, is protected by one patch, is of the newest revision, and little is written."""
    for node in (_MACHINE, "kwok-00003"):
        await node_pool.add(node)
    await stage.delete(Controller, "slurm")
    migration = Migration(stage, name)
    before = await migration.make()
    if reported:
        await migration.report()
    operator = await stage.operator()
    for nodeset in migration.nodesets:
        await stage.ready(nodeset)
    await quiet(stage, operator)
    after = (await stage.client.list_all(Pod, stage.namespace)).items
    assert {pod.metadata.name: pod.metadata.uid for pod in after} == before
    assert not any(pod.deleting for pod in after)
    status = await stage.status(migration.nodesets[0])
    assert status.updated_replicas == status.replicas
    revisions = {one.metadata.name for one in await stage.revisions()}
    assert revisions == migration.case.made_names("ControllerRevision")
    writes = Counter(operator.writes)
    touched = {write: count for write, count in writes.items() if write.endswith((" pods", "claims"))}
    assert touched == {"patch pods": len(after)}
    assert all(pod.metadata.labels.get(wellknown.LABEL_POD_PROTECT) == "true" for pod in after)
    assert all(node_fit.overdue_tolerations(pod) is None for pod in after)
    assert writes["patch controllerrevisions"] == len(migration.nodesets)
    # What they share gets its new field manager once; a second write adopts what `manager` had set.
    assert writes["apply services"] <= 2 * len(migration.nodesets)
    told = sum(writes.values())
    for _ in range(3):
        await stage.reconcile_again(operator)
    assert len(operator.writes) == told
