"""One election in two threads: the fence under the worst interleavings, and the thread that hangs."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.decide.election import Election, ElectionTiming, LeaseRecord
from slurm_operator.kube.errors import FencedError
from slurm_operator.kube.runtime.lease import LeaderElector, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ssl import SSLContext

OURS = LeaseRecord("me", 15.0, "a", "r", 0)
NOWHERE = "http://127.0.0.1:1"
DEADLINE = 120.0


async def eventually(question: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            if question():
                return
            await asyncio.sleep(0.02)


def test_an_answer_after_conceding_opens_nothing() -> None:
    """A renewal that is confirmed after the process conceded does not let it write again."""
    election = Election("me", ElectionTiming())
    election.confirm(OURS, "1", began=0, now=0)
    election.concede()
    election.confirm(OURS, "2", began=1, now=1)
    assert election.write_seconds(1) == 0
    assert not election.may_start_write(1)


def test_no_time_is_left_rather_than_less_than_none() -> None:
    """Past the renew deadline a write has no time, although the lease itself lasts longer."""
    election = Election("me", ElectionTiming())
    assert election.write_seconds(0) == 0
    election.confirm(OURS, "1", began=0, now=0)
    assert election.write_seconds(9.9) == pytest.approx(3.6)
    assert election.write_seconds(10) == 0
    assert election.write_seconds(1000) == 0


class Shifting(Election):
    """An election that the other thread, or a frozen process, changes between any two looks at it."""

    def __init__(self, first: float, later: float) -> None:
        self._looks = iter([first])
        self._later = later
        super().__init__("me", ElectionTiming())

    @property
    def _confirmed_at(self) -> float:
        return next(self._looks, self._later)

    @_confirmed_at.setter
    def _confirmed_at(self, value: float) -> None:
        """Ignore it: what is seen is what the test says."""


@pytest.mark.parametrize("later", [-math.inf, -60.0])
async def test_the_fence_looks_once(later: float) -> None:
    """Whatever happens between two looks, the fence gives a positive time that was true, or raises."""
    for first, open_ in ((monotonic(), True), (-math.inf, False)):
        elector = LeaderElector(ClientConfig(server=NOWHERE), namespace="n", name="shared")
        elector._election = Shifting(first, monotonic() + later if open_ else monotonic())
        if open_:
            assert elector.fence() == pytest.approx(13.5, abs=5)
        else:
            with pytest.raises(FencedError):
                elector.fence()


class Dawdling:
    """Credentials on a file system that does not answer: whoever reads them is stuck, thread and all."""

    def __init__(self) -> None:
        self.answers = threading.Event()

    async def headers(self) -> Mapping[str, str]:
        self.answers.wait()
        return {}

    async def refresh(self, refused: Mapping[str, str] | None = None) -> bool:
        return refused is None

    async def tls(self, configured: SSLContext | None) -> SSLContext | None:
        return configured


def elector(config: ClientConfig, lease: float) -> LeaderElector:
    return LeaderElector(
        config, namespace="n", name="stuck", lease_duration=lease, renew_deadline=0.4, retry_period=0.1
    )


async def test_a_thread_that_hangs_is_noticed() -> None:
    """An election whose thread is stuck for two lease durations is reported, until it turns or is stopped."""
    auth = Dawdling()
    stuck = elector(ClientConfig(server=NOWHERE, auth=auth), 0.6)
    assert stuck.stale() is None
    waiting = asyncio.create_task(stuck.acquire())
    await eventually(lambda: "the thread that renews the lease has been stuck" in (stuck.stale() or ""))
    auth.answers.set()
    await eventually(lambda: stuck.stale() is None)
    waiting.cancel()
    await stuck.release()
    assert stuck.stale() is None


async def test_a_thread_that_works_in_vain_is_not_stuck() -> None:
    """A server that refuses every connection is no reason to restart the process."""
    # A busy machine may stop this whole process for seconds, which is not what the test is about.
    vain = elector(ClientConfig(server=NOWHERE), 60.0)
    waiting = asyncio.create_task(vain.acquire())
    turns: set[float] = set()

    def fifteen_turns() -> bool:
        assert vain.stale() is None
        turns.add(vain._turned_at)
        return len(turns) > 15

    await eventually(fifteen_turns)
    waiting.cancel()
    await vain.release()
