"""What to trust of the lists of nodes that Slurm sends: which nodes are there, gone, or in doubt.

A list is evidence, not truth. slurmctld that lost its state answers with an empty list and no error; a proxy
or a slurmrestd in trouble may answer with half of one. What such a list *shows* is trusted at once. What it
*leaves out* is trusted when it is confirmed:

    name listed ──────────────▶ known
    known, now missing ───────▶ in doubt ──[confirmed]──▶ absent
    never seen ───────────────▶ in doubt ──[confirmed]──▶ absent

Confirmed means: several whole lists in a row over a minimum time said so (an answer of "unchanged" repeats a
list and is not another one), all of them later than the first minute of slurmctld's life, which a question
for its uptime *after* the first such list has shown. How many lists and how much time depends on what is
missing. When so many names vanished lately that they are more than a quarter of all, or the list is empty,
the whole list is suspicious: until it is confirmed, the last trusted one stays, and nothing is known about
any node. Names that this operator deleted itself are expected to vanish and need one list; a list requested
before the deletion leaves them in doubt, and is not suspicious for it.

A restart of slurmctld takes all confirmations back, and so does another slurmctld that takes over, although
it may have been up for longer: it counts as started when it was first heard. slurmctld begins its statistics
anew at midnight, which looks like a restart and costs a minute or two. A list in which a name comes twice, or
is empty, is no list. Failures change nothing but age. Pure: all times are moments of one monotonic clock,
those at which the requests were sent, for the answer may be as old as that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurm_operator.slurm.errors import BadReply
from slurm_operator.slurm.model.reply_limits import MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from slurm_operator.slurm.model.records import Node

# How exactly two answers of slurmctld about its start agree: it counts whole seconds, and answers take time.
_START_TOLERANCE: Final = 5.0
# After this time the evidence for a single absent name is dropped: callers no longer need its exact age.
_FORGET_ABSENT: Final = 3600.0
# A millisecond or two.
_COMPARED_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class TrustRules:
    """How much evidence it takes to trust that nodes are gone; times in seconds."""

    lists: int = 3
    seconds: float = 30.0
    # The longest that a slurmctld was seen to answer an empty list and then come back with its nodes is a
    # person restoring its state by hand, a minute or so.
    wide_lists: int = 10
    wide_seconds: float = 120.0
    # More than this part of all nodes gone at once, or within the time of `wide_seconds`, is suspicious.
    part: float = 0.25
    # slurmd registers again within seconds after slurmctld is back; 60 s is twice its longest retry.
    grace: float = 60.0
    # How long a deletion of our own may take to show.
    expected_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """How many lists in a row said that a name is not there; the first and the last of them that count."""

    lists: int
    since: float
    last: Node | None = None
    """What was known about it before, if anything was."""


@dataclass(frozen=True, slots=True)
class TrustedNodes:
    """What is trusted at one moment. `complete`: a name in none of the mappings is absent."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    doubts: Mapping[str, Evidence] = field(default_factory=dict)
    absent: Mapping[str, Evidence] = field(default_factory=dict)
    others: Evidence | None = None
    complete: bool = False
    suspicion: str | None = None
    listed_at: float | None = None
    confirmed: float | None = None
    """When slurmctld was last asked and had nothing newer, or when the list itself was asked for."""


class NodeListTrust:
    """The state machine: feed it with answers, read `snapshot`."""

    def __init__(self, trust: TrustRules | None = None) -> None:
        self.trust = trust or TrustRules()
        self.snapshot = TrustedNodes()
        self._started: float | None = None
        # Between which moments it started, by its last word; and when it took over from another, if it did.
        self._began: tuple[float, float] | None = None
        self._took_over = -math.inf
        self._uptime_asked: float | None = None
        self._interrupted = False
        # Names that became absent lately without much evidence, and when: a list may shrink in small steps.
        self._lately: dict[str, float] = {}
        self._expected: dict[str, float] = {}

    # --- what is needed next

    @property
    def doubtful(self) -> bool:
        """Return whether another whole list is wanted: an answer of "unchanged" would confirm nothing."""
        snapshot = self.snapshot
        return bool(snapshot.doubts) or snapshot.suspicion is not None or not snapshot.complete

    @property
    def wants_uptime(self) -> bool:
        """Return whether slurmctld's uptime must be asked for: no doubt ends without it."""
        return self._uptime_asked is None or self.doubtful

    @property
    def started(self) -> float | None:
        """Return a moment at which slurmctld was up already, or None if none is known."""
        return self._started

    def just_started(self, now: float) -> bool:
        """Return whether slurmctld may be in its first minute, as after an outage until it says otherwise."""
        return self._interrupted or self._young(now)

    # --- evidence

    def listed(self, found: dict[str, Node], sent: float) -> None:
        """Take in a whole list, `by_name`."""
        self._expire(sent)
        absent, doubts = self._missing(found, sent)
        doubts, absent, suspicion = self._confirm(found, doubts, absent, sent)
        others = self._count(self.snapshot.others, sent) if suspicion is None else None
        complete = others is not None and self._enough(others, sent, wide=not found)
        trusted = found
        if suspicion is not None:
            trusted = {name: old for name, old in self.snapshot.nodes.items() if name not in absent}
        self.snapshot = TrustedNodes(
            MappingProxyType(trusted),
            MappingProxyType(doubts),
            MappingProxyType(absent),
            others,
            complete,
            suspicion,
            sent,
            sent,
        )

    def unchanged(self, sent: float) -> None:
        """Take in that nothing changed since the last list; raises BadReply if there is none to repeat.

        It keeps the list from growing stale and makes it no newer: "since" is a moment of slurmctld's clock,
        and after that went back, nothing has changed for as long as it takes to catch up.
        """
        if self.snapshot.listed_at is None or self.snapshot.suspicion is not None:
            raise BadReply(
                "slurmrestd reports that the nodes are unchanged, although all of them were requested"
            )
        self.snapshot = replace(self.snapshot, confirmed=sent)

    def uptime(self, seconds: float | None, sent: float, received: float | None = None) -> bool:
        """Take in for how long slurmctld has been up at least; return whether it is another one than before.

        None, as in its first second, is zero. It counted at some moment between the question and the answer.
        """
        received = sent if received is None else received
        began = (sent - (seconds or 0.0), received - (seconds or 0.0))
        before, self._began = self._began, began
        self._uptime_asked = sent
        self._interrupted = False
        if before is not None and self._started is not None:
            later, earlier = began[0] > before[1] + _START_TOLERANCE, began[1] < before[0] - _START_TOLERANCE
            if not later and not earlier:
                self._started = max(self._took_over, min(self._started, began[1]))
                return False
            # One that is older than the one before has taken over, at some moment before this answer.
            self._took_over = received if earlier else -math.inf
        self._restarted()
        self._started = max(self._took_over, began[1])
        return True

    def interrupted(self) -> None:
        """Take in a sign that it may be another slurmctld: it did not answer, or its clock went back."""
        self._uptime_asked = None
        self._interrupted = True

    def expect_gone(self, names: Iterable[str], now: float) -> None:
        """Take in that these names have been deleted on purpose, or that the request to do so is sent."""
        self._expected |= dict.fromkeys(names, now)

    def expect_kept(self, names: Iterable[str]) -> None:
        """Take in that these names were not deleted after all, as far as is known."""
        for name in names:
            self._expected.pop(name, None)

    # --- inside

    def _young(self, now: float) -> bool:
        return self._started is not None and now < self._started + self.trust.grace

    def _restarted(self) -> None:
        """Take all confirmations back: lists of the slurmctld before confirm nothing about this one."""
        doubts = {name: replace(doubt, lists=0) for name, doubt in self.snapshot.doubts.items()}
        nothing: Mapping[str, Evidence] = {}
        self.snapshot = replace(
            self.snapshot, doubts=MappingProxyType(doubts), absent=nothing, others=None, complete=False
        )

    def _expire(self, sent: float) -> None:
        trust = self.trust
        self._lately = {name: at for name, at in self._lately.items() if sent - at < trust.wide_seconds}
        self._expected = {
            name: at for name, at in self._expected.items() if sent - at < trust.expected_seconds
        }

    def _count(self, before: Evidence | None, sent: float) -> Evidence:
        """Add one list to what speaks for an absence; those of slurmctld's first minute do not count."""
        if before is None:
            before = Evidence(0, sent)
        if self._young(sent):
            return Evidence(0, sent, before.last)
        return Evidence(before.lists + 1, before.since if before.lists else sent, before.last)

    def _missing(
        self, found: Mapping[str, Node], sent: float
    ) -> tuple[dict[str, Evidence], dict[str, Evidence]]:
        """Return what is absent already and what is in doubt, with this list counted."""
        snapshot = self.snapshot
        # Of a server that lists other names each time, only the last are remembered: `others` has the rest.
        recent = islice(snapshot.absent.items(), max(0, len(snapshot.absent) - MAX_NODES), None)
        absent = {
            name: Evidence(before.lists + 1, before.since, before.last)
            for name, before in recent
            if name not in found and sent - before.since < _FORGET_ABSENT
        }
        known = {name: Evidence(0, sent, node) for name, node in snapshot.nodes.items() if name not in found}
        doubts = known | {name: doubt for name, doubt in snapshot.doubts.items() if name not in found}
        counted = {name: self._count(before, sent) for name, before in doubts.items()}
        for name in [name for name, deleted in self._expected.items() if deleted < sent]:
            if name in counted:
                doubt = counted.pop(name)
                absent[name] = replace(doubt, lists=max(1, doubt.lists))
            elif name in found:
                # It was registered again since; if it vanishes once more, this operator has not deleted it.
                del self._expected[name]
        return absent, counted

    def _confirm(
        self,
        found: Mapping[str, Node],
        doubts: dict[str, Evidence],
        absent: dict[str, Evidence],
        sent: float,
    ) -> tuple[dict[str, Evidence], dict[str, Evidence], str | None]:
        """Move from doubt to absence what is confirmed, and decide about what is left."""
        # A list that was requested before a deletion of our own may have been read after it.
        unexplained = doubts.keys() - self._expected.keys()
        lost = unexplained | (self._lately.keys() - found.keys())
        many = len(lost) > 1 and len(lost) > self.trust.part * (len(found) + len(lost))
        wide = many or not found
        certain = {name for name, doubt in doubts.items() if self._enough(doubt, sent, wide=wide)}
        absent = absent | {name: doubts[name] for name in certain}
        doubts = {name: doubt for name, doubt in doubts.items() if name not in certain}
        if not wide:
            self._lately |= dict.fromkeys(certain, sent)
        elif certain and not unexplained - certain:
            # With so much evidence the smaller list is the new measure.
            self._lately.clear()
        if not (wide and unexplained - certain):
            return doubts, absent, None
        return doubts, absent, self._suspicion(len(found), len(lost), unexplained - certain)

    def _suspicion(self, shown: int, lost: int, names: set[str]) -> str:
        some = ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")  # noqa: PLR2004 - enough to see
        what = "is empty" if not shown else "has 1 node" if shown == 1 else f"has {shown} nodes"
        nodes = "1 node that was" if lost == 1 else f"{lost} nodes that were"
        return f"the node list {what} and lacks {nodes} listed before ({some}): waiting for confirmation"

    def _enough(self, evidence: Evidence, sent: float, *, wide: bool) -> bool:
        trust = self.trust
        lists, seconds = (trust.wide_lists, trust.wide_seconds) if wide else (trust.lists, trust.seconds)
        asked = self._uptime_asked
        return (
            evidence.lists >= lists
            and sent - evidence.since >= seconds
            and asked is not None
            and asked >= evidence.since
        )


def by_name(nodes: Sequence[Node], before: Mapping[str, Node]) -> Generator[None, None, dict[str, Node]]:
    """Return a whole list by name, in steps; BadReply if it cannot be one.

    What has not changed since the list before is the same object.
    """
    found: dict[str, Node] = {}
    for number, node in enumerate(nodes, 1):
        name = node.name
        if not name:
            raise BadReply("the list of nodes has an entry without a name")
        if name in found:
            raise BadReply(f"the list of nodes has {name!r} twice")
        old = before.get(name)
        found[name] = old if old is not None and old == node else node
        if not number % _COMPARED_AT_ONCE:
            yield
    return found
