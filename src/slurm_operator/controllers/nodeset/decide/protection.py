"""Which workers Kubernetes must not remove.

A worker with the label `pod-protect` is neither evicted, because of the budget, nor deleted, because of the
admission policy of the chart. Workers are created with it, so that it is there before slurmd can register,
and they lose it only while all of this is so:

    - a cordon, of the Kubernetes node or of the pod, asks for it;
    - the Slurm node is listed and drained, in lists that were asked for just before (`deletion.confirm`).

A node that Slurm does not list is no ground to give up the label: its slurmd may register at any moment, and
then nothing keeps work from it. Such a worker on a cordoned node is deleted instead (`removal_requests`).

A worker gets the label back and loses its cordon before its node takes work again (`deletion.may_undrain`,
`cordon`): without the cordon no release of before can take effect any more. It gets the label at once when
its node is no longer known to be drained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.controllers.nodeset.decide.actions import ReleasePod

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Worker
    from slurm_operator.controllers.nodeset.decide.slurm_state import Sight


def wanted(worker: Worker, sight: Sight, *, cordoned: bool) -> bool:
    """Return whether a worker must have the label; one that has it keeps it until it is released."""
    if not sight.protects or worker.given_up:
        return False
    return worker.protected or not (cordoned and _released(worker, sight))


def release(worker: Worker, sight: Sight, *, cordoned: bool) -> ReleasePod | None:
    """Return how a worker that is asked to go loses its label, if its node is drained."""
    if not (cordoned and worker.protected and sight.protects) or worker.given_up:
        return None
    if not worker.scheduled or sight.absent(worker.slurm_name) is not None:
        return None
    if sight.undrained(worker.slurm_name) is not None:
        return None
    return ReleasePod(worker.name, worker.uid, worker.slurm_name, worker.version)


def _released(worker: Worker, sight: Sight) -> bool:
    """Return whether a worker without the label may go on without it."""
    name = worker.slurm_name
    if sight.unheard(name):
        return True  # a process that has just started waits for Slurm's first answer
    return sight.absent(name) is None and sight.undrained(name) is None
