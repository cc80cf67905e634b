"""Objects that must not exist yet, and objects that must still be the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.errors import AlreadyExists, Conflict
from slurm_operator.kube.models.kinds import ConfigMap, Deployment, Service
from slurm_operator.kube.runtime.apply import Applier, ApplyOutcome
from tests.support.kube.counted_client import config_map, deployment, managers, raw

if TYPE_CHECKING:
    from tests.support.kube.counted_client import Watched


async def test_what_was_created_counts_as_applied(watched: Watched, kube_namespace: str) -> None:
    """Fields of a create are owned like those of an apply: what is not wanted later goes."""
    wish = deployment(kube_namespace)
    made = await watched.applier.create(wish, Deployment)
    assert made.outcome is ApplyOutcome.CREATED
    assert ("slurm-operator", "Update") not in managers(
        await raw(watched.client, Deployment, "web", kube_namespace)
    )
    watched.taken()
    assert (await watched.applier.apply(wish, made.object, Deployment)).outcome is ApplyOutcome.UNCHANGED
    assert watched.taken() == []
    del wish["metadata"]["labels"]
    changed = await watched.applier.apply(wish, made.object, Deployment)
    assert changed.object is not None
    assert changed.object.metadata.labels == {}


SERVICE = {"spec": {"selector": {"app": "web"}, "ports": [{"name": "web", "port": 80}]}}


@pytest.mark.parametrize("kind", [Deployment, Service, ConfigMap], ids=lambda kind: kind.__name__)
async def test_a_restart_writes_nothing_to_what_was_created(
    watched: Watched, kube_namespace: str, kind: type[Any]
) -> None:
    """What the server filled in is not ours, so the first apply of the next process has nothing to change."""
    metadata = config_map(kube_namespace)["metadata"]
    wishes: dict[Any, dict[str, Any]] = {
        Deployment: deployment(kube_namespace),
        Service: SERVICE | {"metadata": metadata},
        ConfigMap: config_map(kube_namespace, a="1"),
    }
    wish = wishes[kind]
    made = await watched.applier.create(wish, kind)
    assert made.object is not None
    before = await raw(watched.client, kind, made.object.metadata.name, kube_namespace)
    again = await Applier(watched.client).apply(wish, made.object, kind, same=True)
    assert again.outcome is ApplyOutcome.UNCHANGED
    assert await raw(watched.client, kind, made.object.metadata.name, kube_namespace) == before


async def test_nothing_of_somebody_else_is_taken(watched: Watched, kube_namespace: str) -> None:
    """A create meets an object that somebody made a moment before, and changes nothing of it."""
    await watched.client.create(ConfigMap, config_map(kube_namespace, theirs="1"), field_manager="user")
    before = await raw(watched.client, ConfigMap, "conf", kube_namespace)
    with pytest.raises(AlreadyExists):
        await watched.applier.create(config_map(kube_namespace, ours="1"), ConfigMap)
    assert await raw(watched.client, ConfigMap, "conf", kube_namespace) == before


async def test_of_many_creators_one_wins(watched: Watched, kube_namespace: str) -> None:
    """However many try at the same moment, one object is made, by one of them."""
    wishes = [config_map(kube_namespace, number=str(number)) for number in range(8)]
    done = await asyncio.gather(
        *(Applier(watched.client).create(wish, ConfigMap) for wish in wishes), return_exceptions=True
    )
    made = [one for one in done if not isinstance(one, BaseException)]
    assert len(made) == 1
    assert all(isinstance(one, AlreadyExists) for one in done if isinstance(one, BaseException))


async def test_a_create_that_was_cut_off_is_finished(watched: Watched, kube_namespace: str) -> None:
    """An object whose maker died before it owned it by an apply loses what is not wanted all the same."""
    wish = deployment(kube_namespace)
    live = await watched.client.create(Deployment, wish)
    del wish["metadata"]["labels"]
    changed = await watched.applier.apply(wish, live, Deployment, same=True)
    assert changed.object is not None
    assert changed.object.metadata.labels == {}


async def test_only_the_same_object_is_changed(watched: Watched, kube_namespace: str) -> None:
    """An object that took the place of the one that was looked at is left alone, and so is an empty place."""
    live = await watched.client.create(ConfigMap, config_map(kube_namespace, a="1"))
    await watched.client.delete(ConfigMap, "conf", kube_namespace)
    with pytest.raises(Conflict):
        await watched.applier.apply(config_map(kube_namespace, a="2"), live, ConfigMap, same=True)
    await watched.client.create(ConfigMap, config_map(kube_namespace, theirs="1"), field_manager="user")
    with pytest.raises(Conflict):
        await watched.applier.apply(config_map(kube_namespace, a="2"), live, ConfigMap, same=True)
    assert (await watched.client.get(ConfigMap, "conf", kube_namespace)).data == {"theirs": "1"}
