"""What the tests of a controller share: a source without a server, and a controller that runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from slurm_operator.kube.models.meta import Key, Object, ObjectMeta, Resource
from slurm_operator.kube.models.store import Change, Store
from slurm_operator.kube.process import metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.kube.runtime.controller import Controller

A, B = Key("ns", "a"), Key("ns", "b")


class Thing(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "things", "Thing")


def thing(name: str, version: int = 1) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, namespace="ns", uid=name, resource_version=str(version)))


class Things:
    """A source without a server: a store that somebody writes to."""

    def __init__(self) -> None:
        self.store: Store[Thing] = Store()
        self._handlers: list[Callable[[Change[Thing]], None]] = []

    def add_handler(self, handler: Callable[[Change[Thing]], None], /) -> None:
        self._handlers.append(handler)
        for found in self.store.list():
            handler(Change(None, found))

    def put(self, new: Thing) -> None:
        for change in self.store.put(new):
            for handler in self._handlers:
                handler(change)


def now() -> float:
    return asyncio.get_running_loop().time()


def sample(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def running(controller: Controller) -> AsyncIterator[None]:
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        await controller.stop(0.0)
        async with asyncio.timeout(600):
            await task
