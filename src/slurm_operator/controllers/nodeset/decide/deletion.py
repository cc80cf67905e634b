"""What may be done to one worker, and if not, why not.

The first rule of all: a pod is deleted only if no job can be running in it. That is known in few cases.

    never scheduled      nothing ever ran in it (and the API server refuses the deletion if that has changed)
    out of service       a person has declared that its Kubernetes node, which is not ready, runs nothing
    drained              Slurm says so, in a list of nodes from after the last write to this node, and in a
                         list of jobs from after that, or from earlier in the same drain (`job_survey`)
    powered down         Slurm says so, in such lists: it starts no job on a node that it powers down, and one
                         that is powered up again waits for a slurmd that was started after that
    not in Slurm, and slurmd never started, or the pod has finished
    not in Slurm for long, and not lost with work on it

The last one needs care, whatever the pod is deleted for: scale-in, update, registration, or the deletion of
the NodeSet. That a list omits a node proves little. A failing slurmrestd may return a partial list; a process
that has just started cannot distinguish such a list from a complete one, because it has seen no other; and a
job may have started after the previous process last listed the jobs, so that it is recorded nowhere. A
running pod whose node is not listed is therefore deleted only if all of these are true:

    - every list for `REGISTRATION_SECONDS` omitted the node, by the monotonic clock of this process, which
      corrections of the system clock do not change; none was of slurmctld's first minute
      (`slurm.decide.node_list_trust`);
    - the list of jobs, as fresh, has no job on the node, nor one whose nodes cannot be determined;
    - nothing shows that the node had work when it vanished: neither the conditions and the deadline that this
      operator wrote on the pod, nor the memory of this process. Slurm refuses to delete a node with jobs, so
      a busy node that is not listed was lost with slurmctld's state, and its jobs run on. Until the latest
      end of these jobs, by Slurm's clock and by ours, the pod stays;
    - its name in Slurm is certain: slurmd was started with it, or Slurm has listed it while the pod ran. To
      replace a worker only because its node is absent, Slurm must have listed it;
    - slurmctld, queried for this one node by its name (`Proof.NAME`), reports that it does not exist. That is
      another query than the list, and its reply, although stale about states, is right about what exists: it
      exposes a partial list. A node that exists by name keeps its pod.

So a job could be killed only if slurmctld itself omitted the node from its lists for that long, and denied it
by name as well, while the node ran a job that slurmctld had never reported.

How recent Slurm's data must be for an irreversible action, and how long they stay valid. Pure.

Where a deletion depends on Slurm's data, the list of nodes must have been requested within the last second,
and stays valid for two seconds more. A list of thousands of nodes takes longer than that to arrive; so a list
is valid as well for two seconds from its arrival, if it took 15 seconds at most, together with what the same
round of the watch asked for after it. No longer: thousands of deletions take longer than it takes a user to
give a node work again. What is not valid any more is requested again on purpose, and such a list has no
longer to arrive than any other: whether one was requested by the clock, after the end of a job or for a
deletion changes nothing about what it shows, nor about how old that is. All is decided again on it right
before the deletion, and of a node that was written to only a list requested after that counts.

Where a list is not enough, Slurm must have been queried for the node by its name as well, together with a
list; that is valid for two seconds, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages, protection
from slurm_operator.controllers.nodeset.decide.actions import (
    Allow,
    Decision,
    Defer,
    Proof,
    ReleasePod,
)
from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState, draining, node_busy
from slurm_operator.slurm.decide.drain import powered_off
from slurm_operator.slurm.model.jobs import UNLIMITED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.nodeset.decide.actions import Removal
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.slurm.model.records import Node

# A slurmd that is going to register does so within seconds of its start; its longest retry is 30 s. The same
# time is what `slurm.decide.node_list_trust` demands of lists that shrank widely: without a memory, any list
# may have.
REGISTRATION_SECONDS: Final = 120.0
# So many whole lists in a row without the node, beside what the view itself demands.
REGISTRATION_LISTS: Final = 3

_BUSY_CONDITIONS: Final = frozenset(
    f"{wellknown.POD_CONDITION_PREFIX}{state}" for state in ("Allocated", "Mixed", "Completing")
)
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)
# The earliest end of a job that has none.
_ENDLESS: Final = datetime.fromtimestamp(UNLIMITED_SECONDS, UTC)


def may_delete(worker: Worker, slurm: SlurmState, wall: datetime) -> Decision:
    """Return whether a pod may be deleted without killing a job."""
    if (certain := _runs_nothing(worker, slurm)) is not None:
        return certain
    if (blind := slurm.blind(worker.slurm_name)) is not None:
        return blind
    if slurm.absent(worker.slurm_name) is None:
        return _idle(worker.slurm_name, slurm)
    if not worker.started:
        return Allow(messages.NOT_STARTED, unchanged=True, proof=Proof.NAME)
    if worker.finished:
        return Allow(messages.FINISHED)
    return _long_gone(worker, slurm, wall) or Allow(messages.LONG_ABSENT, proof=Proof.NAME)


def _idle(name: str, slurm: SlurmState) -> Decision:
    """Return whether a node that Slurm lists is powered down or drained."""
    node = slurm.node(name)
    if node is not None and powered_off(node):
        # A slurmd that is started again while its node is powered down would join: then the pod changes.
        return slurm.powered(name) or Allow(messages.powered_down(name), unchanged=True)
    return slurm.undrained(name) or Allow(messages.drained(name))


def _runs_nothing(worker: Worker, slurm: SlurmState) -> Allow | None:
    """Return why nothing can run in a pod whatever Slurm says, if so."""
    if not worker.scheduled:
        return Allow(messages.NEVER_SCHEDULED, unchanged=True, proof=Proof.NONE)
    if slurm.out_of_service(worker):
        return Allow(messages.OUT_OF_SERVICE, proof=Proof.NONE)
    return None


def confirm(seen: Observation, removing: tuple[Removal, ...]) -> tuple[Removal, ...]:
    """Return the deletions and releases that a later observation still allows; ask right before sending."""
    slurm = SlurmState(seen)
    workers = {worker.uid: worker for worker in seen.workers}
    return tuple(
        one
        for one in removing
        if (worker := workers.get(one.uid)) is not None
        and worker.active
        and (
            protection.release(worker, slurm, cordoned=worker.cordoned) is not None
            if isinstance(one, ReleasePod)
            else _may_delete_now(worker, slurm, seen)
        )
    )


def _may_delete_now(worker: Worker, slurm: SlurmState, seen: Observation) -> bool:
    decision = may_delete(worker, slurm, seen.wall)
    return isinstance(decision, Allow) and (
        decision.proof is not Proof.NAME or slurm.denied(worker.slurm_name)
    )


def may_reregister(worker: Worker, slurm: SlurmState, wall: datetime, min_ready_seconds: int) -> Decision:
    """Return whether a healthy pod may be replaced because Slurm does not have its node."""
    if (blind := slurm.blind(worker.slurm_name)) is not None:
        return blind
    if slurm.absent(worker.slurm_name) is None:
        return Defer(Reason.NOT_READY, messages.LISTED)
    if not worker.available(wall, min_ready_seconds):
        return Defer(Reason.NOT_READY, messages.NOT_AVAILABLE)
    wait = _long_gone(worker, slurm, wall) or never_registered(worker, slurm)
    return wait or Allow(messages.LONG_ABSENT_RUNNING, proof=Proof.NAME)


def may_undrain(worker: Worker, slurm: SlurmState) -> Decision:
    """Return whether a node may take work again: the drain must be ours and the pod ready for work."""
    if (blind := slurm.blind(worker.slurm_name)) is not None:
        return blind
    node = slurm.node(worker.slurm_name)
    if node is None:
        return Defer(Reason.NODE_ABSENT, messages.NOT_LISTED)
    if not draining(node):
        return Defer(Reason.NOT_READY, messages.NOT_DRAINING)
    if not slurm.ours(worker.slurm_name):
        return foreign_drain(node)
    if not (worker.healthy and slurm.safe(worker)):
        return Defer(Reason.NOT_READY, messages.undrained_when(worker.slurm_name, healthy=worker.healthy))
    return Allow(messages.UNDRAINING)


def foreign_drain(node: Node) -> Defer:
    """Return the wait for a node that another client drained, or Slurm, which does not undrain it either."""
    return Defer(
        Reason.FOREIGN_DRAIN,
        messages.foreign_drain(node.name, node.reason, rejected="INVALID_REG" in node.state),
    )


def never_registered(worker: Worker, slurm: SlurmState) -> Defer | None:
    """Say that Slurm has never had the node of a worker, if so."""
    if slurm.registered(worker):
        return None
    return Defer(
        Reason.NEVER_REGISTERED,
        messages.never_registered(worker.slurm_name, worker.name),
    )


def lost_until(worker: Worker, slurm: SlurmState) -> datetime | None:
    """Return until when a pod that Slurm lost may still run jobs; None if it was not busy when last seen."""
    last = slurm.last_known(worker.slurm_name)
    seen_busy = any(one.type in _BUSY_CONDITIONS and one.status == "True" for one in worker.conditions) or (
        last is not None and node_busy(last)
    )
    deadline = read_deadline(worker)
    if deadline is None:
        return _FOR_EVER if seen_busy else None
    return deadline


def read_deadline(worker: Worker) -> datetime | None:
    """Return when the last job on a worker ends at the latest, as the pod says; never if unreadable."""
    text = worker.annotations.get(wellknown.ANNOTATION_POD_DEADLINE)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _FOR_EVER
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _long_gone(worker: Worker, slurm: SlurmState, wall: datetime) -> Defer | None:
    """Say why a running pod whose node is absent must stay, if so."""
    name = worker.slurm_name
    until = lost_until(worker, slurm)
    if until is not None and until > slurm.earliest(wall):
        return Defer(
            Reason.LOST_WHILE_BUSY,
            messages.lost_while_busy(name, None if until >= _ENDLESS else until),
        )
    if (listed := slurm.jobs_left(name)) is not None:
        return listed
    if not worker.stated and (unknown := never_registered(worker, slurm)) is not None:
        return unknown
    evidence = slurm.absent(name)
    since = worker.ready_since or worker.created
    if (
        evidence is None
        or evidence.lists < REGISTRATION_LISTS
        or evidence.at - evidence.since < REGISTRATION_SECONDS
        or (wall - since).total_seconds() < REGISTRATION_SECONDS
    ):
        return Defer(Reason.NODE_ABSENT, messages.may_register(name))
    if slurm.contradicted(name):
        return Defer(
            Reason.LIST_SUSPICIOUS,
            messages.list_incomplete(name),
        )
    return None


# As old as the writer of drains lets a decision be. A list of a thousand nodes takes a third of that to
# arrive, so another one would hardly be younger when it is used.
FRESH_SECONDS: Final = 1.0
LASTS_SECONDS: Final = 2.0
# A list takes well under a second, with thousands of nodes some seconds; the breaker of a connection in
# trouble lets one through every few.
LONGEST_SECONDS: Final = 15.0
# From a write to the list that shows it: a few hundred milliseconds, or seconds with thousands of nodes.
SETTLES_SECONDS: Final = 5.0
# How long before a list counts no more another one is asked for: as long as a list takes, within bounds.
_LEAST_AHEAD_SECONDS: Final = 0.25
_MOST_AHEAD_SECONDS: Final = 1.5
# The part of the time that is left of which one can be sure.
_SURELY: Final = 0.8


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Slurm was asked again on purpose: from when to when."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Weighed:
    """Removals for which the evidence is new enough, until when it is, and those that need more."""

    ready: tuple[Removal, ...] = ()
    open: tuple[Removal, ...] = ()
    until: float = 0.0


def counts_until(seen: Observation) -> float | None:
    """Return until when the list of nodes at hand is ground enough; None if it is not."""
    if seen.view is None or seen.view.listed_at is None:
        return None
    listed_at, answered_at = seen.view.listed_at, seen.view.answered_at
    until = -math.inf
    if listed_at > seen.now - FRESH_SECONDS:
        until = listed_at + FRESH_SECONDS + LASTS_SECONDS
    if answered_at is not None and answered_at - listed_at <= LONGEST_SECONDS:
        until = max(until, answered_at + LASTS_SECONDS)
    return until if seen.now < until else None


def weigh(seen: Observation, confirmed: Confirmed | None, removals: Iterable[Removal]) -> Weighed:
    """Tell for which deletions and releases the evidence is new enough."""
    until = counts_until(seen)
    if until is None:
        return Weighed(open=tuple(removals))
    everything = tuple(removals)
    lacking = {
        one.uid
        for one in everything
        if one.proof is Proof.NAME and not _asked(seen, confirmed, one.slurm_name)
    }
    ready = tuple(one for one in everything if one.uid not in lacking)
    if confirmed is not None and any(one.proof is Proof.NAME for one in ready):
        # Newer lists come by themselves, and another answer about a single node does not.
        until = min(until, confirmed.ended + LASTS_SECONDS)
    return Weighed(ready, tuple(one for one in everything if one.uid in lacking), until)


def ahead_seconds(seen: Observation) -> float:
    """Return how long before the list at hand counts no more to ask for another one.

    As long as this one took, with what the watch asked for beside it.
    """
    view = seen.view
    if view is None or view.listed_at is None or view.answered_at is None:
        return _LEAST_AHEAD_SECONDS
    return min(_MOST_AHEAD_SECONDS, max(_LEAST_AHEAD_SECONDS, view.answered_at - view.listed_at))


def in_time(done: int, took: float, left: int, remaining: float) -> bool:
    """Return whether what is left will be done while the evidence counts, if it goes on as so far."""
    return done > 0 and left * took <= _SURELY * remaining * done


class NodeChanges(Protocol):
    """When this process changed the states of nodes, by name."""

    @property
    def changing(self) -> Mapping[str, float]:
        """Return since when a change is on its way."""

    @property
    def written(self) -> Mapping[str, float]:
        """Return when a change was last written."""


def settling(seen: Observation, memory: NodeChanges, name: str) -> bool:
    """Return whether the state of a node was changed so lately that the next list will tell of it.

    What its pod would say until then is about to be false, and most idle pods are gone by then.
    """
    listed_at = -math.inf if seen.view is None or seen.view.listed_at is None else seen.view.listed_at
    since = memory.changing.get(name)
    if since is None:
        since = memory.written.get(name, -math.inf)
        if listed_at > since:
            return False
    return seen.now - since < SETTLES_SECONDS


def _asked(seen: Observation, confirmed: Confirmed | None, name: str) -> bool:
    """Return whether Slurm was asked for a node by its name when it was last asked on purpose, just now."""
    asked = seen.asked.get(name)
    return (
        confirmed is not None
        and asked is not None
        and asked.at >= confirmed.began
        and seen.now < confirmed.ended + LASTS_SECONDS
    )
