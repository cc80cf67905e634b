"""The changes of one field of all nodes of a cluster: collected, decided, sent, answered.

This is the acting half of the writer; `node_writer` describes the whole. One batch follows the other, so what
is written to a node is written in the order in which it was requested.

What is decided ages: while hundreds of different updates are sent one after the other, or while this process
stands still. So a change of state is sent only for a moment after it was decided (`WriterTiming.valid`); what
is left then is decided again. Everything else may age, and is decided a few hundred nodes at a time, with
turns of the event loop between them. Nothing is decided or sent for which no caller still waits (`waiters`).
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from slurm_operator.slurm.decide.bulk import Group, grouped, narrowed, regrouped
from slurm_operator.slurm.decide.node_changes import (
    Done,
    Drain,
    Failed,
    NodeField,
    NotSent,
    NotSentReason,
    Unchanged,
    decide,
)
from slurm_operator.slurm.errors import (
    BadReply,
    Refused,
    RestUnreachable,
    SlurmError,
    Unavailable,
    Unsupported,
    WrongCluster,
)
from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.model.view import is_other
from slurm_operator.slurm.rest.exchange import WithdrawnError
from slurm_operator.slurm.watch.fresh_list import FreshNodes
from slurm_operator.slurm.writer.waiters import RequestedChange, counting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurm_operator.slurm.decide.node_changes import NodeChange, Outcome
    from slurm_operator.slurm.model.records import NodeList
    from slurm_operator.slurm.model.view import ClusterView
    from slurm_operator.slurm.writer.waiters import Batch

log = structlog.get_logger(__name__)

_WORKERS: Final = 2
# One bad node among a thousand is found with 20.
_MAX_RETRIES: Final = 32
# Some 3 ms of deciding.
_SLICE: Final = 500
# "Invalid user id" and "Access/permission denied": it is about us, and the same for every node.
_ABOUT_US: Final = frozenset({2002, 2010})
_SHOWN: Final = 200
_UNCHANGED: Final = Unchanged()


@dataclass(frozen=True)
class WriterTiming:
    """How long the writer collects and waits, in seconds."""

    linger: float = 0.005
    fresh: float = 0.25
    """A view younger than this is new enough to drain by."""
    valid: float = 1.0
    """A change of state is sent for so long after it was decided."""
    refresh: float = 15.0
    """How long the list of nodes before a write may take."""
    batch: float = 120.0


def closed() -> Failed:
    """Return the outcome for those who still wait when a writer is closed."""
    return Failed(
        Unavailable("the connection to this Slurm cluster was closed before the update was confirmed")
    )


class NodeApi(Protocol):
    """What a field writer asks and writes to; a `RestClient` is one."""

    async def nodes(self, since: int | None = None) -> NodeList | None:
        """Return all nodes, or None if nothing has changed since."""

    async def update_nodes(self, hostlist: str, update: NodeUpdate, wanted: Callable[[], bool]) -> None:
        """Change nodes; `WithdrawnError` if that is not wanted in the moment before it is sent."""


class ViewSource(Protocol):
    """What a field writer knows of the cluster; a `SlurmWatch` is one."""

    @property
    def expected(self) -> str:
        """Return the ClusterName that every list must be of; empty if any will do."""

    @property
    def view(self) -> ClusterView:
        """Return the newest view."""

    def wake(self) -> None:
        """Poll now."""


class FieldWriter:
    """The changes of one field of all nodes: one batch at a time, in order."""

    def __init__(
        self,
        field: NodeField,
        rest: NodeApi,
        watch: ViewSource,
        gate: asyncio.Semaphore,
        prefix: str,
        timing: WriterTiming,
    ) -> None:
        self._field = field
        self._gate = gate
        self._rest = rest
        self._watch = watch
        self._prefix = prefix
        self._timing = timing
        self._next: dict[str, list[RequestedChange]] = {}
        self._task: asyncio.Task[None] | None = None
        self._written: dict[str, float] = {}

    def add(self, name: str, change: NodeChange) -> RequestedChange:
        """Take a change into the next batch."""
        requested = RequestedChange(change)
        self._next.setdefault(name, []).append(requested)
        if self._task is None:
            # Not in the context of the first caller: the log lines of all others would carry its variables.
            self._task = asyncio.create_task(
                self._run(), name=f"slurm writer {self._field}", context=contextvars.Context()
            )
        return requested

    async def close(self) -> None:
        """Stop, and settle everything that is open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=self._timing.refresh)
        for waiting in self._next.values():
            for one in waiting:
                one.settle(closed())

    async def _run(self) -> None:
        try:
            while self._next:
                await asyncio.sleep(self._timing.linger)
                collected, self._next = self._next, {}
                await self._settle(counting(collected))
        finally:
            self._task = None

    async def _settle(self, batch: Batch) -> None:
        """Carry out a batch; whatever happens, every waiting caller gets an outcome."""
        remaining: Failed = closed()
        try:
            async with asyncio.timeout(self._timing.batch):
                await self._carry_out(batch)
        except TimeoutError:
            seconds = self._timing.batch
            remaining = Failed(RestUnreachable(f"the update was not confirmed within {seconds:g} seconds"))
        except SlurmError as error:
            remaining = Failed(error)
        except Exception as defect:
            log.exception(
                "an update of Slurm nodes failed because of a bug in the operator", field=self._field
            )
            remaining = Failed(SlurmError(f"bug in the operator, please report it: {defect!r}"))
        finally:
            batch.settle(batch, remaining)

    async def _carry_out(self, batch: Batch) -> None:
        needed = await self._needed(batch)
        decided = asyncio.get_running_loop().time()
        # Deciding about thousands of nodes has taken a turn of its own already.
        await asyncio.sleep(0)
        groups = [*grouped(needed)]
        retries = _MAX_RETRIES
        while groups:
            refused, late = await self._send(groups, batch, decided)
            if not refused and not late:
                return
            try:
                fresh_nodes = await self._refresh()
            except SlurmError:
                for group, error in refused:
                    batch.settle(group.names, Failed(error))
                raise
            decided = asyncio.get_running_loop().time()
            again = self._again(refused, batch, fresh_nodes, retries)
            retries -= len(again)
            groups = [*again, *grouped(self._decide(batch, _names(late), fresh_nodes))]

    async def _needed(self, batch: Batch) -> dict[str, NodeUpdate]:
        """Return the updates to send, decided on a list that is new enough for them."""
        if self._shown(batch):
            updates = await self._decide_all(batch, batch, self._watch.view)
            if self._may_trust_the_view(batch, updates):
                return updates
        asked = batch.open(batch)
        if not asked:
            return {}
        fresh_nodes = await self._refresh()
        updates = await self._decide_all(batch, asked, fresh_nodes)
        if len(updates) < len(asked):
            # It shows what the view does not show yet, and others should know.
            self._watch.wake()
        return updates

    def _may_trust_the_view(self, batch: Batch, updates: Mapping[str, NodeUpdate]) -> bool:
        if not updates or self._field is not NodeField.STATE:
            return True
        listed_at = self._watch.view.listed_at
        age = math.inf if listed_at is None else asyncio.get_running_loop().time() - listed_at
        # A drain adds to what is there; all else takes something away that a person may just have set.
        return age < self._timing.fresh and all(isinstance(batch[name].change, Drain) for name in updates)

    def _shown(self, names: Iterable[str]) -> bool:
        """Return whether the view is younger than what was last written to each of these nodes."""
        listed_at = self._watch.view.listed_at
        if listed_at is not None:
            self._written = {name: at for name, at in self._written.items() if at >= listed_at}
        return not any(name in self._written for name in names)

    def _again(
        self, refused: Sequence[tuple[Group, Refused]], batch: Batch, fresh_nodes: FreshNodes, retries: int
    ) -> list[Group]:
        """Settle what can be said after refusals, and return what to try again, within so many requests."""
        again: list[Group] = []
        for group, error in refused:
            left = self._decide(batch, group.names, fresh_nodes, unchanged=Done())
            smaller = [*regrouped(group, left)]
            hopeless = len(group.names) == 1 or error.numbers & _ABOUT_US
            if hopeless or len(again) + len(smaller) > retries:
                batch.settle(left, Failed(error))
            else:
                again += smaller
        return again

    async def _refresh(self) -> FreshNodes:
        """Ask for the nodes and for nothing else; a round of the watch would ask for more."""
        listed_at, seconds = asyncio.get_running_loop().time(), self._timing.refresh
        try:
            async with asyncio.timeout(seconds), self._gate:
                found = await self._rest.nodes()
        except TimeoutError:
            raise RestUnreachable(f"Slurm's nodes could not be listed within {seconds:g} seconds") from None
        if found is None:
            raise BadReply(
                "slurmrestd reports that the nodes are unchanged, although all of them were requested"
            )
        expected = self._watch.expected
        if is_other(found.cluster, expected):
            self._watch.wake()
            raise WrongCluster(expected, found.cluster)
        # Reading thousands of nodes has taken a turn of its own already.
        await asyncio.sleep(0)
        return FreshNodes(self._watch.view, {node.name: node for node in found.nodes}, listed_at)

    async def _decide_all(
        self, batch: Batch, names: Iterable[str], view: ClusterView | FreshNodes
    ) -> dict[str, NodeUpdate]:
        """Decide as `_decide` does, in slices if what is decided may age."""
        waiting = [*names]
        if self._field is NodeField.STATE:
            return self._decide(batch, waiting, view)
        updates: dict[str, NodeUpdate] = {}
        for start in range(0, len(waiting), _SLICE):
            updates |= self._decide(batch, waiting[start : start + _SLICE], view)
            await asyncio.sleep(0)
        return updates

    def _decide(
        self,
        batch: Batch,
        names: Iterable[str],
        view: ClusterView | FreshNodes,
        *,
        unchanged: Outcome = _UNCHANGED,
    ) -> dict[str, NodeUpdate]:
        """Settle the nodes for which nothing is to be sent; return the updates of the others."""
        now = asyncio.get_running_loop().time()
        updates: dict[str, NodeUpdate] = {}
        for name in batch.open(names):
            decision = decide(batch[name].change, view.node(name, now), self._prefix)
            if isinstance(decision, NodeUpdate):
                updates[name] = decision
            elif isinstance(decision, Unchanged):
                batch[name].settle(unchanged)
            else:
                batch[name].settle(decision)
        return updates

    async def _send(
        self, groups: Iterable[Group], batch: Batch, decided: float
    ) -> tuple[list[tuple[Group, Refused]], Sequence[Group]]:
        """Send requests, a few at a time, and settle them; return the refused, and those not sent in time."""
        refused: list[tuple[Group, Refused]] = []
        queue = deque(groups)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(_WORKERS):
                    tasks.create_task(self._send_each(queue, batch, refused, decided))
        finally:
            if any(at >= decided for at in self._written.values()):
                self._watch.wake()
        return refused, queue

    def _too_old(self, decided: float) -> bool:
        now = asyncio.get_running_loop().time()
        return self._field is NodeField.STATE and now - decided > self._timing.valid

    async def _send_each(
        self, queue: deque[Group], batch: Batch, refused: list[tuple[Group, Refused]], decided: float
    ) -> None:
        while queue and not self._too_old(decided):
            # Which one to send is decided with the turn in hand: it may take long to get that.
            async with self._gate:
                if self._too_old(decided) or (group := _next(queue, batch)) is None:
                    return
                try:
                    await self._send_one(group, batch)
                except WithdrawnError:
                    queue.appendleft(group)
                except Refused as error:
                    refused.append((group, error))
                except SlurmError as error:
                    # Slurm is unavailable or rejects the token, for example: all other groups would fail too.
                    for other in (group, *queue):
                        batch.settle(other.names, Failed(error))
                    queue.clear()

    async def _send_one(self, group: Group, batch: Batch) -> None:
        sent = True
        try:
            await self._rest.update_nodes(
                group.hostlist, group.update, lambda: len(batch.open(group.names)) == len(group.names)
            )
        except Unsupported as error:
            sent = error.sent
            batch.settle(group.names, NotSent(NotSentReason.UNSUPPORTED, str(error)))
        except WithdrawnError:
            sent = False
            raise
        except SlurmError as error:
            sent = error.sent
            raise
        else:
            log.debug("nodes updated", field=self._field, nodes=group.hostlist[:_SHOWN])
            batch.settle(group.names, Done())
        finally:
            if sent:
                self._written |= dict.fromkeys(group.names, asyncio.get_running_loop().time())


def _next(queue: deque[Group], batch: Batch) -> Group | None:
    """Take the next request, without the nodes for which no caller waits any more; None if there is none."""
    while queue:
        group = queue.popleft()
        some = [*narrowed(group, batch.open(group.names))]
        if some:
            queue.extendleft(reversed(some[1:]))
            return some[0]
    return None


def _names(groups: Iterable[Group]) -> list[str]:
    return [name for group in groups for name in group.names]
