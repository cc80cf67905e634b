"""No namespace keeps the workers from the others; on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.controller import PER_NAMESPACE, Controller, Requeue
from slurm_operator.kube.runtime.work_queue import QueueCore
from tests.support.kube.running_controller import A, Things, now, running, sample, thing
from tests.support.virtual_time import virtual_time

# Each key of a namespace that is in work may have had the worker for 50 ms.
MOST_WAIT = 0.5


def namespace(key: Key) -> str:
    return key.namespace


def keys(namespace: str, count: int) -> list[Key]:
    return [Key(namespace, f"{number:03}") for number in range(count)]


# -------------------------------------------------------------------------------------------------- the queue
def test_namespaces_take_turns() -> None:
    """A namespace with a hundred ready keys delays the key of another by one turn."""
    queue: QueueCore[Key] = QueueCore(namespace)
    for key in (*keys("many", 100), *keys("few", 2)):
        queue.add(key, 0.0)
    order = [queue.pop(1.0) for _ in range(5)]
    assert order == [
        Key("many", "000"),
        Key("few", "000"),
        Key("many", "001"),
        Key("few", "001"),
        Key("many", "002"),
    ]
    assert len(queue) == 97


def test_a_quiet_namespace_goes_before_a_hundred_busy_ones() -> None:
    """A key that becomes ready where nothing was for a round is handed out next."""
    queue: QueueCore[Key] = QueueCore(namespace)
    for number in range(100):
        queue.add(Key(f"busy-{number}", "x"), 0.0)

    def work(count: int) -> None:
        for _ in range(count):
            key = queue.pop(0.0)
            assert key is not None
            queue.done(key, 0.0)
            queue.add(key, 0.0)

    for _ in range(3):
        work(250)
        queue.add(Key("quiet", "x"), 0.0)
        assert queue.pop(0.0) == Key("quiet", "x")
        queue.done(Key("quiet", "x"), 0.0)


def test_what_a_user_waits_for_does_not_wait_for_a_round() -> None:
    """An urgent key goes before busy namespaces, also if it waits already or is in work when it is added."""
    queue: QueueCore[Key] = QueueCore(namespace)
    for number in range(100):
        queue.add(Key(f"busy-{number}", "x"), 0.0)
    mine = Key("busy-50", "x")

    def work(count: int) -> list[Key]:
        found = []
        for _ in range(count):
            key = queue.pop(0.0)
            assert key is not None
            queue.done(key, 0.0)
            queue.add(key, 0.0)
            found.append(key)
        return found

    work(300)
    queue.add(mine, 0.0, urgent=True)
    assert work(1) == [mine]
    queue.add(mine, 0.0, urgent=True)
    assert mine not in work(80)
    while (key := queue.pop(0.0)) != mine:
        assert key is not None
        queue.done(key, 0.0)
        queue.add(key, 0.0)
    queue.add(mine, 0.0, urgent=True)
    queue.done(mine, 0.0)
    assert work(1) == [mine]
    assert mine not in work(80)


def test_a_namespace_has_a_bounded_number_of_keys_in_work() -> None:
    """Keys beyond the bound wait for one of their own namespace, and are handed out then."""
    queue: QueueCore[Key] = QueueCore(namespace, 2)
    for key in keys("a", 3):
        queue.add(key, 0.0)
    first, second = queue.pop(0.0), queue.pop(0.0)
    assert first is not None
    assert second is not None
    assert queue.pop(0.0) is None
    assert queue.next_wake(5.0) is None
    queue.add(Key("b", "x"), 1.0)
    assert queue.pop(1.0) == Key("b", "x")
    queue.done(first, 2.0)
    assert queue.pop(2.0) == Key("a", "002")


@given(st.lists(st.tuples(st.sampled_from("ad"), st.sampled_from("xyz"), st.integers(0, 2)), max_size=60))
def test_every_key_is_handed_out_once_within_the_bound(steps: list[tuple[str, str, int]]) -> None:
    """Whatever is added and done in whatever order, no key is lost, none runs twice, no bound is broken."""
    queue: QueueCore[str] = QueueCore(lambda key: key[0], 2)
    owed: set[str] = set()
    work: list[str] = []
    for group, name, action in steps:
        key = group + name
        if action == 0:
            queue.add(key, 0.0)
            owed.add(key)
        elif action == 1 and (popped := queue.pop(0.0)) is not None:
            assert popped in owed
            assert popped not in work
            owed.discard(popped)
            work.append(popped)
        elif action == 2 and work:
            queue.done(work.pop(0), 0.0)
        assert all(sum(one[0] == each for one in work) <= 2 for each in "ad")
        assert len(queue) == len(owed - set(work))
    while work or owed:
        if work:
            queue.done(work.pop(), 0.0)
        while (popped := queue.pop(0.0)) is not None:
            owed.discard(popped)
            work.append(popped)
    assert queue.idle


# --------------------------------------------------------------------------------------------- the controller
@virtual_time
@pytest.mark.parametrize("workers", [1, 4])
async def test_slow_reconciles_of_one_namespace_do_not_hold_up_others(workers: int) -> None:
    """Twenty objects whose reconciles take 300 s cost another namespace seconds, even with one worker."""
    started: dict[Key, float] = {}
    concurrent = most = 0

    async def reconcile(key: Key) -> None:
        nonlocal concurrent, most
        started.setdefault(key, now())
        if key.namespace == "slow":
            concurrent += 1
            most = max(most, concurrent)
            await asyncio.sleep(300)
            concurrent -= 1

    controller = Controller(f"slow-{workers}", reconcile, workers=workers, deadline=600.0)
    async with running(controller):
        for key in (*keys("slow", 20), *keys("other", 20)):
            controller.queue.add(key)
        await asyncio.sleep(60)
        assert max(started[key] for key in keys("other", 20)) <= MOST_WAIT
        assert most == PER_NAMESPACE
        assert sample("controller_runtime_active_workers", controller=f"slow-{workers}") == 0
        await asyncio.sleep(1500)
    assert started.keys() >= {*keys("slow", 20)}


@virtual_time
@pytest.mark.parametrize("seconds", [0.2, 1.0, 3.0])
async def test_long_reconciles_that_never_end_cost_others_a_fraction_of_a_second(seconds: float) -> None:
    """Objects of one namespace that are always due keep the one worker from others for little time each."""
    waited: list[float] = []
    added = 0.0

    async def reconcile(key: Key) -> Requeue | None:
        if key.namespace == "slow":
            await asyncio.sleep(seconds)
            return Requeue(0.001)
        waited.append(now() - added)
        return None

    controller = Controller(f"long-{seconds}", reconcile)
    async with running(controller):
        for key in keys("slow", 20):
            controller.queue.add(key)
        for _ in range(100):
            await asyncio.sleep(0.73)
            added = now()
            controller.queue.add(Key("other", "one"))
        await asyncio.sleep(1)
    assert len(waited) == 100
    assert max(waited) <= MOST_WAIT


@virtual_time
async def test_a_change_in_a_quiet_namespace_does_not_wait_for_a_hundred_busy_ones() -> None:
    """Where each turn takes 20 ms, a hundred namespaces that are always due delay another by a few turns."""
    waited: list[float] = []
    added = 0.0

    async def reconcile(key: Key) -> Requeue | None:
        if key.namespace == "quiet":
            waited.append(now() - added)
            return None
        await asyncio.sleep(0.02)
        return Requeue(0.001)

    controller = Controller("quiet", reconcile)
    async with running(controller):
        for number in range(100):
            controller.queue.add(Key(f"busy-{number}", "x"))
        await asyncio.sleep(10)
        for _ in range(20):
            added = now()
            controller.queue.add(Key("quiet", "x"))
            await asyncio.sleep(4.321)
    assert len(waited) == 20
    assert max(waited) <= 0.1


@virtual_time
async def test_a_change_of_an_object_does_not_wait_for_a_round() -> None:
    """In a namespace that had a turn just now, a change of the object is reconciled within a few turns."""
    waited: list[float] = []
    changed = 0.0
    things = Things()

    async def reconcile(key: Key) -> Requeue | None:
        if key == A:
            found = things.store.get(key)
            waited.append(now() - changed if found and found.metadata.resource_version == "2" else 0.0)
            return None
        await asyncio.sleep(0.02)
        return Requeue(0.001)

    controller = Controller("changed", reconcile).watch(things)
    things.put(thing("a"))
    async with running(controller):
        for number in range(100):
            controller.queue.add(Key(f"busy-{number}", "x"))
        await asyncio.sleep(10)
        controller.queue.add(A)
        await asyncio.sleep(0.5)
        controller.queue.add(A)
        await asyncio.sleep(0.5)
        assert len(waited) == 2
        changed = now()
        things.put(thing("a", 2))
        await asyncio.sleep(5)
    assert len(waited) == 3
    assert waited[-1] <= 0.1


@virtual_time
async def test_as_many_workers_as_asked_for_serve_one_namespace() -> None:
    """Who has one namespace and many workers has all of them for it."""
    concurrent = most = 0

    async def reconcile(_: Key) -> None:
        nonlocal concurrent, most
        concurrent += 1
        most = max(most, concurrent)
        await asyncio.sleep(1)
        concurrent -= 1

    controller = Controller("wide", reconcile, workers=4 * PER_NAMESPACE)
    async with running(controller):
        for key in keys("one", 100):
            controller.queue.add(key)
        await asyncio.sleep(60)
    assert most == 4 * PER_NAMESPACE
