"""Leader election on a Lease, in a thread of its own.

The main event loop may be busy for seconds with five thousand pods; renewing must not wait for it. So the
elector has a thread, an event loop and a client of its own. The thread executes the decisions of the pure
`Election` and notifies the main loop of two events: this process leads, and it no longer does. A thread that
hangs notifies of nothing: each of its turns records the time, and `stale` is a liveness check on that.

Between the two is the fence. The client calls it before it sends a write; it compares one number with the
clock, so it needs no message from the thread: a process that was stopped for a minute and resumes is fenced
before the thread has run a single line. The clock is the one that also counts while the node is suspended.
A write that was sent cannot be recalled, so the fence also returns how long it may take, and the client sends
that limit to the API server: not even a write that hangs in an admission webhook lands after the lease.

A lost Lease is final. The process must exit, because the state in its memory was computed while it led.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import threading
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.decide.election import (
    JITTER,
    Election,
    ElectionTiming,
    Follow,
    LeaseRecord,
    micro_time,
)
from slurm_operator.kube.errors import Conflict, FencedError, Forbidden, KubeError, NotFound
from slurm_operator.kube.models.kinds import Lease
from slurm_operator.kube.process.metrics import LEADER_STATUS, observe_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.kube.client.config import ClientConfig

_log = structlog.get_logger(__name__)

# Freeing the Lease is a courtesy to the next leader; the process does not wait long to be polite.
_RELEASE_SECONDS = 5.0


def monotonic() -> float:
    """Return seconds on the clock that never jumps and also counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def new_identity() -> str:
    """Return a name for this process that no other process ever has."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Fence:
    """What a client asks before it writes, and tells when it gave a write up."""

    def __init__(self, elector: LeaderElector) -> None:
        self._elector = elector
        self._unanswered_until = -math.inf

    def __call__(self) -> float:
        """Return how long a write that begins now may take; raise FencedError if the Lease permits none."""
        return self._elector.write_seconds()

    def unanswered(self, seconds: float, /) -> None:
        """Note that a write was given up without an answer: it may still land for so long."""
        self._unanswered_until = max(self._unanswered_until, monotonic() + seconds)

    def may_still_land(self) -> bool:
        """Return whether a write that was given up may still be executed."""
        return monotonic() < self._unanswered_until


class LeaderElector:
    """Competes for one Lease; used from the main event loop, works in its own thread."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        namespace: str,
        name: str = "slurm-operator",
        identity: str | None = None,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
    ) -> None:
        self.identity = identity or new_identity()
        self.lost = asyncio.Event()
        self.fence = Fence(self)
        self._config = config
        self._namespace = namespace
        self._name = name
        self._timing = ElectionTiming(lease_duration, renew_deadline, retry_period)
        self._election = Election(self.identity, self._timing)
        self._leads = asyncio.Event()
        self._main: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._free = True
        self._turned_at = -math.inf
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._finished = asyncio.Event()
        self._led = False
        self._known = False
        self._said = ""
        LEADER_STATUS.labels(name).set(0)

    @property
    def leading(self) -> bool:
        """Return whether a write may begin now."""
        return self._election.may_start_write(monotonic())

    @property
    def holder(self) -> str:
        """Return the identity in the Lease as it was last read; empty if it has none."""
        record = self._election.record
        return "" if record is None else record.holder

    def write_seconds(self) -> float:
        """Return how long a write that begins now may take; raise FencedError if the Lease permits none."""
        seconds = self._election.write_seconds(monotonic())
        if seconds <= 0:
            raise FencedError(
                f"not sent: this process does not hold the lease {self._namespace}/{self._name}"
            )
        return seconds

    def stale(self) -> str | None:
        """Return why the election is stuck, or None if it works, has not begun or was stopped."""
        if self._thread is None or self._stopping.is_set():
            return None
        silent = monotonic() - self._turned_at
        # Far longer than any attempt may take: by then the lease has been over for as long as it had lasted.
        if silent <= 2 * self._timing.lease_duration:
            return None
        return f"the thread that renews the lease has been stuck for {silent:.0f} s"

    async def acquire(self) -> None:
        """Return once this process leads; raise FencedError when the election itself failed."""
        if self._thread is None:
            self._main = asyncio.get_running_loop()
            self._turned_at = monotonic()
            self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
            self._thread.start()
        await self._leads.wait()
        if self.lost.is_set():
            raise FencedError(f"leader election on {self._namespace}/{self._name} ended")

    async def release(self, *, free: bool = True) -> None:
        """Stop leading and free the Lease, so that the next leader need not wait; give up after seconds.

        With `free=False` the Lease is neither renewed nor freed: no process leads before it has expired. The
        same is done when a write was given up a moment ago: the API server may be executing it, and no later
        request waits for that.
        """
        self._election.concede()
        if free and self.fence.may_still_land():
            _log.warning(
                "a write was cut off and may still land: the lease is left to expire", lease=self._name
            )
            free = False
        self._free = free
        # The flag first, then the wake-up: the thread does it the other way round, so one of them is seen.
        self._stopping.set()
        if self._wake is not None:
            _call(self._wake[0], self._wake[1].set)
        if self._thread is not None:
            try:
                await asyncio.wait_for(self._finished.wait(), _RELEASE_SECONDS + 1)
            except TimeoutError:
                _log.warning("the lease could not be released in time", lease=self._name)

    # --- everything below runs in the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._elect())
        except Exception:  # noqa: BLE001 - whatever it was, the main loop must learn that we do not lead
            _log.exception("leader election failed", lease=self._name, identity=self.identity)
        finally:
            self._conclude()

    def _conclude(self) -> None:
        self._election.concede()
        LEADER_STATUS.labels(self._name).set(0)
        self._tell(self._ended)

    def _ended(self) -> None:
        self.lost.set()
        self._leads.set()
        self._finished.set()

    def _tell(self, call: Callable[[], object]) -> None:
        if self._main is not None:
            _call(self._main, call)

    async def _elect(self) -> None:
        stop = asyncio.Event()
        self._wake = (asyncio.get_running_loop(), stop)
        if self._stopping.is_set():
            return
        patience = self._timing.renew_deadline / 2
        async with Client(self._config, max_in_flight=2, timeout=patience, observe=observe_request) as client:
            try:
                await self._compete_until(stop, client)
            finally:
                # Here and not only in `_run`: in between asyncio waits for every thread that still resolves a
                # name, and a process that has lost its lease must know at once.
                self._conclude()

    async def _compete_until(self, stop: asyncio.Event, client: Client) -> None:
        competing = asyncio.create_task(self._compete(client))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({competing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if competing.done():
            competing.result()
            return
        competing.cancel()
        await asyncio.wait({competing})
        if self._free:
            await self._resign(client)

    async def _compete(self, client: Client) -> None:
        """Try to lead, then to go on leading; return when the Lease is lost."""
        while True:
            self._turned_at = now = monotonic()
            if self._led and not self._election.may_start_write(now):
                _log.error("the lease was not renewed in time", lease=self._name, identity=self.identity)
                return
            patience = self._timing.renew_deadline / 2
            if self._led:
                patience = min(patience, self._election.seconds_to_deadline(now))
            try:
                async with asyncio.timeout(patience):
                    delay = await self._attempt(client)
            except (KubeError, TimeoutError) as error:
                self._complain(error)
                # What is in the Lease is uncertain now, so the next attempt reads it first.
                self._known = False
                delay = self._timing.retry_period / (10 if self._led else 1)
            if self._led and self._usurped():
                return
            await asyncio.sleep(delay * random.uniform(1, JITTER))  # noqa: S311 - spreads load, guards nothing

    async def _attempt(self, client: Client) -> float:
        """Do what the election says; return how long to rest before the next attempt."""
        if not self._known:
            await self._look(client)
        action = self._election.next(monotonic())
        if isinstance(action, Follow):
            self._known = False
            return min(self._timing.retry_period, action.seconds)
        claim = self._election.claim(datetime.now(UTC))
        began = monotonic()
        lease = await self._write(client, claim)
        self._election.confirm(record_of(lease), lease.metadata.resource_version, began, monotonic())
        self._known = True
        self._said = ""
        if not self._led:
            self._led = True
            _log.info("lease acquired", lease=self._name, namespace=self._namespace, identity=self.identity)
            LEADER_STATUS.labels(self._name).set(1)
            self._tell(self._leads.set)
        return self._timing.retry_period

    async def _look(self, client: Client) -> None:
        before = self._election.record
        try:
            lease = await client.get(Lease, self._name, self._namespace)
        except NotFound:
            self._election.observe(None, "", monotonic())
            return
        record = record_of(lease)
        self._election.observe(record, lease.metadata.resource_version, monotonic())
        if record.holder not in {self.identity, "", before.holder if before else ""}:
            _log.info(
                "another process leads", lease=self._name, namespace=self._namespace, holder=record.holder
            )

    async def _write(self, client: Client, record: LeaseRecord) -> Lease:
        if not self._election.version:
            body = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": record.spec()}
            return await client.create(Lease, body)
        patch = {"metadata": {"resourceVersion": self._election.version}, "spec": record.spec()}
        return await client.patch(Lease, self._name, self._namespace, patch, type=PatchType.MERGE)

    def _usurped(self) -> bool:
        record = self._election.record
        if record is None or record.holder == self.identity:
            return False
        self._election.concede()
        _log.error(
            "another process took the lease", lease=self._name, identity=self.identity, holder=record.holder
        )
        return True

    async def _resign(self, client: Client) -> None:
        """Free the Lease if it is ours, also by a claim whose answer never came."""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._look(client)
                resignation = self._election.resignation(datetime.now(UTC))
                if resignation is not None and self._election.version:
                    await self._write(client, resignation)
                    _log.info("lease released", lease=self._name, namespace=self._namespace)
        except (KubeError, TimeoutError) as error:
            _log.warning(
                "the lease was not released; the next leader waits until it expires",
                lease=self._name,
                error=error,
            )

    def _complain(self, error: Exception) -> None:
        """Log a failure once, not at every attempt."""
        if isinstance(error, Conflict):
            return
        text = str(error) or "no answer in time"
        if isinstance(error, Forbidden):
            text += "; grant get, create and patch on leases.coordination.k8s.io"
        if text != self._said:
            _log.warning("leader election", lease=self._name, namespace=self._namespace, error=text)
            self._said = text


def record_of(lease: Lease) -> LeaseRecord:
    """Return what a Lease says."""
    spec = lease.spec
    return LeaseRecord(
        holder=spec.holder_identity or "",
        duration=float(spec.lease_duration_seconds or 0),
        acquired=micro_time(spec.acquire_time) if spec.acquire_time else "",
        renewed=micro_time(spec.renew_time) if spec.renew_time else "",
        transitions=spec.lease_transitions or 0,
    )


def _call(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    # The other loop may be closed already; then there is nothing left to notify.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
