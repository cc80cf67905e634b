"""What our own writes left behind, until the cache shows it.

A cache lags behind the writes of its own process. A reconcile within that time would find the state from
before and write the same once more; or, worse, choose differently. So the responses of the API server are
kept and replace what the cache has, as long as they are newer: Kubernetes guarantees that the versions of a
kind can be compared as numbers. An object that was created and that the cache does not show within seconds
was deleted by another client in the meantime.

What this process remembers of a NodeSet between two looks at it.

All of it saves work or keeps an old view from being believed, and none of it has to survive: a new process
starts with an empty memory and comes to the same end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic

from slurm_operator.controllers.nodeset.decide.memo import Memo
from slurm_operator.controllers.nodeset.decide.scale import LONGEST_SECONDS
from slurm_operator.controllers.nodeset.run.background import Refusals
from slurm_operator.kube.meta import T

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.nodeset.decide.actions import DeleteReservation, Note, WriteReservation
    from slurm_operator.controllers.nodeset.decide.deletion import Confirmed
    from slurm_operator.controllers.nodeset.decide.observation import Asked, Worker
    from slurm_operator.controllers.nodeset.decide.reservation import Booking
    from slurm_operator.controllers.nodeset.run.one_pass import Trouble
    from slurm_operator.controllers.nodeset.run.template import Known
    from slurm_operator.kube.meta import Object
    from slurm_operator.kube.models import ControllerRevision, PersistentVolumeClaim, Pod
    from slurm_operator.objects.nodefit import Fit
    from slurm_operator.objects.slurmd import WorkerTemplate
    from slurm_operator.slurm.wishes import Wish

# How long something that we made is believed in while the cache does not show it.
_CACHE_SECONDS: Final = 10.0


class Answers(Generic[T]):
    """Objects of one kind as our own last writes left them, by UID."""

    __slots__ = ("_changed", "_gone", "_made")

    def __init__(self) -> None:
        self._changed: dict[str, T] = {}
        self._made: dict[str, tuple[T, float]] = {}
        self._gone: set[str] = set()

    def __len__(self) -> int:
        return len(self._changed) + len(self._made) + len(self._gone)

    def changed(self, answer: T) -> None:
        """Note what an object became by a change of ours."""
        self._changed[answer.metadata.uid] = answer

    def made(self, answer: T, now: float) -> None:
        """Note an object that we made."""
        self._made[answer.metadata.uid] = (answer, now + _CACHE_SECONDS)

    def deleted(self, uid: str) -> None:
        """Note that we have deleted an object."""
        self._gone.add(uid)

    def newest(self, cached: Iterable[T], now: float) -> list[T]:
        """Return what there is, by the cache or by our own last writes; what the cache shows is forgotten."""
        if not len(self):
            return [*cached]
        shown = {one.metadata.uid: one for one in cached}
        self._gone &= shown.keys()
        self._made = {uid: entry for uid, entry in self._made.items() if uid not in shown and now < entry[1]}
        shown |= {uid: answer for uid, (answer, _) in self._made.items()}
        self._changed = {
            uid: answer for uid, answer in self._changed.items() if uid in shown and newer(answer, shown[uid])
        }
        shown |= self._changed
        return [one for uid, one in shown.items() if uid not in self._gone]


def newer(one: Object, other: Object) -> bool:
    """Return whether one version of an object is later than another; False if they cannot be compared."""
    versions = (one.metadata.resource_version, other.metadata.resource_version)
    if not all(version.isdecimal() for version in versions):
        return False
    first, second = map(int, versions)
    return first > second


# Answers about single nodes are asked for anew long before.
_FORGET_SECONDS = 3600.0


@dataclass(slots=True)
class Memory:
    """Of one NodeSet, by its UID: one of the same name that comes later starts with nothing."""

    uid: str
    new: bool = True
    """No pass has used it yet."""
    workers: dict[str, tuple[Pod, Mapping[str, str], Worker]] = field(default_factory=dict)
    """Pods as they were read, by UID; a pod object that is still the same is not read again."""
    pods: Answers[Pod] = field(default_factory=Answers)
    """Else the next pass would not know which worker the last one has begun to drain, and choose another."""
    owned: Answers[Pod] = field(default_factory=Answers)
    """Pods that were adopted or let go."""
    claims: Answers[PersistentVolumeClaim] = field(default_factory=Answers)
    revisions: Answers[ControllerRevision] = field(default_factory=Answers)

    changing: dict[str, float] = field(default_factory=dict)
    """The Slurm nodes whose state is being changed, and since when."""
    written: dict[str, float] = field(default_factory=dict)
    """When this process last changed, or tried to change, the state of a Slurm node."""
    states: Refusals[tuple[str, Wish]] = field(default_factory=lambda: Refusals(first=5.0, longest=5.0))
    fields: Refusals[tuple[str, Wish]] = field(default_factory=lambda: Refusals(first=5.0, longest=300.0))
    asked: dict[str, Asked] = field(default_factory=dict)
    failures: dict[str, tuple[int, float]] = field(default_factory=dict)
    """How many pods of a name have ended in a row, and when the last one was deleted for that."""
    confirmed: Confirmed | None = None
    """When Slurm was last asked again on purpose."""
    ask_at: float = 0.0
    """Not before this it is asked again: something stayed without an answer."""
    condemned: dict[str, float] = field(default_factory=dict)
    """Records to be deleted if a list that is asked for after this moment still has them as dead."""
    forgetting: set[str] = field(default_factory=set)
    """Records that are being deleted, without those of which the request is under way or over."""
    records: Refusals[str] = field(default_factory=lambda: Refusals(first=30.0, longest=300.0))
    booked: float = -math.inf
    """When the reservation was last written to, or tried to be."""
    booking: Booking | None = None
    """What was last written to it, if Slurm took that and has not listed it so far."""
    bookings: Refusals[WriteReservation | DeleteReservation] = field(
        default_factory=lambda: Refusals(first=30.0, longest=30.0)
    )

    memo: Memo = field(default_factory=Memo)
    """What the last plans found out about pods and nodes that have not changed."""
    said: frozenset[Note] = frozenset()
    """What the last plan had to tell, so that it is not told again while nothing else happens."""
    complained: frozenset[str] = frozenset()
    fit: tuple[int, Fit] | None = None
    """By the generation it was made for."""
    template: tuple[Any, WorkerTemplate] | None = None
    """By what it was made from."""
    history: Known | None = None
    unsaid: dict[Trouble, None] = field(default_factory=dict)
    """What went wrong in the last pass after the status was written."""
    busy: float = 0.0
    """What the last plan took of a processor, in seconds."""
    ended: float = 0.0
    reported: float = 0.0
    """When the status was last written."""

    def tidy(self, names: frozenset[str], now: float) -> None:
        """Forget nodes that no worker has any more."""
        horizon = now - _FORGET_SECONDS
        self.written = {name: at for name, at in self.written.items() if name in names or at > horizon}
        self.asked = {name: one for name, one in self.asked.items() if one.at > horizon}
        longest = now - LONGEST_SECONDS
        self.failures = {name: one for name, one in self.failures.items() if one[1] > longest}


class Memories:
    """The memory of every NodeSet."""

    def __init__(self) -> None:
        self._by_key: dict[object, Memory] = {}

    def of(self, key: object, uid: str) -> Memory:
        """Return the memory of a NodeSet."""
        found = self._by_key.get(key)
        if found is None or found.uid != uid:
            found = self._by_key[key] = Memory(uid)
        return found

    def forget(self, key: object) -> None:
        """Drop the memory of a NodeSet that is gone."""
        self._by_key.pop(key, None)
