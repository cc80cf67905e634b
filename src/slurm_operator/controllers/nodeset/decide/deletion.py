"""What may be done to one worker, and if not, why not.

The first rule of all: a pod is deleted only if no job can be running in it. That is known in few cases.

    never scheduled      nothing ever ran in it (and the API server refuses the deletion if that has changed)
    out of service       a person has declared that its Kubernetes node, which is not ready, runs nothing
    drained              Slurm says so, in lists that were asked for after the last write to this node
    not in Slurm, and slurmd never started, or the pod has finished
    not in Slurm for long, and not lost with work on it

The last one needs care, whatever the pod is deleted for: scale-in, update, registration, or the deletion of
the NodeSet. That a list omits a node proves little. A failing slurmrestd may return a partial list; a process
that has just started cannot distinguish such a list from a complete one, because it has seen no other; and a
job may have started after the previous process last listed the jobs, so that it is recorded nowhere. A
running pod whose node is not listed is therefore deleted only if all of these are true:

    - every list for `REGISTRATION_SECONDS` omitted the node, by the monotonic clock of this process, which
      corrections of the system clock do not change; none was of slurmctld's first minute (`slurm.belief`);
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
and stays valid for two seconds more. A list of thousands of nodes takes longer than that to arrive; so one
that was requested on purpose is valid as well, for two seconds from its arrival. No longer: thousands of
deletions take longer than it takes a user to give a node work again. Where a list is not enough, Slurm must
have been queried for the node by its name as well, together with a list; that is valid for two seconds, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide import protection
from slurm_operator.controllers.nodeset.decide.actions import Allow, Decision, Hold, Proof, ReleasePod, Wait
from slurm_operator.controllers.nodeset.decide.slurm_state import Sight, draining, node_busy
from slurm_operator.slurm.jobs import UNLIMITED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.nodeset.decide.actions import Removal
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.slurm.model import Node

# A slurmd that is going to register does so within seconds of its start; its longest retry is 30 s. The same
# time is what `slurm.belief` demands of lists that shrank widely: without a memory, any list may have.
REGISTRATION_SECONDS: Final = 120.0
# So many whole lists in a row without the node, beside what the view itself demands.
REGISTRATION_LISTS: Final = 3

_BUSY_CONDITIONS: Final = frozenset(
    f"{wellknown.POD_CONDITION_PREFIX}{state}" for state in ("Allocated", "Mixed", "Completing")
)
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)
# The earliest end of a job that has none.
_ENDLESS: Final = datetime.fromtimestamp(UNLIMITED_SECONDS, UTC)


def may_delete(worker: Worker, sight: Sight, wall: datetime) -> Decision:
    """Tell whether a pod may be deleted without killing a job."""
    if (certain := _runs_nothing(worker, sight)) is not None:
        return certain
    if (blind := sight.blind(worker.slurm_name)) is not None:
        return blind
    if sight.absent(worker.slurm_name) is None:
        return sight.undrained(worker.slurm_name) or Allow(f"Slurm node {worker.slurm_name} is drained")
    if not worker.started:
        return Allow(
            "slurmd never started in it, and Slurm does not list its node", unchanged=True, proof=Proof.NAME
        )
    if worker.finished:
        return Allow("it has finished, and Slurm does not list its node")
    return _long_gone(worker, sight, wall) or Allow(
        "Slurm has not had its node for a long time", proof=Proof.NAME
    )


def _runs_nothing(worker: Worker, sight: Sight) -> Allow | None:
    """Return why nothing can run in a pod whatever Slurm says, if so."""
    if not worker.scheduled:
        return Allow("it was never scheduled", unchanged=True, proof=Proof.NONE)
    if sight.out_of_service(worker):
        return Allow("its Kubernetes node is not ready and marked out of service", proof=Proof.NONE)
    return None


def confirm(seen: Observation, removing: tuple[Removal, ...]) -> tuple[Removal, ...]:
    """Return the deletions and releases that a later observation still allows; ask right before sending."""
    sight = Sight(seen)
    workers = {worker.uid: worker for worker in seen.workers}
    return tuple(
        one
        for one in removing
        if (worker := workers.get(one.uid)) is not None
        and worker.active
        and (
            protection.release(worker, sight, cordoned=worker.cordoned) is not None
            if isinstance(one, ReleasePod)
            else _may_delete_now(worker, sight, seen)
        )
    )


def _may_delete_now(worker: Worker, sight: Sight, seen: Observation) -> bool:
    decision = may_delete(worker, sight, seen.wall)
    return isinstance(decision, Allow) and (
        decision.proof is not Proof.NAME or sight.denied(worker.slurm_name)
    )


def may_reregister(worker: Worker, sight: Sight, wall: datetime, min_ready_seconds: int) -> Decision:
    """Tell whether a healthy pod may be replaced because Slurm does not have its node."""
    if (blind := sight.blind(worker.slurm_name)) is not None:
        return blind
    if sight.absent(worker.slurm_name) is None:
        return Hold(Wait.NOT_READY, "Slurm lists the node")
    if not worker.available(wall, min_ready_seconds):
        return Hold(Wait.NOT_READY, "the pod is not available yet")
    hold = _long_gone(worker, sight, wall) or never_registered(worker, sight)
    return hold or Allow("it runs, but Slurm has not had its node for a long time", proof=Proof.NAME)


def may_undrain(worker: Worker, sight: Sight) -> Decision:
    """Tell whether a node may take work again: the drain must be ours and the pod ready for work."""
    if (blind := sight.blind(worker.slurm_name)) is not None:
        return blind
    node = sight.node(worker.slurm_name)
    if node is None:
        return Hold(Wait.NODE_ABSENT, "Slurm does not list the node")
    if not draining(node):
        return Hold(Wait.NOT_READY, "the node does not drain")
    if not sight.ours(worker.slurm_name):
        return foreign_drain(node)
    if not (worker.healthy and sight.safe(worker)):
        lacks = "protected" if worker.healthy else "ready"
        return Hold(Wait.NOT_READY, f"{worker.slurm_name} takes work again when its pod is {lacks}")
    return Allow("the operator drained it, and nothing asks for that any more")


def foreign_drain(node: Node) -> Hold:
    """Return the hold for a node that another client drained, or Slurm, which does not undrain it either."""
    who = "Slurm, which refuses its registration" if "INVALID_REG" in node.state else "somebody else"
    why = f"with the reason {node.reason!r}" if node.reason else "without a reason"
    return Hold(Wait.FOREIGN_DRAIN, f"{node.name} was drained by {who}, {why}: it stays drained")


def never_registered(worker: Worker, sight: Sight) -> Hold | None:
    """Say that Slurm has never had the node of a worker, if so."""
    if sight.registered(worker):
        return None
    return Hold(
        Wait.NEVER_REGISTERED,
        f"Slurm has never listed {worker.slurm_name}: see the log of slurmd in pod {worker.name}, "
        "and delete the pod to start it again",
    )


def lost_until(worker: Worker, sight: Sight) -> datetime | None:
    """Return until when a pod that Slurm lost may still run jobs; None if it was not busy when last seen."""
    last = sight.last_known(worker.slurm_name)
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


def _long_gone(worker: Worker, sight: Sight, wall: datetime) -> Hold | None:
    """Say why a running pod whose node is absent must stay, if so."""
    name = worker.slurm_name
    until = lost_until(worker, sight)
    if until is not None and until > sight.earliest(wall):
        when = "somebody deletes the pod" if until >= _ENDLESS else f"{until:%Y-%m-%dT%H:%M:%SZ}"
        return Hold(
            Wait.LOST_WHILE_BUSY,
            f"Slurm lost {name} while jobs ran on it; they may run on, so it stays until {when}",
        )
    if (listed := sight.jobs_left(name)) is not None:
        return listed
    if not worker.stated and (unknown := never_registered(worker, sight)) is not None:
        return unknown
    evidence = sight.absent(name)
    since = worker.ready_since or worker.created
    if (
        evidence is None
        or evidence.lists < REGISTRATION_LISTS
        or evidence.at - evidence.since < REGISTRATION_SECONDS
        or (wall - since).total_seconds() < REGISTRATION_SECONDS
    ):
        return Hold(Wait.NODE_ABSENT, f"Slurm does not list {name}, which may still register")
    if sight.contradicted(name):
        return Hold(
            Wait.LIST_SUSPICIOUS,
            f"Slurm does not list {name}, but says by name that it is there: the list is not whole",
        )
    return None


# As old as the writer of drains lets a decision be. A list of a thousand nodes takes a third of that to
# arrive, so another one would hardly be younger when it is used.
FRESH_SECONDS: Final = 1.0
LASTS_SECONDS: Final = 2.0
# From a write to the list that shows it: a few hundred milliseconds, or seconds with thousands of nodes.
SETTLES_SECONDS: Final = 5.0
# The part of the time that is left of which one can be sure.
_SURELY: Final = 0.8


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Slurm was asked again on purpose: from when to when, and after what moment for its list of nodes."""

    began: float
    listed: float
    ended: float


@dataclass(frozen=True, slots=True)
class Weighed:
    """Removals for which the evidence is new enough, until when it is, and those that need more."""

    ready: tuple[Removal, ...] = ()
    open: tuple[Removal, ...] = ()
    until: float = 0.0


def counts_until(seen: Observation, confirmed: Confirmed | None) -> float | None:
    """Return until when the list of nodes at hand is ground enough; None if it is not."""
    taken = None if seen.view is None else seen.view.taken
    if taken is None:
        return None
    if taken > seen.now - FRESH_SECONDS:
        return taken + FRESH_SECONDS + LASTS_SECONDS
    if confirmed is None or taken <= confirmed.listed:
        return None
    until = confirmed.ended + LASTS_SECONDS
    return until if seen.now < until else None


def weigh(seen: Observation, confirmed: Confirmed | None, removals: Iterable[Removal]) -> Weighed:
    """Tell for which deletions and releases the evidence is new enough."""
    until = counts_until(seen, confirmed)
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


def in_time(done: int, took: float, left: int, remaining: float) -> bool:
    """Tell whether what is left will be done while the evidence counts, if it goes on as so far."""
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
    """Tell whether the state of a node was changed so lately that the next list will tell of it.

    What its pod would say until then is about to be false, and most idle pods are gone by then.
    """
    taken = -math.inf if seen.view is None or seen.view.taken is None else seen.view.taken
    since = memory.changing.get(name)
    if since is None:
        since = memory.written.get(name, -math.inf)
        if taken > since:
            return False
    return seen.now - since < SETTLES_SECONDS


def _asked(seen: Observation, confirmed: Confirmed | None, name: str) -> bool:
    """Tell whether Slurm was asked for a node by its name when it was last asked on purpose, just now."""
    asked = seen.asked.get(name)
    return (
        confirmed is not None
        and asked is not None
        and asked.at >= confirmed.began
        and seen.now < confirmed.ended + LASTS_SECONDS
    )
