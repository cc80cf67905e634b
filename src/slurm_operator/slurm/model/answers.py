"""What can be said about a node: *known*, *absent*, or *unknown*; and whether work may still be on it.

An answer of *known* or *absent* rests on a fresh list of all nodes. Everything else is *unknown*, with a
reason that a condition can show and a message for users. A `DrainAnswer` on a drain is true in one case only;
every other case has a reason of its own, so that the status can show what a node is waiting for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_operator.slurm.model.records import Node


class AnswerReason(StrEnum):
    """Why an answer is what it is, in one word for conditions."""

    # The view cannot say anything about any node.
    NO_VIEW = "NoView"
    VIEW_STALE = "ViewStale"
    SLURM_UNREACHABLE = "SlurmUnreachable"
    SLURMCTLD_DOWN = "SlurmctldDown"
    TOKEN_REFUSED = "TokenRefused"  # noqa: S105 - a reason, no password
    SLURM_REFUSED = "SlurmRefused"
    REPLY_UNREADABLE = "ReplyUnreadable"
    REPLY_TOO_LARGE = "ReplyTooLarge"
    LIST_SUSPICIOUS = "ListSuspicious"
    CLUSTER_NAME_MISMATCH = "ClusterNameMismatch"
    # The view cannot say anything about this node.
    VIEW_PENDING = "ViewPending"
    NODE_MISSING = "NodeMissing"
    CONTROLLER_JUST_STARTED = "ControllerJustStarted"
    # The node is known, and not drained.
    DRAIN_PENDING = "DrainPending"
    UNDRAIN_PENDING = "UndrainPending"
    NOT_DRAINING = "NotDraining"
    JOBS_RUNNING = "JobsRunning"
    JOBS_COMPLETING = "JobsCompleting"
    JOBS_UNKNOWN = "JobsUnknown"
    STATE_UNKNOWN = "StateUnknown"
    # Settled.
    NODE_ABSENT = "NodeAbsent"
    DRAINED = "Drained"


@dataclass(frozen=True, slots=True)
class Known:
    """The node is there, and this is what Slurm said about it at that moment."""

    node: Node
    at: float


@dataclass(frozen=True, slots=True)
class Absent:
    """The node is not there: so said `lists` complete lists in a row, the first at `since`, the last at `at`.

    A name that this process has never seen counts from the first list that could have shown it.
    """

    at: float
    lists: int
    since: float


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be determined whether the node exists, or what runs on it. Never treat this as safe."""

    reason: AnswerReason
    message: str


Answer = Known | Absent | Unknown


@dataclass(frozen=True, slots=True)
class DrainAnswer:
    """Whether a node is drained, why (not), and a sentence about it."""

    drained: bool
    reason: AnswerReason
    message: str
