"""Workloads that Slinky slurm-operator created, on a real API server, migrated to our own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Deployment, StatefulSet
from slurm_operator.kube.runtime.apply import Applier
from slurm_operator.objects.migration import settle
from slurm_operator.objects.slurmctld_claim import keep_claims
from tests.support.objects.golden_cases import WORLDS, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box
    from slurm_operator.objects.desired import Manifest

_KINDS: dict[str, type[StatefulSet | Deployment]] = {"StatefulSet": StatefulSet, "Deployment": Deployment}


@pytest.fixture
async def client(kube_box: Box) -> AsyncIterator[Client]:
    """Hand out an open client on the shared API server."""
    async with Client(load_config(str(kube_box.kubeconfig))) as opened:
        yield opened


async def _stored(client: Client, item: Manifest, namespace: str) -> Manifest:
    path = _KINDS[item["kind"]].RESOURCE.path(namespace, item["metadata"]["name"])
    stored: Manifest = json.loads(await client.raw("GET", path))
    return stored


def _desired(item: Manifest, live: Manifest) -> Manifest:
    settled = settle(item, live)
    return keep_claims(settled, live["spec"].get("volumeClaimTemplates", []))[0]


async def _taken_over(client: Client, item: Manifest, recorded: Manifest, namespace: str) -> tuple[Any, Any]:
    """Create a workload as the reference did, apply ours over it, and return it before and after."""
    kind = _KINDS[item["kind"]]
    recorded["metadata"]["namespace"] = namespace
    recorded["metadata"]["ownerReferences"] = item["metadata"]["ownerReferences"]
    live = await client.create(kind, recorded, field_manager="manager")
    before = await _stored(client, item, namespace)
    await Applier(client).apply(_desired(item, before), live, kind)
    return before, await _stored(client, item, namespace)


@pytest.mark.parametrize(
    "name", ["01-minimal", "02-accounting", "03-login", "04-config-merge", "08-external"]
)
async def test_a_takeover_restarts_nothing(client: Client, kube_namespace: str, name: str) -> None:
    """A workload of the reference is not changed by ours: its pods stay, and its fields become ours."""
    seen = world(WORLDS[name].case, kube_namespace)
    for item in seen.workloads():
        before, after = await _taken_over(client, item, seen.running(item, kube_namespace), kube_namespace)
        assert after["spec"] == before["spec"]
        if item["kind"] == "StatefulSet":  # a Deployment's generation counts changed annotations, too
            assert after["metadata"]["generation"] == before["metadata"]["generation"]
        owned = {entry["manager"] for entry in after["metadata"]["managedFields"]}
        assert owned == {"slurm-operator"}


async def test_the_next_change_brings_everything(client: Client, kube_namespace: str) -> None:
    """After a migration, one real change is one new template, with all that is ours in it."""
    seen = world(WORLDS["01-minimal"].case, kube_namespace)
    item = next(item for item in seen.workloads() if item["kind"] == "StatefulSet")
    _, after = await _taken_over(client, item, seen.running(item, kube_namespace), kube_namespace)
    item["spec"]["template"]["spec"]["containers"][0]["image"] = "example.org/slurmctld:new"
    await Applier(client).apply(_desired(item, after), None, StatefulSet)
    changed = await _stored(client, item, kube_namespace)
    assert changed["metadata"]["generation"] == after["metadata"]["generation"] + 1
    assert changed["spec"]["template"]["metadata"]["labels"] == item["spec"]["template"]["metadata"]["labels"]
    await Applier(client).apply(_desired(item, changed), None, StatefulSet)
    assert (await _stored(client, item, kube_namespace))["metadata"]["generation"] == changed["metadata"][
        "generation"
    ]
