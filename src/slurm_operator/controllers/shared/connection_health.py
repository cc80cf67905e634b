"""Whether a Slurm cluster can be reached, as a condition that users and alerts can rely on.

`assess` turns the view of a connection into a `ConnectionHealth`. Short failures do not change it: a cluster
that was ready stays ready until it has failed for a while (`GRACE`), so a slurmrestd that is rescheduled or
one truncated reply changes no condition. Nor does a restart of the operator: while a new connection makes its
first request, the previous condition stays, ready or not, and a first failure does not change a ready
condition until the grace period is over.
A cluster that returns a suspicious list of nodes stays ready, since it can be reached, but the reason changes
if that persists: no worker is changed meanwhile, and the condition must show users why. The message contains
nothing that varies while the state is the same: no counts, no ages, no error texts.

Each cause has its own reason (`SlurmError.kind`) and a message that, where possible, ends with what to do.

`ConditionReporter` writes it for the SlurmClient and the Cluster controllers: the condition first, then an
Event about it if it changed, so that a condition which could not be written and is tried again is not
announced twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple

from slurm_operator.api import wellknown
from slurm_operator.api.shared import ConditionStatus, find_condition
from slurm_operator.controllers.shared.conditions import K, condition, conditions_of, stalled
from slurm_operator.controllers.shared.status_writer import StatusWriter
from slurm_operator.kube.runtime.controller import Requeue
from slurm_operator.slurm import errors
from slurm_operator.slurm.model.answers import AnswerReason

if TYPE_CHECKING:
    from slurm_operator.api.shared import Condition
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Key
    from slurm_operator.kube.runtime.events import EventRecorder
    from slurm_operator.slurm.model.view import ClusterView, ViewUpdate
    from slurm_operator.slurm.rest.connections import Connection

# slurmctld that is restarted with its state is back in 3 s, slurmrestd in less; retries come after 1 and 3 s.
GRACE: Final = 5.0

CONNECTED: Final = "Connected"
CONNECTING: Final = "Connecting"
SUSPICIOUS: Final = AnswerReason.LIST_SUSPICIOUS.value

# So long a first answer may take: to connect is given up after one grace, and that is an answer, too.
_FIRST_GRACES: Final = 2
# While a list is doubted, another one comes every 5 s: what lasts for three times the grace is no single one.
_DOUBT_GRACES: Final = 3


@dataclass(frozen=True, slots=True)
class ConnectionHealth:
    """The content of a condition: ready or not, or None when unknown; why, and what to do."""

    ready: bool | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ConnectionProblem:
    """Why there can be no connection at all: something is missing or wrong."""

    reason: str
    message: str

    @property
    def health(self) -> ConnectionHealth:
        """Return what the condition says."""
        return ConnectionHealth(ready=False, reason=self.reason, message=self.message)


@dataclass(frozen=True, slots=True)
class RecheckAfter:
    """Nothing new is said yet; requeue after so many seconds."""

    seconds: float


class EventText(NamedTuple):
    """The words of a Kubernetes Event."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


# What to do, by the kind of the error; {url} is where the connection leads.
_SENTENCES: Final = {
    errors.RestUnreachable.kind: "slurmrestd does not respond at {url}: check that its pods run, that its "
    "Service has endpoints, and that no NetworkPolicy blocks the operator",
    errors.ControllerDown.kind: "slurmrestd responds at {url}, but slurmctld does not: check that slurmctld "
    "runs",
    errors.TokenRefused.kind: "slurmrestd responds at {url}, but Slurm rejects the operator's token: check "
    "that its key is the jwt.key of slurmctld, that it has not expired, and that the clocks agree",
    errors.BadReply.kind: "The response from {url} cannot be read: check that the server is slurmrestd and "
    "not a proxy or another server",
    errors.ReplyTooLarge.kind: "The response from {url} is larger than the operator accepts, so no worker is "
    "changed: check that the server is slurmrestd, and that the cluster is within the operator's limits",
    errors.NoCommonVersion.kind: "slurmrestd at {url} offers no API version that this operator supports: use "
    "a Slurm version that it supports",
    errors.Overloaded.kind: "slurmrestd responds at {url}, but Slurm limits the rate of its requests: raise "
    "rl_bucket_size and rl_refill_rate in SlurmctldParameters, or find the client that sends too many",
    errors.WrongCluster.kind: "slurmrestd at {url} belongs to another Slurm cluster than the workers, so no "
    "worker is changed: set the address of the right slurmrestd",
    errors.Refused.kind: "slurmrestd responds at {url}, but Slurm refuses to list its nodes: see its error "
    "in the operator's log",
}
_OTHER: Final = "slurmrestd at {url} cannot be used: see the error in the operator's log"


def sentence(kind: str, url: str) -> str:
    """Say what is wrong and what to do about it."""
    return _SENTENCES.get(kind, _OTHER).format(url=url)


@dataclass(frozen=True, slots=True)
class Observed:
    """What is seen of a connection: its newest view, and since when it has been there, failing, in doubt."""

    url: str
    view: ClusterView
    since: float
    failing_since: float | None = None
    suspicious_since: float | None = None


def observe(connection: Connection) -> Observed:
    """Observe a connection."""
    return Observed(
        connection.target.url,
        connection.view,
        connection.since,
        connection.failing_since,
        connection.suspicious_since,
    )


def assess(
    seen: Observed, previous: Condition | None, now: float, *, grace: float = GRACE
) -> ConnectionHealth | RecheckAfter:
    """Assess a connection; `previous` is what the condition says so far."""
    view, failure = seen.view, seen.view.failure
    said_ready = previous is not None and previous.status == ConditionStatus.TRUE
    if failure is None and view.listed_at is not None:
        if view.suspicion is not None:
            return _doubted(seen, previous, now, _DOUBT_GRACES * grace)
        message = f"slurmrestd responds at {seen.url}, and slurmctld responds through it"
        return ConnectionHealth(ready=True, reason=CONNECTED, message=message)
    if failure is None:
        left = seen.since + _FIRST_GRACES * grace - now
        if (said_ready or _said_failing(previous)) and left > 0:
            return RecheckAfter(left)
        return ConnectionHealth(None, CONNECTING, f"Waiting for the first response from {seen.url}")
    failing_since = now if seen.failing_since is None else seen.failing_since
    left = (failing_since if view.listed_at is not None else seen.since) + grace - now
    if said_ready and left > 0:
        return RecheckAfter(left)
    kind = failure.kind
    if isinstance(failure, errors.CircuitOpen):
        # Other requests failed before the first list was sent, and opened the circuit: slurmrestd did not
        # answer them.
        kind = errors.RestUnreachable.kind
    return (
        mismatch(failure, seen.url)
        if isinstance(failure, errors.WrongCluster)
        else ConnectionHealth(ready=False, reason=kind, message=sentence(kind, seen.url) + _limit(failure))
    )


def _limit(failure: errors.SlurmError) -> str:
    """Return the limit that a reply is beyond, in words that follow a sentence."""
    return f"; {failure.limit}" if isinstance(failure, errors.ReplyTooLarge) and failure.limit else ""


def mismatch(failure: errors.WrongCluster, url: str) -> ConnectionHealth:
    """Say that slurmrestd is of another cluster than the workers."""
    message = (
        f"slurmrestd at {url} belongs to the Slurm cluster {failure.reported!r}, but the workers join "
        f"{failure.expected!r}, so no worker is changed: set the address of the slurmrestd of "
        f"{failure.expected!r}, or, if the address is right, set spec.clusterName to {failure.reported!r}"
    )
    return ConnectionHealth(ready=False, reason=failure.kind, message=message)


def _said_failing(previous: Condition | None) -> bool:
    """Return whether a connection was said to fail; that there was none is no longer so once there is one."""
    return previous is not None and previous.status == ConditionStatus.FALSE and previous.reason in _SENTENCES


def _doubted(
    seen: Observed, previous: Condition | None, now: float, grace: float
) -> ConnectionHealth | RecheckAfter:
    """Assess a connection whose list of nodes is not trusted."""
    left = (now if seen.suspicious_since is None else seen.suspicious_since) + grace - now
    if previous is not None and previous.reason == CONNECTED and left > 0:
        return RecheckAfter(left)
    message = (
        f"slurmrestd responds at {seen.url}, but many nodes are missing from its list: no worker is changed "
        "until more lists agree or the nodes are back. The operator's log names some of them"
    )
    return ConnectionHealth(ready=True, reason=SUSPICIOUS, message=message)


def unreadable(reason: str) -> ConnectionHealth:
    """Say that a Secret cannot be read, which is neither that it is there nor that it is not."""
    message = (
        "The referenced Secret cannot be read, most often because of a missing Role: see the error in the "
        "operator's log"
    )
    return ConnectionHealth(None, reason, message)


def health_changed(update: ViewUpdate) -> bool:
    """Return whether an update can move a condition; most only say that nodes changed."""
    before, after = (
        (view.listed_at is None, type(view.failure), view.suspicion is None)
        for view in (update.previous, update.view)
    )
    return before != after


# Reasons with an Event of their own.
_WARNINGS: Final = {
    SUSPICIOUS: "SlurmListSuspicious",
    errors.TokenRefused.kind: "SlurmTokenRefused",
    errors.WrongCluster.kind: "SlurmClusterNameMismatch",
}


def transition(old: Condition | None, new: Condition) -> EventText | None:
    """Return the Event for a condition that has changed, if the change is worth one."""
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return None
    was_ready = old is not None and old.status == ConditionStatus.TRUE
    if (warning := _WARNINGS.get(new.reason)) is not None:
        return EventText("Warning", warning, "Connect", new.message)
    if new.status == ConditionStatus.TRUE and not was_ready:
        return EventText("Normal", "SlurmApiConnected", "Connect", new.message)
    if new.status == ConditionStatus.FALSE and was_ready:
        return EventText("Warning", "SlurmApiLost", "Connect", new.message)
    return None


class ConditionReporter(Generic[K]):
    """Keeps one condition of the objects of one kind, under a field manager of its own."""

    def __init__(
        self, client: Client, events: EventRecorder, kind: type[K], condition_type: str, field_manager: str
    ) -> None:
        self._events = events
        self._kind = kind
        self._type = condition_type
        self._status = StatusWriter(client, field_manager)

    def previous(self, live: K) -> Condition | None:
        """Return what the condition says so far."""
        return find_condition(conditions_of(self._status.newest(live)), self._type)

    async def say(self, live: K, health: ConnectionHealth | RecheckAfter, **fields: Any) -> Requeue | None:
        """Write the condition, and `fields` of the status, unless they say so already."""
        if isinstance(health, RecheckAfter):
            return Requeue(health.seconds)
        previous = self.previous(live)
        new = condition(self._type, health.ready, health.reason, health.message, live)
        more = [stalled(live, new)] if self._type == wellknown.CONDITION_READY else []
        if await self._status.write(live, new, *more, **fields):
            text = transition(previous, new)
            if text is not None:
                self._events.event(live, *text)
        return None

    def forget(self, key: Key) -> None:
        """Drop the memory of an object that is gone."""
        self._status.forget(self._kind, key)
