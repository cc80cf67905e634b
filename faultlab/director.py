"""What both proxies of a run share: the writes so far, the fault, and when the operator is to be killed.

After a kill, whatever the dead process had sent and had not been sent on is dropped: `Director.life` tells
the processes apart.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from faultlab import faults
from faultlab.writes import KUBERNETES, WRITES, Target, Write, body_hash, is_numbered, kubernetes_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multidict import CIMultiDict

    from faultlab.faults import Fault

# How long a process lives on after the answer at which it is to be killed, unless it writes again earlier.
_AFTERLIFE: Final = 0.3
# For how many times its own length a fault waits for something to have an effect on.
_EFFECT: Final = 3.0
_BOOKMARK: Final = re.compile(rb'{\s*"type"\s*:\s*"BOOKMARK"')


@dataclass(frozen=True)
class Call:
    """A request as it arrived."""

    server: str
    method: str
    target: Target
    path: str
    query: Mapping[str, str]
    headers: CIMultiDict[str]
    body: bytes
    life: int

    @property
    def is_watch(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.server == KUBERNETES and self.query.get("watch") in ("1", "true")

    @property
    def is_list(self) -> bool:
        """Whether it reads a whole list of the Kubernetes API."""
        return self.server == KUBERNETES and self.method == "GET" and not (self.target.name or self.is_watch)


@dataclass
class Director:
    """What both proxies of a run share: the writes so far, the fault, and whom to kill."""

    namespace: str
    kill_operator: Callable[[], None]
    fault: Fault | None = None
    leases: bool = False
    writes: list[Write] = field(default_factory=list)
    counting: bool = False
    """Whether the scenario's own part has begun, the only one with crash points."""
    hit: bool = False
    """Whether the fault has happened: the kill, a request or an event that it was about."""
    killed: bool = False
    killed_at: float = 0.0
    life: int = 1
    seen_since: float | None = None
    """When the process that runs now has sent its first request; None while it starts."""
    past: str = ""
    """The resourceVersion that stale lists show: that of the scenario's own beginning."""
    _began: float = field(default_factory=time.monotonic)
    _numbers: int = 0
    _seen: Counter[str] = field(default_factory=Counter)
    _active: asyncio.Event = field(default_factory=asyncio.Event)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _times: int = 0
    _dying: asyncio.Event | None = None
    frozen: dict[str, tuple[int, bytes, str]] = field(default_factory=dict)
    """The answers that a frozen Slurm gives, by path."""
    heard: set[str] = field(default_factory=set)
    """The kinds of which the operator was sent events in the scenario's own part."""

    # --- the course of a run

    def begin(self, past: str = "") -> None:
        """Begin the scenario's own part: from here on writes are crash points, and a lasting fault is on."""
        self.counting = True
        self.past = past
        if self.fault is not None and not self.fault.point:
            self._activate()

    def _activate(self) -> None:
        fault = self.fault
        if fault is None or fault.kills:
            return
        self._active.set()
        if fault.do == faults.STALE and not fault.point:
            self.kill()
        # The time that a start takes, long on a busy machine, is not part of the fault's.
        if self.seen_since is not None:
            self._await_effect(fault)

    def _await_effect(self, fault: Fault) -> None:
        """End a fault that has no effect: what it is about may never come."""

        def give_up() -> None:
            if not self.hit:
                self.end_fault()

        asyncio.get_running_loop().call_later(_EFFECT * fault.seconds, give_up)

    def happened(self) -> None:
        """Note that the fault has had an effect; a lasting one ends its time after the first."""
        if self.fault is not None and not self.hit and self._active.is_set():
            asyncio.get_running_loop().call_later(self.fault.seconds, self.end_fault)
        self.hit = True

    def end_fault(self) -> None:
        """End a lasting fault."""
        self._active.clear()
        self._over.set()

    def seconds(self) -> float:
        """Return the time since the start of the run."""
        return time.monotonic() - self._began

    @property
    def last_write(self) -> float:
        """When the last write was seen; 0 before the first. A Lease is renewed all the time."""
        return max(
            (write.at for write in self.writes if write.number and write.kind != "leases"), default=0.0
        )

    def kill(self) -> None:
        """Kill the operator, and forget what it has under way."""
        self.killed = True
        if self.fault is None or self.fault.kills:
            self.hit = True
        self.killed_at = self.seconds()
        self.life += 1
        self.seen_since = None
        self._dying = None
        if self.fault is not None and self.fault.point:
            self._activate()
        self.kill_operator()

    # --- what the proxies ask

    def record(self, call: Call) -> Write | None:
        """Record a request if it is a write."""
        if self.seen_since is None and call.life == self.life:
            self.seen_since = self.seconds()
            if self.fault is not None and self._active.is_set():
                self._await_effect(self.fault)
        if call.method not in WRITES:
            return None
        if call.server == KUBERNETES:
            kind, name = call.target.kind, kubernetes_name(call.target, call.body)
            numbered = is_numbered(call.target, leases=self.leases)
        else:
            kind, name, numbered = call.target.resource, call.target.name, True
        write = Write(
            0,
            call.server,
            call.method,
            kind,
            name,
            0,
            body_hash(call.body, self.namespace),
            self.seconds(),
            self.life,
            counted=self.counting and numbered,
        )
        if numbered:
            self._numbers += 1
            write.number = self._numbers
        key = f"{write.counted} {write.signature}"
        self._seen[key] += 1
        write.occurrence = self._seen[key]
        self.writes.append(write)
        return write

    def current(self, call: Call) -> Fault | None:
        """Return the fault if it is on and is about this request, not about events or lists."""
        fault = self.fault
        if fault is None or not self._active.is_set() or fault.do in (faults.WITHHOLD, faults.STALE):
            return None
        name = call.target.name
        return fault if fault.hits(call.server, call.method, call.target.resource, name) else None

    def spend(self, fault: Fault) -> bool:
        """Count a request that the fault hits; return whether it still does."""
        if fault.times and self._times >= fault.times:
            return False
        self._times += 1
        self.happened()
        return True

    def holds(self, target: Target, line: bytes) -> bool:
        """Record an event of a watch; return whether it is held back now."""
        bookmark = _BOOKMARK.match(line) is not None
        if self.counting and not bookmark:
            self.heard.add(target.resource)
        fault = self.fault
        if fault is None or fault.do not in (faults.WITHHOLD, faults.STALE) or not self._active.is_set():
            return False
        held = fault.kind == target.resource and (not fault.name or _named(line) in ("", fault.name))
        # A bookmark is held back with the events, but is none.
        if held and not bookmark:
            self.happened()
        return held

    def stale_version(self, call: Call) -> str:
        """Return the resourceVersion that a list is to show; empty for the present one."""
        fault = self.fault
        shown = (
            fault is not None
            and fault.do == faults.STALE
            and self._active.is_set()
            and call.is_list
            and call.target.resource == fault.kind
        )
        return self.past if shown else ""

    @property
    def fault_lasts(self) -> bool:
        """Whether a lasting fault is on."""
        return self._active.is_set()

    async def fault_over(self) -> None:
        """Wait until the fault has ended."""
        await self._over.wait()

    async def before(self, write: Write | None, call: Call) -> bool:
        """Do what is due before a write is sent on; return whether it may be."""
        if self._dying is not None and write is not None:
            self._dying.set()
            self._dying = None
            self.kill()
        if call.life != self.life:
            return False
        if write is not None and self._kills_at(write, "kill-before"):
            self.kill()
            return False
        return True

    def refuses(self, write: Write | None) -> bool:
        """Return whether a write is to be refused instead of sent on."""
        return self._spoiled(write, faults.REFUSE)

    def _spoiled(self, write: Write | None, how: str) -> bool:
        fault = self.fault
        spoiled = write is not None and fault is not None and fault.do == how and fault.hits_write(write)
        self.hit |= spoiled
        return spoiled

    def between(self, write: Write | None) -> bool:
        """Do what is due when the server has answered; return whether the answer may be sent back."""
        if self._spoiled(write, faults.LOSE):
            return False
        if write is not None and self._kills_at(write, "kill-accepted"):
            self.kill()
            return False
        return True

    def after(self, write: Write | None) -> None:
        """Do what is due when the answer was sent back."""
        if write is not None and self._kills_at(write, "kill-after", faults.STALE):
            self.killed = True
            self._dying = asyncio.Event()
            asyncio.get_running_loop().call_later(_AFTERLIFE, self._afterlife_over, self._dying)

    def _afterlife_over(self, dying: asyncio.Event) -> None:
        if not dying.is_set() and self._dying is dying:
            self.kill()

    def _kills_at(self, write: Write, *how: str) -> bool:
        fault = self.fault
        return fault is not None and not self.killed and fault.do in how and fault.hits_write(write)


def _named(line: bytes) -> str:
    """Return the name of the object in a watch event; empty for a bookmark, which is held back, too."""
    try:
        event = json.loads(line)
        return "" if event["type"] == "BOOKMARK" else str(event["object"]["metadata"]["name"])
    except (ValueError, KeyError, TypeError):
        return ""
