"""Requests at a time, shared between namespaces; on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from slurm_operator.kube.client.calls import ApiCall, object_call
from slurm_operator.kube.client.slots import Slots
from slurm_operator.kube.client.transport import group_of
from slurm_operator.kube.models.kinds import Node, Pod
from tests.support.kube.running_controller import now
from tests.support.virtual_time import virtual_time


class Log:
    """Holds slots for a time, and notes who had how many when."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.started: list[tuple[str, float]] = []
        self.busy: dict[str, int] = {}
        self.most: dict[str, int] = {}

    async def hold(self, group: str, seconds: float) -> None:
        async with self.slots.taken(group):
            self.started.append((group, now()))
            self.busy[group] = self.busy.get(group, 0) + 1
            self.most[group] = max(self.most.get(group, 0), self.busy[group])
            assert sum(self.busy.values()) <= 64
            try:
                await asyncio.sleep(seconds)
            finally:
                self.busy[group] -= 1


@virtual_time
async def test_slow_requests_of_one_namespace_leave_slots_to_others() -> None:
    """A thousand requests that take 30 s each have three quarters of the slots; others start at once."""
    log = Log(Slots(64))
    slow = [asyncio.create_task(log.hold("slow", 30)) for _ in range(1000)]
    await asyncio.sleep(1)
    for _ in range(20):
        await log.hold("other", 0.1)
    assert now() < 4
    await asyncio.gather(*slow)
    assert log.most == {"slow": 48, "other": 1}


@virtual_time
async def test_namespaces_that_wait_take_turns() -> None:
    """A free slot goes to the namespace whose turn it is; one with its share waits behind the others."""
    log = Log(Slots(1))
    tasks = [asyncio.create_task(log.hold(group, 1)) for group in ("a", "a", "a", "b", "c", "c")]
    await asyncio.gather(*tasks)
    assert [group for group, _ in log.started] == ["a", "b", "c", "a", "c", "a"]


@virtual_time
async def test_a_request_of_a_quiet_namespace_goes_before_those_of_busy_ones() -> None:
    """While ninety namespaces always wait for slots, a single request waits for a few others to end."""
    log = Log(Slots(64))
    busy = [asyncio.create_task(log.hold(f"ns-{number % 90}", 1)) for number in range(2000)]
    for _ in range(3):
        await asyncio.sleep(5.5)
        asked = now()
        await log.hold("quiet", 0)
        assert now() - asked <= 1
    assert len(log.started) < len(busy)
    await asyncio.gather(*busy)


@virtual_time
async def test_a_turn_of_the_event_loop_hands_out_a_few_slots() -> None:
    """Of sixty requests that come at once, a few begin in each turn, so that none is long; all begin soon."""
    log = Log(Slots(64))
    tasks = [asyncio.create_task(log.hold(f"ns-{number % 7}", 1)) for number in range(60)]
    began = []
    for _ in range(20):
        before = len(log.started)
        await asyncio.sleep(0)
        began.append(len(log.started) - before)
    assert sum(began) == 60
    assert max(began) <= 16
    await asyncio.gather(*tasks)
    assert now() < 2


@virtual_time
@pytest.mark.parametrize("most", [1, 2, 64])
async def test_cancelled_requests_lose_no_slot(most: int) -> None:
    """Whoever stops to wait, before or in the moment of being served, gives the slot to the next."""
    log = Log(Slots(most))
    for step in range(200):
        tasks = [asyncio.create_task(log.hold(f"ns-{number % 3}", 0.01)) for number in range(2 * most + 3)]
        await asyncio.sleep(0 if step % 2 else 0.01)
        for task in tasks[step % 3 :: 2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    free = asyncio.gather(*(log.hold(f"ns-{number}", 5) for number in range(most)))
    start = now()
    await free
    assert now() - start == pytest.approx(5)


@pytest.mark.parametrize(
    ("call", "group"),
    [
        (object_call("GET", "get", Pod, "p", "team-a"), "team-a"),
        (object_call("PATCH", "patch", Pod, "p", "team-a", subresource="status"), "team-a"),
        (object_call("GET", "get", Node, "namespaces", ""), ""),
    ],
)
def test_the_group_of_a_request_is_its_namespace(call: ApiCall, group: str) -> None:
    """What concerns no namespace is a group of its own."""
    assert group_of(call) == group
