"""One poller per Slurm cluster: it keeps a `ClusterView` up to date and notifies receivers of changes.

`Survey` does the asking; this is when, and who hears of it. The watch sleeps between rounds, longer at rest
than while something drains, and can be woken. After each round it compares the view with the one it published
last and tells its receivers if something differs: nodes, their jobs, or only the health of the view. A view
that grows stale without an answer is news too.

Changes are announced a few hundred nodes at a time, with turns of the event loop between them, because
receivers look at each. The verdict on a node must be settled when the node is announced. So a node is
announced again, unchanged, when its jobs could be listed only later, and when it was last announced from a
list that was requested before a caller's write: for that caller the list was too old to count.

Where there are several slurmctlds, it must be seen within seconds that another one is in charge. They are
pinged beside the rounds, since a round may be waiting for the very slurmctld that has died.

The watch never raises and never ends by itself. Failures are repeated with a growing pause, which a sign that
Slurm is back ends (`retry`), and the first success heals everything.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from slurm_operator.slurm.decide.poll_schedule import WatchTiming
from slurm_operator.slurm.errors import BadReply, Unavailable, WrongCluster
from slurm_operator.slurm.model.view import ClusterView, NodeDelta, ViewUpdate, deltas
from slurm_operator.slurm.watch.survey import Survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slurm_operator.slurm.decide.node_list_trust import TrustRules
    from slurm_operator.slurm.watch.polled_api import PolledApi

    Receiver = Callable[[ViewUpdate], None]

__all__ = ["ExpectingWatch", "SlurmWatch", "WatchTiming"]

log = structlog.get_logger(__name__)

# Some 5 ms of work for all receivers together.
_TOLD_AT_ONCE: Final = 500


class ExpectingWatch:
    """A watch for those who expect a cluster of one name: its views, or nothing if they are of another."""

    def __init__(self, watch: SlurmWatch, cluster: str) -> None:
        self.expected = cluster
        self._watch = watch
        self._seen: tuple[ClusterView, ClusterView] | None = None

    @property
    def view(self) -> ClusterView:
        """Return the newest view."""
        newest = self._watch.view
        if self._seen is None or self._seen[0] is not newest:
            self._seen = (newest, newest.expecting(self.expected))
        return self._seen[1]

    @property
    def closed(self) -> bool:
        """Return whether there will be no other view."""
        return self._watch.closed

    def wake(self, *, reservations: bool = False) -> None:
        """Poll now: nodes, or also reservations, were written."""
        self._watch.wake(reservations=reservations)

    def retry(self) -> None:
        """Poll now, and if that fails, begin with short pauses."""
        self._watch.retry()

    def deleting(self, name: str) -> None:
        """Take note that the request that deletes a node is about to be sent."""
        self._watch.deleting(name)

    def deleted(self, names: Iterable[str], kept: Iterable[str] = ()) -> None:
        """Take note that these nodes have been deleted on purpose, and others not."""
        self._watch.deleted(names, kept)

    async def refreshed(self, after: float, deadline: float) -> ClusterView:
        """Return a view that was asked for after a moment; WrongCluster if it is of another cluster."""
        view = (await self._watch.refreshed(after, deadline)).expecting(self.expected)
        if isinstance(view.failure, WrongCluster):
            raise view.failure
        return view


class SlurmWatch:
    """Keeps `view`; `run` it in a task of its own, `wake` it after a write."""

    def __init__(
        self,
        rest: PolledApi,
        *,
        timing: WatchTiming | None = None,
        trust: TrustRules | None = None,
        name: str = "",
    ) -> None:
        self.timing = timing or WatchTiming()
        self.expected = ""
        self._log = log.bind(cluster=name) if name else log
        self._survey = Survey(rest, self.timing, trust, self._log)
        self._published = self._survey.view
        self._published_stale = True
        # When what was last announced was asked for, and which nodes those were.
        self._announced: tuple[float, frozenset[str]] = (float("-inf"), frozenset())
        self._receivers: list[Receiver] = []
        self._wake = asyncio.Event()
        self._woken: float | None = None
        self._awaited = self._reservations_changed = False
        self._last_woken = float("-inf")
        self._round_over = asyncio.Event()
        self._closed = False
        self._aging: asyncio.TimerHandle | None = None

    @property
    def view(self) -> ClusterView:
        """Return the newest view."""
        return self._survey.view

    @property
    def closed(self) -> bool:
        """Return whether there will be no other view."""
        return self._closed

    def close(self) -> None:
        """End every wait with `Unavailable`: the caller is about to stop the watch for good."""
        self._closed = True
        self._round_over.set()

    def subscribe(self, receiver: Receiver) -> Callable[[], None]:
        """Call a function with every update from now on; return how to stop that."""
        self._receivers.append(receiver)

        def unsubscribe() -> None:
            if receiver in self._receivers:
                self._receivers.remove(receiver)

        return unsubscribe

    def wake(self, *, reservations: bool = False) -> None:
        """Poll now: nodes, or also reservations, were written."""
        self._reservations_changed |= reservations
        self._woken = self._last_woken = asyncio.get_running_loop().time()
        self._wake.set()

    def retry(self) -> None:
        """Poll now, and if that fails, begin with short pauses: there is a sign that Slurm answers again."""
        # Not none at all: the success that follows must know that there was a failure before it.
        self._survey.failures = min(self._survey.failures, 1)
        self._wake.set()

    def deleting(self, name: str) -> None:
        """Take note that a node is about to be deleted: a list may show that before the answer is here."""
        self._survey.node_trust.expect_gone([name], asyncio.get_running_loop().time())

    def deleted(self, names: Iterable[str], kept: Iterable[str] = ()) -> None:
        """Take note that nodes have been deleted on purpose: their absence needs no confirmation.

        `kept`: nodes that were to be deleted, and were not as far as is known.
        """
        trust, gone = self._survey.node_trust, [*names]
        trust.expect_kept(kept)
        if gone:
            trust.expect_gone(gone, asyncio.get_running_loop().time())
            self.wake()

    async def refreshed(self, after: float, deadline: float) -> ClusterView:
        """Return a view that was asked for after a moment; Unavailable if there is none by the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                while not self._closed and (self.view.listed_at is None or self.view.listed_at <= after):
                    over = self._round_over
                    self._awaited = True
                    self._wake.set()
                    await over.wait()
        except TimeoutError:
            because = f": {self.view.failure}" if self.view.failure is not None else ""
            raise Unavailable(f"Slurm's nodes could not be listed in time{because}") from None
        if self._closed:
            raise Unavailable("this connection to the Slurm cluster was closed")
        return self.view

    async def run(self) -> None:
        """Keep the view until cancelled."""
        pinging = asyncio.create_task(self._keep_pinging())
        try:
            while True:
                await self._round()
                over, self._round_over = self._round_over, asyncio.Event()
                over.set()
                await self._pause()
        finally:
            if self._aging is not None:
                self._aging.cancel()
            pinging.cancel()
            # The caller that ends the watch closes its connections next; no request may be left on them.
            await asyncio.wait((pinging,))

    async def _keep_pinging(self) -> None:
        """Ping slurmctld and its standbys often, and tell at once when another one responds."""
        while True:
            await asyncio.sleep(self.timing.standby)
            if not self._survey.has_standby:
                continue
            await self._survey.ping()
            controllers, listed_at = self.view.controllers, self.view.controllers_pinged_at
            previous = self._published
            # Only this part: a round may be under way, and what it has found so far is not settled yet.
            view = replace(previous, controllers=controllers, controllers_pinged_at=listed_at)
            if _health(previous) != _health(view):
                self._published = view
                self._tell(ViewUpdate(view, previous, ()))

    async def _round(self) -> None:
        self._wake.clear()
        woken, self._woken = self._woken, None
        awaited, self._awaited = self._awaited, False
        reservations_changed, self._reservations_changed = self._reservations_changed, False
        try:
            listed = await self._survey.round(
                woken=woken is not None, awaited=awaited, reservations_changed=reservations_changed
            )
        except Exception as error:  # noqa: BLE001 - a defect here must not blind the operator for good
            self._log.exception("unexpected error while polling Slurm; polling continues")
            self._survey.failed(BadReply(f"unexpected {type(error).__name__} while polling Slurm"))
            listed = False
        if not listed and self._woken is None:
            self._woken = woken
        # With thousands of nodes, finding what has changed is a turn of its own, and so is each part of it.
        await asyncio.sleep(0)
        updates = self._news(woken)
        self._time_aging()
        for update in updates:
            await asyncio.sleep(0)
            self._tell(update)

    async def _pause(self) -> None:
        """Wait until the next round is due, or a caller wakes the watch; meanwhile ask for states of jobs."""
        loop, survey = asyncio.get_running_loop(), self._survey
        now = loop.time()
        lively = now - self._last_woken < self.timing.lively
        pause = survey.interval(lively=lively)
        while (moment := survey.states_due()) is not None and moment < now + pause:
            if await self._woken_before(moment):
                break
            await survey.ask_states()
            pause = min(pause, survey.interval(lively=lively))
        await self._woken_before(now + pause)
        # Who wakes it may shorten the wait, but not make it ask without a pause.
        least = min(pause, survey.gap(awaited=self._awaited))
        await asyncio.sleep(max(0.0, now + least - loop.time()))

    async def _woken_before(self, moment: float) -> bool:
        """Wait until a moment; return whether a caller woke the watch before it."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(moment):
                await self._wake.wait()
        return self._wake.is_set()

    def _time_aging(self) -> None:
        """Have it told when the view grows stale, also while a request hangs."""
        if self._aging is not None:
            self._aging.cancel()
            self._aging = None
        view = self.view
        if view.listed_at is not None and not self._published_stale:
            # A moment later, for exactly then it is still fresh.
            fresh = view.listed_at if view.confirmed is None else view.confirmed
            moment = fresh + view.stale_after + 0.001
            self._aging = asyncio.get_running_loop().call_at(moment, self._grown_stale)

    def _grown_stale(self) -> None:
        if self.view.stale(asyncio.get_running_loop().time()):
            for update in self._news(None):
                self._tell(update)

    # --- telling

    def _news(self, woken: float | None) -> list[ViewUpdate]:
        """Return what is to be told of the view; from now on it counts as told."""
        previous, view = self._published, self.view
        changes = {change.name: change for change in deltas(previous, view)}
        genuine = frozenset(changes)
        self._announce(self._survey.decided, changes)
        self._survey.decided = set()
        since, names = self._announced
        if woken is not None and view.listed_at is not None and since <= woken < view.listed_at:
            late = frozenset() if _jobs_are_newer(view) else (names & self._survey.settled) - view.covered
            self._survey.owed |= late
            self._announce(names - late, changes)
            self._announced = (since, frozenset())
        stale = view.stale(asyncio.get_running_loop().time())
        if not changes and stale == self._published_stale and _health(previous) == _health(view):
            return []
        self._published, self._published_stale = view, stale
        if genuine and view.listed_at is not None:
            self._announced = (view.listed_at, genuine)
        told = tuple(changes.values())
        first, rest = told[:_TOLD_AT_ONCE], range(_TOLD_AT_ONCE, len(told), _TOLD_AT_ONCE)
        # Only the first says what else is new about the view.
        later = [ViewUpdate(view, view, told[start : start + _TOLD_AT_ONCE]) for start in rest]
        return [ViewUpdate(view, previous, first), *later]

    def _announce(self, names: Iterable[str], changes: dict[str, NodeDelta]) -> None:
        """Add nodes whose record is the same, but about which more is certain now."""
        nodes = self.view.nodes
        for name in names:
            if name in nodes:
                changes.setdefault(name, NodeDelta(name, nodes[name], nodes[name]))

    def _tell(self, update: ViewUpdate) -> None:
        for receiver in [*self._receivers]:
            try:
                receiver(update)
            except Exception:  # noqa: BLE001 - one defect must not keep the news from the others
                self._log.exception("a receiver of Slurm updates failed")


def _jobs_are_newer(view: ClusterView) -> bool:
    return (
        view.jobs_listed_at is not None
        and view.listed_at is not None
        and view.jobs_listed_at >= view.listed_at
    )


def _health(view: ClusterView) -> tuple[object, ...]:
    """Return all that is worth an update beside the nodes and their jobs."""
    return (
        view.listed_at is None,
        type(view.failure),
        str(view.failure),
        type(view.jobs_failure),
        view.suspicion,
        view.complete,
        view.jobs_listed_at is None,
        view.jobs.unplaced,
        view.reservations,
        view.reservations_listed_at is None,
        tuple((ping.hostname, ping.responding, ping.primary) for ping in view.controllers),
        view.started,
        view.version,
        view.cluster,
    )
