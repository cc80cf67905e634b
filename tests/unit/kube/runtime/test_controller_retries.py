"""When a key comes back, whatever its reconcile returned or raised; on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from slurm_operator.kube.decide.backoff import Backoff
from slurm_operator.kube.errors import Conflict, FencedError, TooManyRequests
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.controller import Controller, Requeue
from tests.support.kube.running_controller import A, B, now, running, sample
from tests.support.virtual_time import run_virtual, virtual_time


@virtual_time
async def test_failures_back_off_and_success_forgets() -> None:
    """Each failure in a row waits twice as long; after a success the next failure waits the shortest time."""
    outcomes = iter(
        [Conflict("x", status=409), OSError("y"), ValueError("z"), None, Conflict("x", status=409), None]
    )
    times: list[float] = []

    async def reconcile(_: Key) -> None:
        times.append(now())
        if (error := next(outcomes)) is not None:
            raise error

    controller = Controller("backoff", reconcile, backoff=Backoff(1.0, 900.0))
    async with running(controller):
        controller.queue.add(A)
        await asyncio.sleep(50)
        assert times == [0.0, 1.0, 3.0, 7.0]
        assert controller.queue.retries(A) == 0
        controller.queue.add(A)
        await asyncio.sleep(50)
    assert times[4:] == [50.0, 51.0]
    assert sample("controller_runtime_reconcile_errors_total", controller="backoff") == 4
    assert sample("controller_runtime_reconcile_panics_total", controller="backoff") == 1


@virtual_time
async def test_a_failure_is_one_line_that_says_everything() -> None:
    """The line has what was wanted, what happened, which object, the attempt, and when the next one comes."""
    outcomes = iter([Conflict("someone else wrote it", status=409), TypeError("no such thing"), None])

    async def reconcile(_: Key) -> None:
        if (error := next(outcomes)) is not None:
            raise error

    controller = Controller("widgets", reconcile, backoff=Backoff(1.0, 900.0))
    with capture_logs([merge_contextvars]) as lines:
        async with running(controller):
            controller.queue.add(A)
            await asyncio.sleep(50)
    first, second = lines
    identity = first.pop("reconcile_id")
    assert len(identity) == 8
    assert identity != second["reconcile_id"]
    assert first == {
        "event": "reconcile failed",
        "log_level": "error",
        "controller": "widgets",
        "namespace": "ns",
        "name": "a",
        "wanted": "reconcile widgets ns/a",
        "error": "Conflict: someone else wrote it",
        "attempt": 1,
        "retry_in_seconds": 1.0,
        "took_seconds": 0.0,
        "exc_info": None,
    }
    assert (second["attempt"], second["retry_in_seconds"]) == (2, 2.0)
    assert isinstance(second["exc_info"], TypeError)


@virtual_time
async def test_a_server_that_names_a_time_is_obeyed() -> None:
    """A Retry-After longer than the backoff decides when the key comes back."""
    times: list[float] = []

    async def reconcile(_: Key) -> None:
        times.append(now())
        if len(times) == 1:
            raise TooManyRequests("busy", status=429, retry_after=30.0)

    controller = Controller("retry-after", reconcile)
    async with running(controller):
        controller.queue.add(A)
        await asyncio.sleep(60)
    assert times == [0.0, 30.0]


@virtual_time
async def test_requeue_comes_back_and_forgets_the_backoff() -> None:
    """Requeue(after) is a success: the key comes back after that time, and its backoff is forgotten."""
    outcomes: list[Any] = [OSError(), OSError(), Requeue(10.0), OSError(), None]
    times: list[float] = []

    async def reconcile(_: Key) -> Requeue | None:
        times.append(now())
        outcome = outcomes[len(times) - 1]
        if isinstance(outcome, OSError):
            raise outcome
        assert outcome is None or isinstance(outcome, Requeue)
        return outcome

    controller = Controller("requeue", reconcile, backoff=Backoff(1.0, 900.0))
    async with running(controller):
        controller.queue.add(A)
        await asyncio.sleep(600)
    assert times == [0.0, 1.0, 3.0, 13.0, 14.0]
    results = {
        result: sample("controller_runtime_reconcile_total", controller="requeue", result=result)
        for result in ("success", "error", "requeue", "requeue_after")
    }
    assert results == {"success": 1, "error": 3, "requeue": 0, "requeue_after": 1}


@virtual_time
async def test_a_requeue_at_once_is_paced_by_the_backoff() -> None:
    """Asking again at once, or at a time already over, waits longer each time; a success resets it."""
    outcomes = [Requeue(0.0), Requeue(-1.0), Requeue(0.0), None, Requeue(0.0), None]
    times: list[float] = []

    async def reconcile(_: Key) -> Requeue | None:
        times.append(now())
        return outcomes[len(times) - 1]

    controller = Controller("requeue-now", reconcile, backoff=Backoff(1.0, 900.0))
    async with running(controller):
        controller.queue.add(A)
        await asyncio.sleep(50)
        assert times == [0.0, 1.0, 3.0, 7.0]
        assert controller.queue.retries(A) == 0
        controller.queue.add(A)
        await asyncio.sleep(50)
    assert times[4:] == [50.0, 51.0]
    results = {
        result: sample("controller_runtime_reconcile_total", controller="requeue-now", result=result)
        for result in ("success", "error", "requeue", "requeue_after")
    }
    assert results == {"success": 2, "error": 0, "requeue": 4, "requeue_after": 0}


@pytest.mark.parametrize("after", [float("inf"), float("nan")])
def test_a_requeue_at_no_time_is_refused(after: float) -> None:
    """A requeue that would never come is an error where it is made."""
    with pytest.raises(ValueError, match=r"Requeue\.after must be a finite number"):
        Requeue(after)


@virtual_time
async def test_an_event_does_not_cancel_a_requeue() -> None:
    """A reconcile caused by an event in between leaves the promised one in place."""
    times: list[float] = []

    async def reconcile(_: Key) -> Requeue | None:
        times.append(now())
        return Requeue(60.0) if len(times) == 1 else None

    controller = Controller("promise", reconcile)
    async with running(controller):
        controller.queue.add(A)
        await asyncio.sleep(10)
        controller.queue.add(A)
        await asyncio.sleep(600)
    assert times == [0.0, 10.0, 60.0]


class Oddity(BaseException):
    """An exception outside the usual tree."""


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), RecursionError(), GeneratorExit(), Oddity("x"), ExceptionGroup("g", [KeyError("x")])],
    ids=lambda error: type(error).__name__,
)
def test_any_exception_stays_with_its_key(error: BaseException) -> None:
    """Whatever a reconcile raises, other keys go on and the key itself is retried."""

    @virtual_time
    async def scenario() -> None:
        failed = 0
        fine: list[float] = []

        async def reconcile(key: Key) -> None:
            nonlocal failed
            if key == B:
                fine.append(now())
            elif failed < 3:
                failed += 1
                raise error

        controller = Controller(f"isolation-{type(error).__name__}", reconcile)
        async with running(controller):
            controller.queue.add(A)
            controller.queue.add(B)
            await asyncio.sleep(10)
            assert controller.queue.retries(A) == 0
        assert (failed, len(fine)) == (3, 1)
        assert sample("controller_runtime_reconcile_panics_total", controller=controller.name) == 3

    scenario()


def test_an_exit_is_an_exit() -> None:
    """SystemExit from a reconcile ends the program; it is neither an error to log nor one to retry."""
    attempts = 0

    async def reconcile(_: Key) -> None:
        nonlocal attempts
        attempts += 1
        raise SystemExit(3)

    async def scenario() -> None:
        controller = Controller("exit", reconcile)
        controller.queue.add(A)
        await controller.run()

    with capture_logs() as lines, pytest.raises(SystemExit):
        run_virtual(scenario())
    assert (attempts, lines) == (1, [])


@virtual_time
async def test_a_cancellation_from_within_is_a_failure() -> None:
    """A reconcile that awaits a cancelled task ends its key's attempt, not its worker."""
    attempts = 0

    async def reconcile(_: Key) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            inner = asyncio.create_task(asyncio.sleep(60))
            inner.cancel()
            await inner

    controller = Controller("inner-cancel", reconcile)
    with capture_logs() as lines:
        async with running(controller):
            controller.queue.add(A)
            await asyncio.sleep(10)
    assert attempts == 2
    assert "cancelled from within" in lines[0]["error"]


@virtual_time
async def test_a_wrong_result_is_a_failure() -> None:
    """A reconciler that returns anything but None or Requeue is told so, and its key is not dropped."""
    attempts = 0

    async def reconcile(_: Key) -> Any:
        nonlocal attempts
        attempts += 1
        return 30 if attempts == 1 else None

    controller = Controller("wrong-result", reconcile)
    with capture_logs() as lines:
        async with running(controller):
            controller.queue.add(A)
            await asyncio.sleep(10)
    assert attempts == 2
    assert lines[0]["error"] == "TypeError: a reconciler must return None or Requeue, not int"


@virtual_time
async def test_fenced_keys_are_retried_quietly() -> None:
    """After the first line about the fence there are no more, until something succeeds; nothing is lost."""
    fenced = True
    done: set[Key] = set()

    async def reconcile(key: Key) -> None:
        if fenced:
            raise FencedError("not leading")
        done.add(key)

    keys = {Key("ns", str(number)) for number in range(20)}
    controller = Controller("fenced", reconcile)
    with capture_logs() as lines:
        async with running(controller):
            for key in keys:
                controller.queue.add(key)
            await asyncio.sleep(60)
            assert [line["event"] for line in lines] == ["reconcile failed"]
            assert sample("controller_runtime_reconcile_errors_total", controller="fenced") > 100
            fenced = False
            await asyncio.sleep(2000)
            assert done == keys
            fenced = True
            controller.queue.add(A)
            await asyncio.sleep(60)
    assert [line["wanted"] for line in lines][1:] == ["reconcile fenced ns/a"]
