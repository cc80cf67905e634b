"""What every informer test asks in the end: does the store equal a fresh list, and does the informer live?"""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic

from slurm_operator.kube.decide.reflector_state import InformerTiming, Ramp
from slurm_operator.kube.models.kinds import ConfigMap
from slurm_operator.kube.models.meta import Key, T

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.kube.cache.informer import Informer
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.client.config import ClientConfig
    from slurm_operator.kube.models.store import Change

DEADLINE = 60.0
# The tests break things on purpose and need not wait like a production server would want them to.
HASTY = InformerTiming(retry=Ramp(0.05, 0.5), denied=Ramp(0.1, 0.5), missing=Ramp(0.1, 0.5))
# For silence on purpose: no bookmark comes so soon, so a quiet kind is listed again and again.
IMPATIENT = dataclasses.replace(HASTY, idle=2.0)


class Mirror(Generic[T]):
    """A handler that rebuilds the store from the changes alone and notes whatever does not fit."""

    def __init__(self) -> None:
        self.view: dict[Key, T] = {}
        self.changes: list[Change[T]] = []
        self.faults: list[str] = []

    def __call__(self, change: Change[T]) -> None:
        self.changes.append(change)
        if change.old is not self.view.get(change.key):
            self.faults.append(f"{change.key}: the change does not continue what came before")
        if change.updated and change.old is not None and change.new is not None:
            if change.old.metadata.uid != change.new.metadata.uid:
                self.faults.append(f"{change.key}: an update changed the UID")
            if int(change.old.metadata.resource_version) > int(change.new.metadata.resource_version):
                self.faults.append(f"{change.key}: an update went back in time")
        if change.new is None:
            self.view.pop(change.key, None)
        else:
            self.view[change.key] = change.new

    def of(self, name: str) -> list[tuple[str, str]]:
        """Return what happened to the objects of a name, as (what, UID)."""
        return [
            (
                "added" if change.added else "deleted" if change.deleted else "updated",
                change.object.metadata.uid,
            )
            for change in self.changes
            if change.key.name == name
        ]


async def wait_until(condition: Callable[[], bool], what: str, deadline: float = DEADLINE) -> None:
    """Return when a condition holds; fail with its description when it does not within the deadline."""
    with suppress(TimeoutError):
        async with asyncio.timeout(deadline):
            while not condition():  # noqa: ASYNC110 - any condition, without a hook for an event
                await asyncio.sleep(0.02)
    assert condition(), f"not within {deadline:g} s: {what}"


@asynccontextmanager
async def running(informer: Informer[T], *, synced: bool = True) -> AsyncIterator[Mirror[T]]:
    """Run an informer with a mirror; it must not end by itself."""
    mirror: Mirror[T] = Mirror()
    informer.add_handler(mirror)
    task = asyncio.create_task(informer.run())
    try:
        if synced:
            await wait_until(lambda: informer.synced or task.done(), "informer synced")
        yield mirror
        assert not task.done(), "the informer ended"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert not mirror.faults


async def assert_same_as_fresh_list(
    informer: Informer[T],
    client: Client,
    mirror: Mirror[T] | None = None,
    namespaces: tuple[str, ...] = ("",),
) -> None:
    """Wait until the store equals a fresh list, object by object and version by version."""
    difference: object = "never compared"
    with suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE):
            while difference := await _difference(informer, client, namespaces):  # noqa: ASYNC110 - the server's side has no event
                await asyncio.sleep(0.1)
    assert not difference, f"the store differs from a fresh list: {difference}"
    if mirror is not None:
        assert mirror.view == {obj.key: obj for obj in informer.store.list()}


async def _difference(informer: Informer[T], client: Client, namespaces: tuple[str, ...]) -> object:
    fresh: dict[Key, tuple[str, str]] = {}
    bad: set[Key] = set()
    for namespace in namespaces:
        page = await client.list_all(informer.kind, namespace)
        fresh |= {obj.key: (obj.metadata.uid, obj.metadata.resource_version) for obj in page.items}
        bad |= {item.key for item in page.bad}
    store = informer.store
    mine = {
        obj.key: (obj.metadata.uid, obj.metadata.resource_version)
        for obj in store.list()
        if obj.key not in store.unreadable
    }
    wrong = dict(sorted(mine.items() ^ fresh.items())[:5])
    return wrong or (set(store.unreadable) ^ bad)


def through(config: ClientConfig, url: str) -> ClientConfig:
    """Return the same credentials for another address of the server."""
    return dataclasses.replace(config, server=url)


def names(informer: Informer[T]) -> set[str]:
    return {obj.metadata.name for obj in informer.store.list()}


def config_map(name: str, namespace: str, data: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"of": "tests"}},
        "data": {"v": data},
    }


async def create_config_maps(client: Client, namespace: str, *names: str) -> list[ConfigMap]:
    return await asyncio.gather(*(client.create(ConfigMap, config_map(name, namespace)) for name in names))
