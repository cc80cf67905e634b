"""What reaches a controller's queue and how it is worked off; on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.controller import Controller
from slurm_operator.kube.runtime.sources import Channel, enqueue_self
from tests.support.kube.running_controller import A, B, Thing, Things, running, sample, thing
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from slurm_operator.kube.models.store import Change


@virtual_time
async def test_every_known_object_is_reconciled_once_at_start() -> None:
    """What the cache holds when the controller starts is new to it; what changes later comes again."""
    things = Things()
    things.put(thing("a"))
    things.put(thing("b"))
    seen: list[Key] = []

    async def reconcile(key: Key) -> None:
        seen.append(key)

    controller = Controller("start", reconcile).watch(things)
    assert controller.queue.idle
    async with running(controller):
        await asyncio.sleep(1)
        assert seen == [A, B]
        things.put(thing("a", 2))
        await asyncio.sleep(1)
    assert seen == [A, B, A]
    assert sample("controller_runtime_reconcile_total", controller="start", result="success") == 3


@virtual_time
async def test_channels_are_heard_before_the_controller_runs() -> None:
    """An event sent on a channel before the start is not lost, and equal keys merge."""
    channel: Channel[str] = Channel()
    seen: list[Key] = []

    async def reconcile(key: Key) -> None:
        seen.append(key)

    controller = Controller("channel", reconcile).watch_channel(channel, lambda name: [Key("ns", name)])
    channel.send("a")
    channel.send("a")
    async with running(controller):
        await asyncio.sleep(1)
        channel.send("b")
        await asyncio.sleep(1)
    assert seen == [A, B]


@virtual_time
async def test_a_key_never_runs_twice_at_once() -> None:
    """With many workers, different keys run together and one key never beside itself."""
    active: dict[Key, int] = {}
    together = 0
    runs: list[Key] = []

    async def reconcile(key: Key) -> None:
        nonlocal together
        active[key] = active.get(key, 0) + 1
        assert active[key] == 1
        together = max(together, sum(active.values()))
        runs.append(key)
        await asyncio.sleep(1)
        active[key] -= 1

    controller = Controller("exclusion", reconcile, workers=4)
    async with running(controller):
        for step in range(40):
            controller.queue.add(Key("ns", str(step % 3)))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        assert controller.queue.idle
    assert together == 3
    assert sample("controller_runtime_reconcile_errors_total", controller="exclusion") == 0
    # Forty adds in four seconds, a second per run: the adds during a run become one.
    assert {key: runs.count(key) for key in set(runs)} == {
        Key("ns", "0"): 5,
        Key("ns", "1"): 5,
        Key("ns", "2"): 5,
    }


@virtual_time
async def test_a_mapper_or_predicate_that_fails_harms_nobody_else() -> None:
    """A predicate that fails lets the change through; a mapper that fails costs its own event only."""
    things = Things()
    seen: list[Key] = []

    async def reconcile(key: Key) -> None:
        seen.append(key)

    def broken_predicate(change: Change[Thing]) -> bool:
        raise ValueError(change.key)

    def broken_mapper(change: Change[Thing]) -> list[Key]:
        if change.key == A:
            raise ValueError("cannot map")
        return [change.key]

    controller = Controller("mapping", reconcile)
    controller.watch(things, broken_mapper).watch(things, enqueue_self, broken_predicate)
    with capture_logs() as lines:
        async with running(controller):
            things.put(thing("a"))
            things.put(thing("b"))
            await asyncio.sleep(1)
    assert sorted(seen) == [A, B]
    assert [(line["event"].split(";")[0], line["object"]) for line in lines] == [
        ("an event could not be mapped to keys", "ns/a"),
        ("a predicate failed", "ns/a"),
        ("a predicate failed", "ns/b"),
    ]


@virtual_time
async def test_a_predicate_filters_changes() -> None:
    """A change that the predicate refuses does not reach the queue."""
    things = Things()
    seen: list[Key] = []

    async def reconcile(key: Key) -> None:
        seen.append(key)

    controller = Controller("filter", reconcile).watch(things, predicate=lambda change: change.key == B)
    async with running(controller):
        things.put(thing("a"))
        things.put(thing("b"))
        await asyncio.sleep(1)
    assert seen == [B]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers of controller x must be at least 1"),
        ({"deadline": float("inf")}, "deadline of controller x must be"),
        ({"stuck_after": 0.0}, "stuck_after of controller x must be"),
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    """A setting without sense is an error that names it and the controller."""

    async def reconcile(_: Key) -> None: ...

    with pytest.raises(ValueError, match=message):
        Controller("x", reconcile, **arguments)
