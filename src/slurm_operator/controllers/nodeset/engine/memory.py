"""What this process remembers of a NodeSet between two looks at it.

All of it saves work or keeps an old view from being believed, and none of it has to survive: a new process
starts with an empty memory and comes to the same end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_operator.controllers.nodeset.engine.answers import Answers
from slurm_operator.controllers.nodeset.engine.errands import Refusals
from slurm_operator.controllers.nodeset.memo import Memo
from slurm_operator.controllers.nodeset.recreation import LONGEST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.controllers.nodeset.actions import DeleteReservation, Note, WriteReservation
    from slurm_operator.controllers.nodeset.engine.booking import Booking
    from slurm_operator.controllers.nodeset.engine.evidence import Confirmed
    from slurm_operator.controllers.nodeset.engine.history import Known
    from slurm_operator.controllers.nodeset.engine.outcome import Trouble
    from slurm_operator.controllers.nodeset.observation import Asked, Worker
    from slurm_operator.kube.models import ControllerRevision, PersistentVolumeClaim, Pod
    from slurm_operator.objects.nodefit import Fit
    from slurm_operator.objects.slurmd import WorkerTemplate
    from slurm_operator.slurm.wishes import Wish

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
