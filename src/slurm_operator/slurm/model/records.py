"""What slurmrestd says, in the words of Slurm: one set of structs for v0.0.42 to v0.0.45.

Among these versions no field that is read here changes its type, so the structs need no version. Fields that
are not read are skipped by the decoder, unknown ones too. Enumerations that Slurm owns (states, flags) are
plain strings: a state of tomorrow must not make the answer of today unreadable. Where a word is unknown, the
properties here take the side of caution: the node may be busy, the job may hold its nodes.

A number arrives as `{"set": …, "infinite": …, "number": …}`. `NoVal.value` is None when Slurm has not set it,
and `math.inf` when it is infinite.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

# A node is in exactly one of these; all other words in its state are flags.
BASE_STATES: Final = frozenset(
    {"ALLOCATED", "DOWN", "ERROR", "EXTERNAL", "FUTURE", "IDLE", "MIXED", "UNKNOWN"}
)
# Work is on the node, or not yet off it.
BUSY_STATES: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
# A node in one of these has no work, as far as its state tells.
FREE_STATES: Final = frozenset({"IDLE", "DOWN"})
# A job in one of these has left its nodes, or has none yet.
FINISHED_JOB_STATES: Final = frozenset(
    {
        *("PENDING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"),
        *("DEADLINE", "OUT_OF_MEMORY"),
    }
)
# A job in one of these, and in nothing else, has had its nodes and has left them.
ENDED_JOB_STATES: Final = FINISHED_JOB_STATES - {"PENDING"}
# Flags beside such a state that change nothing about it. COMPLETING, CONFIGURING, STAGE_OUT, SIGNALING and
# whatever comes after them are not among these: with one of them a job still has, or already has, its nodes.
IDLE_JOB_FLAGS: Final = frozenset(
    {
        *("LAUNCH_FAILED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"),
        *("REVOKED", "SPECIAL_EXIT"),
    }
)

# Its own number, then that of a task (`_0`, `_[1-3]`) or of a part (`+0`), or nothing.
_JOB_NUMBER: Final = re.compile(r"([0-9]{1,18})(?:[_+].*)?", re.DOTALL)

_Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of what slurmrestd sends: snake_case on the wire, immutable, unknown fields skipped.

    Nothing of it can come to refer to itself, so the garbage collector need not know of it.
    """


class NoVal(_Part, frozen=True):
    """A number that may be unset or infinite."""

    set: bool = False
    infinite: bool = False
    number: float = 0

    @property
    def value(self) -> float | None:
        """Return the number, infinity, or None when it is not set."""
        if self.infinite:
            return math.inf
        return self.number if self.set else None

    @property
    def time(self) -> datetime | None:
        """Return the number as a moment; None when it is unset, infinite, zero (Slurm's never) or absurd."""
        value = self.value
        if not value or not math.isfinite(value):
            return None
        try:
            return datetime.fromtimestamp(value, UTC)
        except (OverflowError, ValueError, OSError):
            return None


UNSET: Final = NoVal()


class Fault(_Part, frozen=True):
    """One entry of `errors[]` or `warnings[]`."""

    description: str = ""
    error_number: int = 0
    error: str = ""
    source: str = ""


class Node(_Part, frozen=True):
    """One node, as the list of all nodes shows it."""

    name: _Name
    state: tuple[str, ...] = ()
    reason: str = ""
    reason_set_by_user: str = ""
    comment: str = ""
    topology: str = ""
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    reservation: str = ""
    alloc_cpus: int | None = None
    cpus: int = 0
    real_memory: int = 0
    gres: str = ""
    suspend_time: NoVal = UNSET
    """After how many idle seconds it is powered down; unset in older versions of the API."""
    reason_changed_at: NoVal = UNSET
    boot_time: NoVal = UNSET
    slurmd_start_time: NoVal = UNSET
    version: str = ""
    instance_id: str = ""
    """What slurmd was started with as `--instance-id`; empty without it.

    24.11 has the newest slurmd's. 26.05 keeps that of the first slurmd that registered under the name, until
    the record is deleted: an equal one proves which slurmd it is, and another one proves nothing.
    """


def _holds_no_node(words: tuple[str, ...]) -> bool:
    """Return whether a job in this state has left its nodes, or has none yet; an unknown word is no."""
    return any(word in FINISHED_JOB_STATES for word in words) and all(
        word in FINISHED_JOB_STATES or word in IDLE_JOB_FLAGS for word in words
    )


class Job(_Part, frozen=True):
    """One job, with only what tells how long it holds which nodes."""

    job_id: int
    job_state: tuple[str, ...] = ()
    partition: str = ""
    nodes: str = ""
    start_time: NoVal = UNSET
    end_time: NoVal = UNSET
    time_limit: NoVal = UNSET

    @property
    def finished(self) -> bool:
        """Return whether the job surely holds no node: ended, or not started; an unknown word means no."""
        return _holds_no_node(self.job_state)


class JobState(_Part, frozen=True):
    """The state of one job."""

    job_id: str
    """The number, with that of a task of an array (`6_0`) or of a part of a job of several (`4+0`)."""
    state: tuple[str, ...] = ()

    @property
    def number(self) -> int | None:
        """Return the number that the job has in the list of jobs; None if it cannot be read."""
        found = _JOB_NUMBER.fullmatch(self.job_id)
        return None if found is None else int(found[1])

    @property
    def finished(self) -> bool:
        """Return whether the job surely holds no node."""
        return _holds_no_node(self.state)

    @property
    def ended(self) -> bool:
        """Return whether Slurm says that the job has ended, and nothing else: no flag, no requeue."""
        return bool(self.state) and ENDED_JOB_STATES.issuperset(self.state)


class JobDetail(_Part, frozen=True):
    """One job with what is shown of it; nothing is decided from it."""

    job_id: int
    array_job_id: NoVal = UNSET
    array_task_id: NoVal = UNSET
    array_task_string: str = ""
    name: str = ""
    user_name: str = ""
    account: str = ""
    partition: str = ""
    job_state: tuple[str, ...] = ()
    state_reason: str = ""
    nodes: str = ""
    node_count: NoVal = UNSET
    cpus: NoVal = UNSET
    features: str = ""
    resv_name: str = ""
    dependency: str = ""
    priority: NoVal = UNSET
    submit_time: NoVal = UNSET
    start_time: NoVal = UNSET
    end_time: NoVal = UNSET
    time_limit: NoVal = UNSET


class Ping(_Part, frozen=True):
    """How one slurmctld answered slurmrestd."""

    hostname: str = ""
    responding: bool = False
    primary: bool = False
    latency: float = 0
    status: str = ""


class Reservation(_Part, frozen=True):
    """One reservation."""

    name: _Name
    start_time: NoVal = UNSET
    end_time: NoVal = UNSET
    flags: tuple[str, ...] = ()
    node_list: str = ""
    users: str = ""
    partition: str = ""


class SlurmPartition(_Part, frozen=True):
    """One partition."""

    name: _Name


class NodeList(_Part, frozen=True):
    """All nodes, and the moment to ask for changes since."""

    nodes: tuple[Node, ...]
    last_update: int
    cluster: str = ""
    """The ClusterName that slurmrestd reports; empty if it reports none."""


class JobList(_Part, frozen=True):
    """All jobs that slurmctld remembers, and the moment to ask for changes since."""

    jobs: tuple[Job, ...]
    last_update: int
    cluster: str = ""


class JobStateList(_Part, frozen=True):
    """What Slurm said about the states of the jobs that it was asked about."""

    unfinished: frozenset[int] = frozenset()
    """Those that may still hold nodes."""
    ended: frozenset[int] = frozenset()
    """Those that are said to have ended; one that Slurm left out, or that was requeued, is in neither."""
    cluster: str = ""


class ReservationList(_Part, frozen=True):
    """All reservations, and the moment to ask for changes since."""

    reservations: tuple[Reservation, ...]
    last_update: int
    cluster: str = ""


class Diag(_Part, frozen=True):
    """What slurmctld says about itself."""

    req_time: NoVal = UNSET
    req_time_start: NoVal = UNSET

    @property
    def server_started(self) -> datetime | None:
        """Return when its statistics began: at its start or later, for they begin anew at midnight."""
        return self.req_time_start.time

    @property
    def uptime(self) -> float | None:
        """Return for how many seconds it has been up at least, by its own clock; None if it does not say."""
        now, began = self.req_time.value, self.req_time_start.value
        return max(0.0, now - began) if now and began and math.isfinite(now - began) else None


class NodeUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What to change about nodes; what is None stays as it is.

    Slurm takes an empty list of features as no change.
    """

    state: tuple[str, ...] | None = None
    reason: str | None = None
    comment: str | None = None
    extra: str | None = None
    topology_str: str | None = None
    features: tuple[str, ...] | None = None
    features_act: tuple[str, ...] | None = None


class ReservationSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation as it should be; what is None or empty stays as it is, or as Slurm's default has it."""

    name: str
    node_list: str = ""
    users: tuple[str, ...] = ()
    partition: str = ""
    start_time: datetime | None = None
    end_time: datetime | None = None
    duration_minutes: int | None = None
    flags: tuple[str, ...] = ()
    comment: str = ""

    def body(self) -> dict[str, object]:
        """Return what slurmrestd wants to read."""
        written: dict[str, object] = {
            "name": self.name,
            "node_list": [self.node_list] if self.node_list else [],
            "users": self.users,
            "partition": self.partition,
            "start_time": _moment(self.start_time),
            "end_time": _moment(self.end_time),
            "duration": {"set": True, "number": self.duration_minutes} if self.duration_minutes else None,
            "flags": self.flags,
            "comment": self.comment,
        }
        return {key: value for key, value in written.items() if value}


def _moment(value: datetime | None) -> dict[str, object] | None:
    return None if value is None else {"set": True, "number": int(value.timestamp())}
