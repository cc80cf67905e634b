"""How long a worker whose pods keep ending waits for its next pod.

The kubelet restarts containers that end. A pod ends as a whole when a kubelet evicts or refuses it, or its
node shuts down, and its replacement may end the same way. So each pod that follows comes later: the pause
doubles from a second to a quarter of an hour, for each worker by itself, and starts anew when a pod has run
for ten minutes.

The number of pods that ended in a row is an annotation of the pod that follows them, which costs no write and
survives a restart of the operator. Between the deletion of a pod and the creation of the next one only the
process knows it; an operator that ends right then starts with the first pause.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown

if TYPE_CHECKING:
    from datetime import datetime

    from slurm_operator.controllers.nodeset.observation import Worker

# The bounds of the Slinky slurm-operator.
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 900.0
# As long as a container must run before a kubelet forgets that it crashed.
STAYED_UP_SECONDS: Final = 600.0
# More make no difference: 2^10 seconds are longer than the longest pause.
_MOST: Final = 1000


def pause_seconds(failures: int) -> float:
    """Return how long a worker waits after so many pods that ended in a row."""
    return min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(max(0, failures - 1), 30))


def failures(worker: Worker, wall: datetime) -> int:
    """Return how many pods of a worker have ended in a row, with this one, which has."""
    if _lasted(worker, wall) >= STAYED_UP_SECONDS:
        return 1
    text = worker.annotations.get(wellknown.ANNOTATION_POD_FAILURES, "")
    before = int(text) if text.isascii() and text.isdecimal() and len(text) < len(str(_MOST)) else 0
    return min(_MOST - 1, before + 1)


def next_try(worker: Worker, wall: datetime) -> datetime:
    """Return when a pod that has ended is replaced."""
    return _end(worker, wall) + timedelta(seconds=pause_seconds(failures(worker, wall)))


def _end(worker: Worker, wall: datetime) -> datetime:
    """Return when a pod ended; its creation if that is unknown, or in the future by another clock."""
    end = worker.finished_at
    return end if end is not None and end <= wall else worker.created


def _lasted(worker: Worker, wall: datetime) -> float:
    """Return for how many seconds containers of a pod that has ended ran."""
    ends = [
        one.state.terminated
        for one in worker.pod.status.container_statuses
        if one.state is not None and one.state.terminated is not None
    ]
    if not ends:
        return 0.0
    began = min((one.started_at or worker.created for one in ends), default=worker.created)
    return (_end(worker, wall) - began).total_seconds()
