"""What a node should be like, and whether Slurm may be told: the deciding half of the writer, pure.

A wish says how one field of one node should be. `decide` holds it against what the view knows and returns the
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
a node that another client has drained, the wish is held. So it is on a failing node: DRAIN would clear FAIL.

An undrain takes back only a drain that carries our reason. It is UNDRAIN, not RESUME: RESUME also lifts DOWN,
and fails on a node that is idle. Slurm 24.11 keeps the reason; therefore an undrain leaves one that is in
parentheses and not ours, so that a later drain by another client without a reason is not taken for ours.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, assert_never

from slurm_operator.slurm.answers import Absent, Answer, Known, Unknown
from slurm_operator.slurm.model import NodeUpdate

if TYPE_CHECKING:
    from slurm_operator.slurm.errors import SlurmError
    from slurm_operator.slurm.model import Node

# Runes of a reason beside our prefix: the reference cuts there, so its drains are recognised as they are.
MAX_REASON: Final = 256
# Far above what the operator writes; a list of all nodes carries every comment at every poll.
MAX_TEXT: Final = 16_384
# slurmctld sets this on nodes that went silent, in these words and no others.
_SLURMCTLD_REASON: Final = "Not responding"
# In these a reason is in force; in others it is a leftover.
_EXPLAINED: Final = frozenset(
    {"DOWN", "ERROR", "FAIL", "DRAIN", "INVALID_REG", "REBOOT_REQUESTED", "REBOOT_ISSUED"}
)
# Not FUTURE: it takes the node out of all lists. Not FAIL: it cannot be determined later who set it.
STATES: Final = frozenset({"DOWN", "IDLE", "RESUME", "POWER_UP", "POWER_DOWN"})
_SHOWN: Final = 120
# The reason of an undrain whose caller gives none.
UNDRAINED: Final = "undrained"


# --- wishes


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no new work; the reason gets the operator's prefix."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undrain:
    """Take work again, if the drain is ours."""

    reason: str = UNDRAINED


@dataclass(frozen=True, slots=True)
class State:
    """Be put into a state, one of `STATES`. Drains have wishes of their own."""

    state: str
    reason: str = ""


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


Wish = Drain | Undrain | State | Comment | Topology | Features


class Field(StrEnum):
    """The part of a node that a wish is about; of two wishes for the same part the later one counts."""

    STATE = "state"
    COMMENT = "comment"
    TOPOLOGY = "topology"
    FEATURES = "features"


def field_of(wish: Wish) -> Field:
    """Return the part of a node that a wish is about."""
    match wish:
        case Drain() | Undrain() | State():
            return Field.STATE
        case Comment():
            return Field.COMMENT
        case Topology():
            return Field.TOPOLOGY
        case Features():
            return Field.FEATURES


# --- outcomes


class Hold(StrEnum):
    """Why nothing was sent although the node is not as wished."""

    UNKNOWN = "Unknown"
    ABSENT = "Absent"
    FOREIGN_REASON = "ForeignReason"
    INVALID = "InvalidWish"
    UNSUPPORTED = "Unsupported"
    SUPERSEDED = "Superseded"


@dataclass(frozen=True, slots=True)
class Done:
    """Slurm has taken the update."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The node is as wished; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Held:
    """Nothing was sent, and the message says why."""

    reason: Hold
    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It was tried and the node is not, or not certainly, as wished."""

    error: SlurmError


Outcome = Done | Unchanged | Held | Failed


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
    """Tell whether a node is drained, and the drain is ours to take back."""
    return _draining(node) and _owner(node.reason, prefix) is _Owner.OURS


def downed_by_us(node: Node, prefix: str) -> bool:
    """Tell whether the reason of a node that is down is the operator's, or slurmctld's for a silent node."""
    return bool(node.reason) and _owner(node.reason, prefix) is not _Owner.FOREIGN


# --- decisions


def decide(wish: Wish, answer: Answer, prefix: str) -> NodeUpdate | Outcome:
    """Return what to send for a node, or the outcome when nothing is to be sent."""
    match answer:
        case Unknown():
            return Held(Hold.UNKNOWN, answer.message)
        case Absent():
            return Held(Hold.ABSENT, "Slurm does not list this node")
        case Known():
            return _decide(wish, answer.node, prefix)


def _decide(wish: Wish, node: Node, prefix: str) -> NodeUpdate | Outcome:
    match wish:
        case Drain():
            return _drain(wish, node, prefix)
        case Undrain():
            return _undrain(wish, node, prefix)
        case State():
            return _state(wish, node, prefix)
        case Comment():
            return _comment(wish, node)
        case Topology():
            return _topology(wish, node)
        case Features():
            return _features(wish, node)
    assert_never(wish)


def _draining(node: Node) -> bool:
    return "DRAIN" in node.state and "UNDRAIN" not in node.state


def _foreign_in_force(node: Node, prefix: str) -> bool:
    return _owner(node.reason, prefix) is _Owner.FOREIGN and not _EXPLAINED.isdisjoint(node.state)


def _held_for_others(node: Node) -> Held:
    state = "+".join(sanitise(word, _SHOWN) for word in node.state)
    who = sanitise(node.reason_set_by_user, _SHOWN) or "somebody"
    what = f"{who} says {sanitise(node.reason, _SHOWN)!r}" if node.reason else "nobody says why"
    return Held(Hold.FOREIGN_REASON, f"the node is {state} and not by this operator: {what}")


def _drain(wish: Drain, node: Node, prefix: str) -> NodeUpdate | Outcome:
    reason = f"{prefix}{sanitise(wish.reason)}".rstrip()
    if drained_by_us(node, prefix) and node.reason == reason:
        return Unchanged()
    if "FAIL" in node.state or (_draining(node) and not drained_by_us(node, prefix)):
        return _held_for_others(node)
    if _foreign_in_force(node, prefix):
        return NodeUpdate(state=("DRAIN",))
    return NodeUpdate(state=("DRAIN",), reason=reason)


def _undrain(wish: Undrain, node: Node, prefix: str) -> NodeUpdate | Outcome:
    if not _draining(node):
        return Unchanged()
    if _owner(node.reason, prefix) is not _Owner.OURS:
        return _held_for_others(node)
    return NodeUpdate(state=("UNDRAIN",), reason=f"({prefix}{sanitise(wish.reason)})")


def _state(wish: State, node: Node, prefix: str) -> NodeUpdate | Outcome:
    state = wish.state
    if state not in STATES:
        return Held(Hold.INVALID, f"state {state!r} cannot be wished for: it is none of {sorted(STATES)}")
    if _foreign_in_force(node, prefix) or (_draining(node) and not drained_by_us(node, prefix)):
        return _held_for_others(node)
    if state in node.state or (state == "RESUME" and _EXPLAINED.isdisjoint(node.state)):
        return Unchanged()
    if not wish.reason:
        return NodeUpdate(state=(state,))
    return NodeUpdate(state=(state,), reason=f"{prefix}{sanitise(wish.reason)}".rstrip())


def _comment(wish: Comment, node: Node) -> NodeUpdate | Outcome:
    # Not cut: half of a JSON text is no JSON text.
    if len(wish.text) > MAX_TEXT:
        return Held(Hold.INVALID, f"the comment has {len(wish.text)} characters, more than {MAX_TEXT}")
    comment = sanitise(wish.text, MAX_TEXT)
    return Unchanged() if node.comment == comment else NodeUpdate(comment=comment)


def _topology(wish: Topology, node: Node) -> NodeUpdate | Outcome:
    if len(wish.text) > MAX_TEXT:
        return Held(Hold.INVALID, f"the topology has {len(wish.text)} characters, more than {MAX_TEXT}")
    topology = sanitise(wish.text, MAX_TEXT)
    return Unchanged() if node.topology == topology else NodeUpdate(topology_str=topology)


def _features(wish: Features, node: Node) -> NodeUpdate | Outcome:
    ours = sorted({wish.prefix + name for feature in wish.features if (name := sanitise(feature))})
    for feature in ours:
        if "," in feature or " " in feature:
            return Held(
                Hold.INVALID, f"the feature {feature!r} has a comma or a space in it: Slurm splits there"
            )
    available = (*(old for old in node.features if not old.startswith(wish.prefix)), *ours)
    active = (*(old for old in node.active_features if not old.startswith(wish.prefix)), *ours)
    if set(available) == set(node.features) and set(active) == set(node.active_features):
        return Unchanged()
    # An empty list changes nothing; an empty name clears.
    return NodeUpdate(features=available or ("",), features_act=active or ("",))
