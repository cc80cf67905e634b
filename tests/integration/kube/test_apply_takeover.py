"""Objects that Slinky slurm-operator made: its fields become ours, or go."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.errors import Conflict, FencedError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Deployment, StatefulSet
from slurm_operator.kube.runtime.apply import Applier, ApplyOutcome
from tests.support.kube.counted_client import OWNER, Watched, config_map, deployment, labelled, managers, raw

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from kubebox import Box
    from slurm_operator.kube.client.config import ClientConfig

TAKEOVER = ("slurm-operator-takeover", "Apply")


class AtWrite:
    """A fence that does something before some of the writes of a client, counted from one."""

    def __init__(self, numbers: Container[int], act: Callable[[], object]) -> None:
        self.writes = 0
        self._numbers, self._act = numbers, act

    def __call__(self) -> None:
        self.writes += 1
        if self.writes in self._numbers:
            self._act()


def lose_the_lease() -> None:
    raise FencedError("the lease is lost")


async def made_by_go(client: Client, namespace: str) -> Deployment:
    """Create a Deployment as Slinky slurm-operator would, with some things that we do not want."""
    body = deployment(namespace)
    body["metadata"]["labels"]["old"] = "1"
    body["metadata"]["annotations"] = {"old": "1"}
    main = body["spec"]["template"]["spec"]["containers"][0]
    main["env"].append({"name": "OLD", "value": "1"})
    main["securityContext"] = {"privileged": True}
    return await client.create(Deployment, body, field_manager="manager")


async def test_fields_of_the_go_operator_are_taken_over(watched: Watched, kube_namespace: str) -> None:
    """What Slinky slurm-operator set and we do not want disappears; what users set stays."""
    await made_by_go(watched.client, kube_namespace)
    live = await labelled(watched.client, kube_namespace, by="kubectl-edit")
    watched.taken()
    applied = await watched.applier.apply(deployment(kube_namespace), live, Deployment)
    assert applied.outcome is ApplyOutcome.UPDATED
    assert watched.taken() == ["apply", "patch", "apply"]
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    main = body["spec"]["template"]["spec"]["containers"][0]
    assert body["metadata"]["labels"] == {"mine": "1", "theirs": "1"}
    assert "annotations" not in body["metadata"]
    assert main["env"] == [{"name": "A", "value": "1"}]
    assert "securityContext" not in main
    assert managers(body) == {("slurm-operator", "Apply"), ("kubectl-edit", "Update")}


async def test_without_a_takeover_the_fields_would_stay(watched: Watched, kube_namespace: str) -> None:
    """The rule above is not the server's doing: a plain apply leaves what another manager set."""
    live = await made_by_go(watched.client, kube_namespace)
    plain = Applier(watched.client, predecessors=())
    await plain.apply(deployment(kube_namespace), live, Deployment)
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    assert body["metadata"]["labels"] == {"mine": "1", "old": "1"}


async def test_taking_over_equal_content_restarts_nothing(watched: Watched, kube_namespace: str) -> None:
    """When Slinky slurm-operator made the very same object, its generation does not move."""
    live = await watched.client.create(Deployment, deployment(kube_namespace), field_manager="manager")
    applied = await watched.applier.apply(deployment(kube_namespace), live, Deployment)
    assert applied.outcome is ApplyOutcome.UNCHANGED
    assert applied.object is not None
    assert applied.object.metadata.generation == live.metadata.generation == 1
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    assert [entry["manager"] for entry in body["metadata"]["managedFields"]] == ["slurm-operator"]


async def test_a_takeover_happens_once(watched: Watched, kube_namespace: str) -> None:
    """A restarted operator applies each object once and finds nothing more to do."""
    live = await made_by_go(watched.client, kube_namespace)
    first = await watched.applier.apply(deployment(kube_namespace), live, Deployment)
    watched.taken()
    restarted = Applier(watched.client)
    again = await restarted.apply(deployment(kube_namespace), first.object, Deployment)
    assert again.outcome is ApplyOutcome.UNCHANGED
    assert watched.taken() == ["apply"]


async def test_another_program_called_manager_keeps_its_fields(watched: Watched, kube_namespace: str) -> None:
    """Only who set the owner reference counts as maker; other programs of that name are not robbed."""
    first = await watched.applier.apply(deployment(kube_namespace), None, Deployment)
    live = await labelled(watched.client, kube_namespace, by="manager")
    assert first.object is not None
    await Applier(watched.client).apply(deployment(kube_namespace), live, Deployment)
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    assert body["metadata"]["labels"] == {"mine": "1", "theirs": "1"}


def status_written(box: Box, namespace: str) -> Callable[[], object]:
    """Return what writes the status of the Deployment, another one each time, as its controller does."""
    numbers = itertools.count(1)

    def write() -> None:
        patch = json.dumps({"status": {"observedGeneration": next(numbers)}})
        what = ("deployment/web", "--subresource=status", "--type=merge", f"--patch={patch}")
        box.kubectl("patch", *what, "--field-manager=kube-controller-manager", "-n", namespace)

    return write


async def test_a_takeover_outruns_who_writes_the_status(
    config: ClientConfig, kube_box: Box, kube_namespace: str
) -> None:
    """When the object changes between the steps, they are done again at once, and nobody hears of it."""
    fence = AtWrite({2, 4}, status_written(kube_box, kube_namespace))
    async with Client(config) as client:
        live = await made_by_go(client, kube_namespace)
    async with Client(config, fence=fence) as client:
        applier = Applier(client)
        with structlog.testing.capture_logs() as lines:
            applied = await applier.apply(deployment(kube_namespace), live, Deployment, same=True)
        assert fence.writes == 7
        assert [line["log_level"] for line in lines] == ["info"]
        body = await raw(client, Deployment, "web", kube_namespace)
        assert body["metadata"]["labels"] == {"mine": "1"}
        assert "annotations" not in body["metadata"]
        assert managers(body) == {("slurm-operator", "Apply"), ("kube-controller-manager", "Update")}
        assert applied.object == await client.get(Deployment, "web", kube_namespace)
        again = await applier.apply(deployment(kube_namespace), applied.object, Deployment, same=True)
        assert again.outcome is ApplyOutcome.UNCHANGED
        assert fence.writes == 7


async def test_an_edit_during_a_takeover_does_not_stay(
    config: ClientConfig, kube_box: Box, kube_namespace: str
) -> None:
    """What somebody made of our fields between two tries is put right by the second."""
    scale = ("scale", "deployment/web", "--replicas=7", "-n", kube_namespace)
    async with Client(config) as client:
        live = await made_by_go(client, kube_namespace)
    async with Client(config, fence=AtWrite({2}, lambda: kube_box.kubectl(*scale))) as client:
        await Applier(client).apply(deployment(kube_namespace), live, Deployment)
        assert (await client.get(Deployment, "web", kube_namespace)).spec.replicas == 1


async def test_a_takeover_that_is_always_outrun_gives_up(
    config: ClientConfig, kube_box: Box, kube_namespace: str
) -> None:
    """After a few tries the apply fails with Conflict, and starts over next time."""
    fence = AtWrite(range(2, 100, 2), status_written(kube_box, kube_namespace))
    async with Client(config) as client:
        live = await made_by_go(client, kube_namespace)
        async with Client(config, fence=fence) as racing:
            with pytest.raises(Conflict):
                await Applier(racing).apply(deployment(kube_namespace), live, Deployment)
        assert 2 < fence.writes < 20
        await Applier(client).apply(deployment(kube_namespace), live, Deployment)
        body = await raw(client, Deployment, "web", kube_namespace)
        assert body["metadata"]["labels"] == {"mine": "1"}


async def test_another_object_of_the_name_is_not_taken_over(
    config: ClientConfig, kube_box: Box, kube_namespace: str
) -> None:
    """When another object took the place of the one that was looked at, it stays as it was made."""
    deletion = ("deployment/web", "-n", kube_namespace)
    theirs = deployment(kube_namespace) | {"apiVersion": "apps/v1", "kind": "Deployment"}
    theirs["spec"]["replicas"] = 3

    def replace() -> None:
        kube_box.kubectl("delete", *deletion)
        kube_box.kubectl("create", "--filename=-", "--field-manager=manager", stdin=json.dumps(theirs))

    async with Client(config) as client:
        live = await made_by_go(client, kube_namespace)
        async with Client(config, fence=AtWrite({2}, replace)) as racing:
            with pytest.raises(Conflict):
                await Applier(racing).apply(deployment(kube_namespace), live, Deployment)
        body = await raw(client, Deployment, "web", kube_namespace)
        assert body["metadata"]["uid"] != live.metadata.uid
        assert body["spec"]["replicas"] == 3
        assert managers(body) == {("manager", "Update")}


async def test_an_object_deleted_meanwhile_is_not_created_empty(
    config: ClientConfig, kube_box: Box, kube_namespace: str
) -> None:
    """When the object goes away before its fields are cleaned up, the apply fails and nothing appears."""
    fence = AtWrite({3}, lambda: kube_box.kubectl("delete", "configmap/conf", "-n", kube_namespace))
    desired = config_map(kube_namespace, a="1")
    desired["metadata"]["ownerReferences"] = [OWNER]
    async with Client(config) as client:
        live = await client.create(ConfigMap, desired, field_manager="manager")
        async with Client(config, fence=fence) as racing:
            with pytest.raises(Conflict):
                await Applier(racing).apply(desired, live, ConfigMap)
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "conf", kube_namespace)


async def test_without_an_owner_nothing_is_taken(watched: Watched, kube_namespace: str) -> None:
    """An object that nobody owns shows no maker, so whoever is called `manager` keeps its fields."""
    body = config_map(kube_namespace, a="1", theirs="1")
    live = await watched.client.create(ConfigMap, body, field_manager="manager")
    await watched.applier.apply(config_map(kube_namespace, a="2"), live, ConfigMap)
    body = await raw(watched.client, ConfigMap, "conf", kube_namespace)
    assert body["data"] == {"a": "2", "theirs": "1"}
    assert ("manager", "Update") in managers(body)


def stateful_set(namespace: str, image: str = "example.org/main:1") -> dict[str, Any]:
    body = deployment(namespace)
    body["spec"]["serviceName"] = "web"
    body["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return body


async def stuck(client: Client, namespace: str) -> StatefulSet:
    """Create a StatefulSet as Slinky slurm-operator would, with an immutable field that we do not want."""
    body = stateful_set(namespace)
    body["spec"]["podManagementPolicy"] = "Parallel"
    return await client.create(StatefulSet, body, field_manager="manager")


async def test_a_field_that_cannot_be_removed_stays(watched: Watched, kube_namespace: str) -> None:
    """An immutable field of Slinky slurm-operator costs a warning; what we want is applied, now and later."""
    live = await stuck(watched.client, kube_namespace)
    with structlog.testing.capture_logs() as lines:
        first = await watched.applier.apply(stateful_set(kube_namespace), live, StatefulSet)
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [line["event"] for line in warnings] == [
        "cannot remove fields that a previous operator set; they are kept"
    ]
    assert warnings[0]["key"] == f"{kube_namespace}/web"
    assert first.object == await watched.client.get(StatefulSet, "web", kube_namespace)
    watched.taken()
    again = await watched.applier.apply(stateful_set(kube_namespace), first.object, StatefulSet)
    assert again.outcome is ApplyOutcome.UNCHANGED
    assert watched.taken() == []
    newer = stateful_set(kube_namespace, image="example.org/main:2")
    second = await watched.applier.apply(newer, first.object, StatefulSet)
    assert second.outcome is ApplyOutcome.UPDATED
    third = await Applier(watched.client).apply(stateful_set(kube_namespace), second.object, StatefulSet)
    assert third.outcome is ApplyOutcome.UPDATED
    body = await raw(watched.client, StatefulSet, "web", kube_namespace)
    assert body["spec"]["podManagementPolicy"] == "Parallel"
    assert body["spec"]["template"]["spec"]["containers"][0]["image"] == "example.org/main:1"


async def test_a_takeover_that_was_cut_off_is_finished(
    watched: Watched, config: ClientConfig, kube_namespace: str
) -> None:
    """When the process loses its lease half-way, its successor removes what is not wanted."""
    live = await made_by_go(watched.client, kube_namespace)
    async with Client(config, fence=AtWrite({3}, lose_the_lease)) as fenced:
        with pytest.raises(FencedError):
            await Applier(fenced).apply(deployment(kube_namespace), live, Deployment)
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    assert managers(body) == {("slurm-operator", "Apply"), TAKEOVER}
    live = await watched.client.get(Deployment, "web", kube_namespace)
    watched.taken()
    await watched.applier.apply(deployment(kube_namespace), live, Deployment)
    assert watched.taken() == ["apply", "apply"]
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    assert body["metadata"]["labels"] == {"mine": "1"}
    assert managers(body) == {("slurm-operator", "Apply")}
