"""What a node should be like, and whether Slurm may be told: the deciding half of the writer, pure.

A `NodeChange` says how one field of one node should be. `decide` compares it with the view and returns the
update to send, or the outcome when there is nothing to send: *unchanged*, or *held* with a reason.

Nothing is sent for a node that the view does not know. For the rest, everything turns on whose reason a node
carries. Slurm has one reason per node, no record of who drained it, and no conditional write, so the reason
is the only mark of ownership there is:

    ours        it starts with the operator's prefix
    unowned     none; or Slurm's own "Not responding", which slurmctld replaces as well; or what an undrain of
                ours left behind; or any reason on a node in none of the states that a reason explains
                (`_EXPLAINED`): it is a leftover. 26.05 removes it at that point, 24.11 keeps it for ever
    foreign     everything else: set by an administrator, a health check, or slurmd itself

A drain only adds. Where a foreign reason is in force it adds the drain without touching the reason (DRAIN
without a reason keeps the one that is there, on both releases), and such a drain is not ours any more. On
a node that another client has drained, the change is held. So it is on a failing node: DRAIN would clear
FAIL.

An undrain takes back only a drain that carries our reason. It is UNDRAIN, not RESUME: RESUME also lifts DOWN,
and fails on a node that is idle. Slurm 24.11 keeps the reason; therefore an undrain leaves one that is in
parentheses and not ours, so that a later drain by another client without a reason is not taken for ours.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, assert_never

from slurm_operator.slurm.model.answers import Absent, Answer, Known, Unknown
from slurm_operator.slurm.model.records import NodeUpdate

if TYPE_CHECKING:
    from slurm_operator.slurm.errors import SlurmError
    from slurm_operator.slurm.model.records import Node

# Runes of a reason beside our prefix: the reference cuts there, so its drains are recognised as they are.
MAX_REASON: Final = 256
# Far above what the operator writes; a list of all nodes carries every comment at every poll.
MAX_TEXT: Final = 16_384
# slurmctld sets this on nodes that went silent, in these words and no others.
_SLURMCTLD_REASON: Final = "Not responding"
# And these on nodes that it powers up: none registered in time, or a slurmd that was not waited for.
_POWER_REASONS: Final = ("ResumeTimeout reached", "Node unexpectedly rebooted")
# With one of these, a request for a power-up (POWER_UP) is still to be carried out. Beside none of them it is
# left over: it came while the node powered up already, and Slurm keeps it as long as the node is up.
_NOT_UP: Final = frozenset({"POWERED_DOWN", "POWERING_DOWN", "NOT_RESPONDING"})
# In these a reason is in force; in others it is a leftover.
_EXPLAINED: Final = frozenset(
    {"DOWN", "ERROR", "FAIL", "DRAIN", "INVALID_REG", "REBOOT_REQUESTED", "REBOOT_ISSUED"}
)
# Not FUTURE: it takes the node out of all lists. Not FAIL: it cannot be determined later who set it.
STATES: Final = frozenset({"DOWN", "IDLE", "RESUME", "POWER_UP", "POWER_DOWN"})
_SHOWN: Final = 120
# The reason of an undrain whose caller gives none.
UNDRAINED: Final = "undrained"


# --- changes


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no new work; the reason gets the operator's prefix."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undrain:
    """Take work again, if the drain is ours."""

    reason: str = UNDRAINED


@dataclass(frozen=True, slots=True)
class SetState:
    """Be put into a state, one of `STATES`. Drains have changes of their own."""

    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResumeCloud:
    """Be usable again after slurmctld itself took a CLOUD node down: it did not come up in time."""


@dataclass(frozen=True, slots=True)
class Comment:
    """Carry this comment."""

    text: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Have this place in the topology; empty for none."""

    text: str


@dataclass(frozen=True, slots=True)
class Features:
    """Have these features, available and active, among those that start with the prefix; others stay."""

    features: tuple[str, ...]
    prefix: str = ""


NodeChange = Drain | Undrain | SetState | ResumeCloud | Comment | Topology | Features


class NodeField(StrEnum):
    """The part of a node that a change is about; of two changes for the same part the later one counts."""

    STATE = "state"
    COMMENT = "comment"
    TOPOLOGY = "topology"
    FEATURES = "features"


def field_of(change: NodeChange) -> NodeField:
    """Return the part of a node that a change is about."""
    match change:
        case Drain() | Undrain() | SetState() | ResumeCloud():
            return NodeField.STATE
        case Comment():
            return NodeField.COMMENT
        case Topology():
            return NodeField.TOPOLOGY
        case Features():
            return NodeField.FEATURES


# --- outcomes


class NotSentReason(StrEnum):
    """Why nothing was sent although the node is not as requested."""

    UNKNOWN = "Unknown"
    ABSENT = "Absent"
    FOREIGN_REASON = "ForeignReason"
    INVALID = "InvalidWish"
    UNSUPPORTED = "Unsupported"
    SUPERSEDED = "Superseded"
    POWERING_UP = "PoweringUp"


@dataclass(frozen=True, slots=True)
class Done:
    """Slurm has accepted the update."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The node is as requested; nothing was sent."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """Nothing was sent, and the message says why."""

    reason: NotSentReason
    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It was tried and the node is not, or not certainly, as requested."""

    error: SlurmError


Outcome = Done | Unchanged | NotSent | Failed


# --- text


def sanitise(text: str, limit: int = MAX_REASON) -> str:
    """Make text fit for one line: white space becomes spaces, what cannot be seen goes, the rest is cut."""
    # Thousands of comments are decided about in a row, and nearly all text can be seen as it is.
    return (text if text.isprintable() else _visible(text)).strip()[:limit].rstrip()


def _visible(text: str) -> str:
    seen = (" " if char.isspace() else char for char in text)
    return "".join(char for char in seen if unicodedata.category(char) not in {"Cc", "Cf", "Cs"})


class _Owner(Enum):
    OURS = "ours"
    NONE = "none"
    FOREIGN = "foreign"


def _owner(reason: str, prefix: str) -> _Owner:
    if reason.startswith(prefix) or reason == prefix.rstrip():
        return _Owner.OURS
    if not reason or reason == _SLURMCTLD_REASON or reason.startswith(f"({prefix}"):
        return _Owner.NONE
    return _Owner.FOREIGN


def drained_by_us(node: Node, prefix: str) -> bool:
    """Return whether a node is drained, and the drain is ours to take back."""
    return _draining(node) and _owner(node.reason, prefix) is _Owner.OURS


def powering_up(node: Node) -> bool:
    """Return whether Slurm powers a node up, or is about to: a job was given one that is powered down."""
    asked = "POWER_UP" in node.state and not _NOT_UP.isdisjoint(node.state)
    if asked or "POWERING_UP" in node.state:
        return True
    allocated = bool(node.alloc_cpus) or not {"ALLOCATED", "MIXED"}.isdisjoint(node.state)
    return "POWERED_DOWN" in node.state and allocated


def downed_by_slurm(node: Node, prefix: str) -> bool:
    """Return whether slurmctld itself or the operator took a CLOUD node down, and no one has drained it.

    slurmctld gives no reason for a node whose slurmd registers after the time for that was over.
    """
    if not {"CLOUD", "DOWN"} <= {*node.state} or not {"FAIL", "INVALID_REG"}.isdisjoint(node.state):
        return False
    if _draining(node) and not drained_by_us(node, prefix):
        return False
    return downed_by_power_saving(node) or _owner(node.reason, prefix) is not _Owner.FOREIGN


def downed_by_power_saving(node: Node) -> bool:
    """Return whether the reason of a node is one that slurmctld gives to nodes that it powers up."""
    return not node.reason or node.reason.startswith(_POWER_REASONS)


def downed_by_others(node: Node, prefix: str) -> bool:
    """Return whether a node is down for a reason that neither slurmctld's power saving nor the operator gave.

    It may have been a drain: Slurm lifts that of a node that does not come up in time, and keeps the reason.
    """
    foreign = _owner(node.reason, prefix) is _Owner.FOREIGN
    return "DOWN" in node.state and foreign and not downed_by_power_saving(node)


def downed_by_us(node: Node, prefix: str) -> bool:
    """Return whether a node is down for a reason of the operator's, or of slurmctld's for silent nodes."""
    return bool(node.reason) and _owner(node.reason, prefix) is not _Owner.FOREIGN


# --- decisions


def decide(change: NodeChange, answer: Answer, prefix: str) -> NodeUpdate | Outcome:
    """Return what to send for a node, or the outcome when nothing is to be sent."""
    match answer:
        case Unknown():
            return NotSent(NotSentReason.UNKNOWN, answer.message)
        case Absent():
            return NotSent(NotSentReason.ABSENT, "Slurm does not list this node")
        case Known():
            return _decide(change, answer.node, prefix)


def _decide(change: NodeChange, node: Node, prefix: str) -> NodeUpdate | Outcome:  # noqa: PLR0911 - one for each change
    match change:
        case Drain():
            return _drain(change, node, prefix)
        case Undrain():
            return _undrain(change, node, prefix)
        case SetState():
            return _state(change, node, prefix)
        case ResumeCloud():
            return _resume_cloud(node, prefix)
        case Comment():
            return _comment(change, node)
        case Topology():
            return _topology(change, node)
        case Features():
            return _features(change, node)
    assert_never(change)


def _draining(node: Node) -> bool:
    return "DRAIN" in node.state and "UNDRAIN" not in node.state


def _foreign_in_force(node: Node, prefix: str) -> bool:
    if "CLOUD" in node.state and downed_by_power_saving(node):
        return False
    return _owner(node.reason, prefix) is _Owner.FOREIGN and not _EXPLAINED.isdisjoint(node.state)


def _held_for_others(node: Node) -> NotSent:
    state = "+".join(sanitise(word, _SHOWN) for word in node.state)
    who = sanitise(node.reason_set_by_user, _SHOWN)
    by = f" set by {who}" if who else ""
    what = f"reason {sanitise(node.reason, _SHOWN)!r}{by}" if node.reason else "no reason is set"
    return NotSent(NotSentReason.FOREIGN_REASON, f"the node is {state}, but not by this operator: {what}")


def _drain(change: Drain, node: Node, prefix: str) -> NodeUpdate | Outcome:
    reason = f"{prefix}{sanitise(change.reason)}".rstrip()
    if drained_by_us(node, prefix) and node.reason == reason:
        return Unchanged()
    if "FAIL" in node.state or (_draining(node) and not drained_by_us(node, prefix)):
        return _held_for_others(node)
    if powering_up(node):
        return NotSent(
            NotSentReason.POWERING_UP, "the node is powering up for a job, which a drain would requeue"
        )
    if _foreign_in_force(node, prefix):
        return NodeUpdate(state=("DRAIN",))
    return NodeUpdate(state=("DRAIN",), reason=reason)


def _undrain(change: Undrain, node: Node, prefix: str) -> NodeUpdate | Outcome:
    if not _draining(node):
        return Unchanged()
    if _owner(node.reason, prefix) is not _Owner.OURS:
        return _held_for_others(node)
    return NodeUpdate(state=("UNDRAIN",), reason=f"({prefix}{sanitise(change.reason)})")


def _state(change: SetState, node: Node, prefix: str) -> NodeUpdate | Outcome:
    state = change.state
    if state not in STATES:
        return NotSent(
            NotSentReason.INVALID, f"state {state!r} cannot be requested: it is not one of {sorted(STATES)}"
        )
    if _foreign_in_force(node, prefix) or (_draining(node) and not drained_by_us(node, prefix)):
        return _held_for_others(node)
    if (
        state in node.state
        or (state == "RESUME" and _EXPLAINED.isdisjoint(node.state))
        or (state == "POWER_UP" and "POWERED_DOWN" not in node.state)
    ):
        return Unchanged()
    if not change.reason:
        return NodeUpdate(state=(state,))
    return NodeUpdate(state=(state,), reason=f"{prefix}{sanitise(change.reason)}".rstrip())


def _resume_cloud(node: Node, prefix: str) -> NodeUpdate | Outcome:
    if "DOWN" not in node.state:
        return Unchanged()
    return NodeUpdate(state=("RESUME",)) if downed_by_slurm(node, prefix) else _held_for_others(node)


def _comment(change: Comment, node: Node) -> NodeUpdate | Outcome:
    # Not cut: half of a JSON text is no JSON text.
    if len(change.text) > MAX_TEXT:
        return NotSent(
            NotSentReason.INVALID, f"the comment has {len(change.text)} characters, more than {MAX_TEXT}"
        )
    comment = sanitise(change.text, MAX_TEXT)
    return Unchanged() if node.comment == comment else NodeUpdate(comment=comment)


def _topology(change: Topology, node: Node) -> NodeUpdate | Outcome:
    if len(change.text) > MAX_TEXT:
        return NotSent(
            NotSentReason.INVALID, f"the topology has {len(change.text)} characters, more than {MAX_TEXT}"
        )
    topology = sanitise(change.text, MAX_TEXT)
    return Unchanged() if node.topology == topology else NodeUpdate(topology_str=topology)


def _features(change: Features, node: Node) -> NodeUpdate | Outcome:
    ours = sorted({change.prefix + name for feature in change.features if (name := sanitise(feature))})
    for feature in ours:
        if "," in feature or " " in feature:
            return NotSent(
                NotSentReason.INVALID,
                f"the feature {feature!r} contains a comma or a space, where Slurm splits",
            )
    available = (*(old for old in node.features if not old.startswith(change.prefix)), *ours)
    active = (*(old for old in node.active_features if not old.startswith(change.prefix)), *ours)
    if set(available) == set(node.features) and set(active) == set(node.active_features):
        return Unchanged()
    # An empty list changes nothing; an empty name clears.
    return NodeUpdate(features=available or ("",), features_act=active or ("",))
