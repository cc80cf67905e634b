"""The connections to all Slurm clusters: one per cluster, shared by all its callers.

A connection is a REST client, the watch that keeps a view with it, and the writer that changes nodes with it.
`Connections` makes them, runs their watches, and replaces them: `set` with the same target returns the
connection that is there, with another target it makes a new one in its place. What is replaced or removed
publishes nothing from that moment on and is closed in the background. A caller that asks or waits through it
gets an `Unavailable`, because a closed connection gives no information about a cluster.

A `link` lets one key use the connection of another: a Controller that is reached through a Cluster has no
connection of its own, so its cluster is polled once, not twice. A subscriber is called with each update under
every key it concerns.

Each key may state the name of the cluster that it expects (`ClusterName`). A connection through which
slurmrestd reports another name tells that key nothing about any node and writes nothing for it, whatever it
does for others. A server may be exchanged behind its address, so the name is compared with every list.

To a key that is linked to a connection with a view, that view is news: it comes as an
update from the empty view, as it would from a connection of its own.

Everything but `close` is synchronous and atomic on the event loop, so concurrent callers need no lock. To be
used from one event loop only.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import structlog
from structlog.contextvars import bind_contextvars

from slurm_operator.slurm.model.view import EMPTY, ClusterView, ViewUpdate, deltas
from slurm_operator.slurm.rest.client import RestClient
from slurm_operator.slurm.watch.watcher import ExpectingWatch, SlurmWatch, WatchTiming
from slurm_operator.slurm.writer.node_writer import NodeWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_operator.slurm.rest.client import CallInfo, TokenSource

log = structlog.get_logger(__name__)

# For each of the three steps of closing a connection, together less than the manager gives to a stop.
_CLOSE_SECONDS = 2.0
_RESTART_SECONDS = 1.0
# Pauses are short after a retry, so a sign that is passed over within this time costs no more than that.
_RETRY_SECONDS = 5.0


class ConnectionKey(NamedTuple):
    """Names a connection by the object that it is made for."""

    kind: Literal["Controller", "Cluster"]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class ConnectionTarget:
    """Where a connection leads and as whom; two that are equal need no new connection.

    `identity` stands for the credential in comparisons: a digest of what the tokens are made from. A token
    that is renewed in place changes nothing about it.
    """

    url: str
    identity: str = field(repr=False)
    token: TokenSource = field(repr=False, compare=False)
    ca: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class ConnectionRecord:
    """What happened to a connection and when, in the loop's time."""

    since: float
    failing_since: float | None = None
    suspicious_since: float | None = None
    retried: float = float("-inf")


class Connection:
    """One connection: `rest` to ask, `watch` to know, `writer` to change.

    `source` is the watch itself; `watch` shows of it what is of the expected cluster, if one is.
    """

    def __init__(
        self,
        key: ConnectionKey,
        target: ConnectionTarget,
        rest: RestClient,
        source: SlurmWatch,
        reason_prefix: str,
        *,
        cluster: str = "",
        record: ConnectionRecord | None = None,
    ) -> None:
        self.key = key
        self.target = target
        self.rest = rest
        self.source = source
        self.watch = ExpectingWatch(source, cluster) if cluster else source
        self.writer = NodeWriter(rest, self.watch, reason_prefix=reason_prefix)
        self.record = record or ConnectionRecord(asyncio.get_running_loop().time())
        self._reason_prefix = reason_prefix
        self._expecting: dict[str, Connection] = {}

    def expecting(self, cluster: str) -> Connection:
        """Return this connection for those who expect a cluster of this name; any will do if it is empty."""
        if not cluster:
            return self
        found = self._expecting.get(cluster)
        if found is None:
            found = self._expecting[cluster] = Connection(
                self.key,
                self.target,
                self.rest,
                self.source,
                self._reason_prefix,
                cluster=cluster,
                record=self.record,
            )
        return found

    @property
    def writers(self) -> tuple[NodeWriter, ...]:
        """Return all writers that use this connection."""
        return self.writer, *(one.writer for one in self._expecting.values())

    @property
    def since(self) -> float:
        """Return the loop's time at which the connection was made."""
        return self.record.since

    @property
    def failing_since(self) -> float | None:
        """Return the loop's time of the first failure since the last success; None while all is well."""
        return self.record.failing_since

    @property
    def suspicious_since(self) -> float | None:
        """Return the loop's time at which the list of nodes became suspicious; None while it is trusted."""
        return self.record.suspicious_since

    @property
    def view(self) -> ClusterView:
        """Return the newest view."""
        return self.watch.view

    def retry(self) -> bool:
        """Try at once if it fails, whatever pause it is in; return whether that was done."""
        now = asyncio.get_running_loop().time()
        if self.view.failure is None or now - self.record.retried < _RETRY_SECONDS:
            return False
        self.record.retried = now
        self.rest.breaker.hasten(now)
        self.watch.retry()
        return True

    def __repr__(self) -> str:
        return f"Connection({self.key}, {self.target.url})"


Receiver = Callable[[ConnectionKey, ViewUpdate], None]
"""Is told of each update of a view, under each key that uses its connection; must not raise."""


class Connections:
    """All connections of the process, by the object they are made for."""

    def __init__(
        self,
        *,
        reason_prefix: str,
        timing: WatchTiming | None = None,
        observe: Callable[[ConnectionKey, CallInfo], None] | None = None,
    ) -> None:
        self._reason_prefix = reason_prefix
        self._timing = timing or WatchTiming()
        self._observe = observe
        self._own: dict[ConnectionKey, Connection] = {}
        self._links: dict[ConnectionKey, ConnectionKey] = {}
        self._expected: dict[ConnectionKey, str] = {}
        self._external: set[ConnectionKey] = set()
        self._watches: dict[Connection, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._receivers: list[Receiver] = []

    # --- reading

    def get(self, key: ConnectionKey) -> Connection | None:
        """Return the connection that a key uses: its own, or the one it is linked to."""
        found = self._own.get(self._links.get(key, key))
        return None if found is None else found.expecting(self._expected.get(key, ""))

    def items(self) -> Iterator[tuple[ConnectionKey, Connection]]:
        """Iterate over every connection once, under its own key."""
        return iter([(key, one.expecting(self._expected.get(key, ""))) for key, one in self._own.items()])

    def linked(self, key: ConnectionKey) -> ConnectionKey | None:
        """Return the key whose connection this one uses, if it is linked."""
        return self._links.get(key)

    def outlives(self, key: ConnectionKey) -> bool:
        """Return whether the Slurm cluster of a key goes on when the key's object is deleted."""
        return key in self._external

    def subscribe(self, receiver: Receiver) -> None:
        """Call the receiver with every update from now on."""
        self._receivers.append(receiver)

    # --- changing

    def set(
        self,
        key: ConnectionKey,
        target: ConnectionTarget,
        timing: WatchTiming | None = None,
        *,
        cluster: str = "",
        external: bool = False,
    ) -> Connection:
        """Return the connection of a key to a target: the one that is there, or a new one in its place.

        `cluster` is the name that the Slurm cluster must have; any, if it is empty. `external`: the cluster
        goes on when the object of the key is deleted.
        """
        self._expect(key, cluster, external=external)
        current = self._own.get(key)
        if current is not None and current.target == target:
            return current.expecting(cluster)
        connection = self._connect(key, target, timing or self._timing)
        self._links.pop(key, None)
        self._drop(current)
        self._own[key] = connection
        self._watches[connection] = self._start(connection)
        done = "Slurm client: connection replaced" if current else "Slurm client: connection made"
        log.info(done, cluster=str(key), url=target.url)
        return connection.expecting(cluster)

    def link(
        self, key: ConnectionKey, to: ConnectionKey, *, cluster: str = "", external: bool = False
    ) -> Connection | None:
        """Let a key use the connection of another, now and whenever that one has it; return it."""
        if to in self._links or key == to:
            raise ValueError(
                f"{key.kind} {key} cannot be linked to {to.kind} {to}, which has none of its own"
            )
        self._expect(key, cluster, external=external)
        if self._links.get(key) != to:
            self._drop(self._own.pop(key, None))
            self._links[key] = to
            found = self._own.get(to)
            if found is not None and found.view.listed_at is not None:
                self._tell(key, ViewUpdate(found.view, EMPTY, deltas(EMPTY, found.view)))
        return self.get(key)

    def remove(self, key: ConnectionKey) -> bool:
        """Take away what a key has, connection or link; return whether it had any."""
        self._expected.pop(key, None)
        self._external.discard(key)
        linked = self._links.pop(key, None)
        connection = self._own.pop(key, None)
        self._drop(connection)
        if connection is not None:
            log.info("Slurm client: connection removed", cluster=str(key), url=connection.target.url)
        return linked is not None or connection is not None

    async def close(self) -> None:
        """Close every connection and wait until they are closed."""
        for key in [*self._own, *self._links]:
            self.remove(key)
        while self._closing:
            await asyncio.wait(self._closing)

    async def run(self) -> None:
        """Hold the connections until cancelled, then close them."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self.close()

    # --- inside

    def _expect(self, key: ConnectionKey, cluster: str, *, external: bool) -> None:
        self._expected[key] = cluster
        (self._external.add if external else self._external.discard)(key)

    def _connect(self, key: ConnectionKey, target: ConnectionTarget, timing: WatchTiming) -> Connection:
        def observe(info: CallInfo) -> None:
            if self._observe is not None and self._own.get(key) is connection:
                self._observe(key, info)

        rest = RestClient(target.url, target.token, ca=target.ca, observe=observe, namespace=key.namespace)
        watch = SlurmWatch(rest, timing=timing, name=str(key))
        connection = Connection(key, target, rest, watch, self._reason_prefix)
        watch.subscribe(lambda update: self._updated(connection, update))
        return connection

    def _start(self, connection: Connection) -> asyncio.Task[None]:
        # Not in the context of the first caller: its log lines would carry the variables of that caller.
        context = contextvars.Context()
        context.run(bind_contextvars, cluster=str(connection.key))
        return asyncio.create_task(
            _keep_watching(connection.source), name=f"slurm watch {connection.key}", context=context
        )

    def _updated(self, connection: Connection, update: ViewUpdate) -> None:
        if self._own.get(connection.key) is not connection:
            return
        view, record, now = update.view, connection.record, asyncio.get_running_loop().time()
        record.failing_since = _since(record.failing_since, now, lasts=view.failure is not None)
        record.suspicious_since = _since(record.suspicious_since, now, lasts=view.suspicion is not None)
        self._tell(connection.key, update)
        for key in [key for key, to in self._links.items() if to == connection.key]:
            self._tell(key, update)

    def _tell(self, key: ConnectionKey, update: ViewUpdate) -> None:
        update = update.expecting(self._expected.get(key, ""))
        for receiver in self._receivers:
            try:
                receiver(key, update)
            except Exception:
                # One defect must neither end the watch nor keep the news from the others.
                log.exception("a receiver of Slurm updates failed", cluster=str(key))

    def _drop(self, connection: Connection | None) -> None:
        if connection is None:
            return
        connection.source.close()
        task = asyncio.create_task(
            _hang_up(connection, self._watches.pop(connection)),
            name=f"close {connection.key}",
            context=contextvars.Context(),
        )
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _keep_watching(watch: SlurmWatch) -> None:
    while True:
        try:
            await watch.run()
        except Exception:
            log.exception("a watch of a Slurm cluster failed and is started again")
        await asyncio.sleep(_RESTART_SECONDS)


async def _hang_up(connection: Connection, task: asyncio.Task[None]) -> None:
    """End the watch and close the client, whatever they are doing."""
    task.cancel()
    # The client first: a caller that still holds the connection must not write through it any more.
    for close in (connection.rest.close, *(writer.close for writer in connection.writers)):
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await close()
        except Exception as error:  # noqa: BLE001 - it is gone in any case
            log.warning("a connection did not close cleanly", cluster=str(connection.key), error=repr(error))
    await asyncio.wait({task}, timeout=_CLOSE_SECONDS)


def _since(before: float | None, now: float, *, lasts: bool) -> float | None:
    """Return since when something has lasted; None when it does not."""
    return (now if before is None else before) if lasts else None
