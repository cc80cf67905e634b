"""Reconciles that take too long, hang, or will not stop; on virtual time."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from slurm_operator.kube.decide.backoff import Backoff
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.process import metrics
from slurm_operator.kube.process.watchdog import await_stack
from slurm_operator.kube.runtime.controller import Controller
from tests.support.virtual_time import virtual_time

UNFINISHED = "workqueue_unfinished_work_seconds"
A, B = Key("ns", "a"), Key("ns", "b")


def now() -> float:
    return asyncio.get_running_loop().time()


def sample(name: str, controller: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, {"controller": controller}) or 0.0


async def hang() -> None:
    await asyncio.Event().wait()


async def ignore_cancellation(until: asyncio.Event) -> None:
    while not until.is_set():
        try:
            await until.wait()
        except asyncio.CancelledError:
            continue


@virtual_time
async def test_a_reconcile_has_a_deadline() -> None:
    """A reconcile that hangs is cut off at its deadline, the log says where, and the key is retried."""
    starts: list[float] = []

    async def reconcile(_: Key) -> None:
        starts.append(now())
        if len(starts) == 1:
            await hang()

    controller = Controller("deadline", reconcile, deadline=30.0, backoff=Backoff(1.0))
    run = asyncio.create_task(controller.run())
    with capture_logs() as lines:
        controller.queue.add(A)
        await asyncio.sleep(60)
    assert starts == [0.0, 31.0]
    assert lines[0]["error"].startswith("TimeoutError: the reconcile did not end within 30 s; it waited at ")
    assert "in reconcile > test_controller_deadline.py" in lines[0]["error"]
    assert "in hang" in lines[0]["error"]
    assert sample("controller_runtime_reconcile_timeouts_total", "deadline") == 1
    await controller.stop(0.0)
    await run


@virtual_time
async def test_a_timeout_of_its_own_is_not_the_deadline() -> None:
    """A TimeoutError that the reconcile itself raises keeps its message and is not counted as a deadline."""
    attempts = 0

    async def reconcile(_: Key) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise TimeoutError("slurmrestd is slow")

    controller = Controller("own-timeout", reconcile)
    run = asyncio.create_task(controller.run())
    with capture_logs() as lines:
        controller.queue.add(A)
        await asyncio.sleep(60)
    assert [line["error"] for line in lines] == ["TimeoutError: slurmrestd is slow"]
    assert sample("controller_runtime_reconcile_timeouts_total", "own-timeout") == 0
    await controller.stop(0.0)
    await run


@virtual_time
async def test_a_reconcile_that_ignores_cancellation_does_not_keep_its_worker() -> None:
    """The only worker goes on with other keys; the key itself is not run beside the endless call."""
    release = asyncio.Event()
    starts: dict[Key, list[float]] = {A: [], B: []}

    async def reconcile(key: Key) -> None:
        starts[key].append(now())
        if key == A and len(starts[A]) == 1:
            await ignore_cancellation(release)
            raise OSError("ended at last")

    controller = Controller(
        "stubborn", reconcile, deadline=30.0, cancel_grace=5.0, stuck_after=1000.0, backoff=Backoff(1.0)
    )
    run = asyncio.create_task(controller.run())
    with capture_logs() as lines:
        controller.queue.add(A)
        controller.queue.add(B)
        await asyncio.sleep(100)
        assert starts == {A: [0.0], B: [0.05]}
        assert [line["event"] for line in lines] == ["the reconcile ignores its cancellation"]
        assert "in ignore_cancellation" in lines[0]["waits_at"]
        assert sample("controller_runtime_active_workers", "stubborn") == 0
        controller.queue.add(A)
        await asyncio.sleep(100)
        assert starts[A] == [0.0]
        release.set()
        await asyncio.sleep(100)
    # Added meanwhile, so it runs at once when the first call ends; and again for the failure of that call.
    assert starts[A] == [0.0, 200.0, 201.0]
    assert lines[-1]["error"] == "OSError: ended at last"
    assert await controller.stop(0.0) == []
    await run


@virtual_time
async def test_an_abandoned_call_is_cancelled_again() -> None:
    """The watchdog repeats the cancellation of a call that swallowed the first, and the key is retried."""
    starts: list[float] = []

    async def reconcile(_: Key) -> None:
        starts.append(now())
        if len(starts) > 1:
            return
        try:
            await hang()
        except asyncio.CancelledError:
            await hang()

    controller = Controller("twice", reconcile, deadline=30.0, cancel_grace=5.0, stuck_after=60.0)
    run = asyncio.create_task(controller.run())
    with capture_logs() as lines:
        controller.queue.add(A)
        await asyncio.sleep(500)
    assert len(starts) == 2
    assert "was cancelled at its deadline and ended only now" in lines[-1]["error"]
    await controller.stop(0.0)
    await run


@virtual_time
async def test_the_watchdog_reports_a_stuck_key_once_per_period() -> None:
    """A key in work for too long is reported with the place where it waits, once per period."""
    release = asyncio.Event()

    async def wait_for_slurm() -> None:
        await release.wait()

    async def reconcile(key: Key) -> None:
        if key == A:
            await wait_for_slurm()

    controller = Controller("stuck", reconcile, deadline=1000.0, stuck_after=60.0, workers=2)
    run = asyncio.create_task(controller.run())
    with capture_logs() as lines:
        controller.queue.add(A)
        controller.queue.add(B)
        await asyncio.sleep(59)
        assert lines == []
        await asyncio.sleep(140)
        assert [round(line["for_seconds"]) for line in lines] == [60, 120, 180]
        assert {(line["namespace"], line["name"]) for line in lines} == {("ns", "a")}
        assert lines[0]["task"].startswith("stuck ns/a ")
        path = lines[0]["waits_at"].split(" > ")
        assert path[0].startswith("controller.py:")
        assert [place.rpartition(" in ")[2].rpartition(".")[2] for place in path[1:4]] == [
            "reconcile",
            "wait_for_slurm",
            "wait",
        ]
        assert sample("slurm_operator_stuck_keys", "stuck") == 1
        release.set()
        await asyncio.sleep(1)
        assert sample("slurm_operator_stuck_keys", "stuck") == 0
        assert len(lines) == 3
    await controller.stop(0.0)
    await run


@virtual_time
async def test_stop_lets_a_running_reconcile_end() -> None:
    """Within the grace period a running reconcile ends by itself; keys that wait are not started."""
    ended: list[tuple[Key, float]] = []

    async def reconcile(key: Key) -> None:
        await asyncio.sleep(5)
        ended.append((key, now()))

    controller = Controller("graceful", reconcile, release_after=2.0)
    run = asyncio.create_task(controller.run())
    controller.queue.add(A)
    controller.queue.add(B)
    await asyncio.sleep(1)
    assert await controller.stop(20.0) == []
    await run
    assert ended == [(A, 5.0)]
    assert now() == 5.0


@virtual_time
async def test_stop_cancels_what_outlasts_the_grace() -> None:
    """After the grace period a reconcile is cancelled, without a retry and without an error in the log."""
    cancelled: list[float] = []

    async def reconcile(_: Key) -> None:
        try:
            await hang()
        finally:
            cancelled.append(now())

    controller = Controller("cut", reconcile)
    run = asyncio.create_task(controller.run())
    controller.queue.add(A)
    await asyncio.sleep(1)
    with capture_logs() as lines:
        assert await controller.stop(20.0) == []
    await run
    assert cancelled == [21.0]
    assert lines == []


@virtual_time
async def test_stop_names_what_cannot_be_stopped() -> None:
    """A reconcile that ignores its cancellation is named, so that the lease is not given away under it."""
    release = asyncio.Event()

    async def reconcile(_: Key) -> None:
        await ignore_cancellation(release)

    controller = Controller("unstoppable", reconcile, cancel_grace=5.0)
    run = asyncio.create_task(controller.run())
    controller.queue.add(A)
    await asyncio.sleep(1)
    assert await controller.stop(20.0) == [A]
    assert now() == 26.0
    release.set()
    await run


@virtual_time
async def test_cancelling_run_cancels_the_reconciles() -> None:
    """Cancelling the controller's own task leaves no reconcile behind."""
    cancelled: list[Key] = []

    async def reconcile(key: Key) -> None:
        try:
            await hang()
        finally:
            cancelled.append(key)

    controller = Controller("cancelled", reconcile, workers=2)
    run = asyncio.create_task(controller.run())
    controller.queue.add(A)
    controller.queue.add(B)
    await asyncio.sleep(1)
    run.cancel()
    await asyncio.wait({run})
    assert run.cancelled()
    assert sorted(cancelled) == [A, B]
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_the_watchdog_of_a_controller_at_rest_does_not_wake_up() -> None:
    """It waits for the next call, not for the time; then it watches again."""

    def waits_for() -> str:
        (watchdog,) = (task for task in asyncio.all_tasks() if task.get_name() == "resting watchdog")
        return await_stack(watchdog)[1].rpartition(" in ")[2]

    async def reconcile(_: Key) -> None:
        await asyncio.sleep(2)

    controller = Controller("resting", reconcile, deadline=30.0)
    run = asyncio.create_task(controller.run())
    for _ in range(2):
        await asyncio.sleep(0.1)
        assert waits_for() == "Event.wait"
        controller.queue.add(A)
        await asyncio.sleep(1)
        assert waits_for() == "sleep"
        assert metrics.REGISTRY.get_sample_value(UNFINISHED, {"name": "resting", "controller": "resting"})
        await asyncio.sleep(5)
        assert not metrics.REGISTRY.get_sample_value(UNFINISHED, {"name": "resting", "controller": "resting"})
    await controller.stop(0.0)
    await run
