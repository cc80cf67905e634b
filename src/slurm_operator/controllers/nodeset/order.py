"""Which pod goes first.

The order is that of the reference, with three words put in. A pod on which no job runs goes before a busy
one: it is gone at once. A pod with a request for its removal goes before others. Among the busy ones, a pod
that this operator has already begun to drain for the same cause goes first: work has stopped coming to it,
and a change of mind would lose that.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.policies import read_deadline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeset.decisions import Cause
    from slurm_operator.controllers.nodeset.observation import Worker
    from slurm_operator.controllers.nodeset.sight import Sight

_PHASES: Final = {"Failed": 0, "Succeeded": 0, "Pending": 1, "Unknown": 2, "": 2, "Running": 3}
_INT32: Final = 2**31
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def scale_in_order(workers: Iterable[Worker], sight: Sight, cause: Cause) -> list[Worker]:
    """Return pods in the order in which they go."""
    return sorted(workers, key=lambda worker: _rank(worker, sight, cause))


def deletion_cost(worker: Worker) -> int:
    """Return what a person says that the loss of a pod costs; zero if it cannot be read."""
    text = worker.annotations.get(wellknown.ANNOTATION_POD_DELETION_COST, "0")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or (digits != "0" and digits.startswith("0")):
        return 0
    cost = int(text)
    return cost if -_INT32 <= cost < _INT32 else 0


def marked(worker: Worker, cause: Cause) -> bool:
    """Tell whether the operator has cordoned a pod for a cause."""
    return worker.cordoned and worker.annotations.get(wellknown.ANNOTATION_POD_CORDON_BY) == cause


def _rank(worker: Worker, sight: Sight, cause: Cause) -> tuple[Any, ...]:
    busy = sight.busy(worker.slurm_name)
    begun = marked(worker, cause)
    # While nobody knows what is busy, what has begun stays first: an outage changes no mind.
    idle = busy is False or (busy is None and begun)
    deadline = read_deadline(worker) or _EPOCH
    ready_since = worker.ready_since or datetime.max.replace(tzinfo=UTC)
    return (
        worker.scheduled,
        _PHASES.get(worker.phase, 2),
        worker.ready,
        not idle,
        worker.request is None,
        deletion_cost(worker),
        not begun,
        deadline,
        not worker.cordoned,
        -(worker.ordinal if worker.ordinal is not None else _INT32),
        -(ready_since - _EPOCH).total_seconds(),
        -(worker.created - _EPOCH).total_seconds(),
        worker.name,
    )
