"""When the conditions of a pod, and the comment of its node, are worth writing.

At rest they say what is so. While things move, many would be true for a second and cost a write each, and
the writes would be in the way of what moves. So they are put off, for some seconds at most:

    - a drain, or its end, is asked for the first time: the next list will show it, and most idle pods are
      gone by then;
    - a node has just begun to look drained, and the jobs that decide about it are being listed;
    - the pod has just become ready, and others are still on their way: whoever scales out waits for these,
      and for the status that counts them. Not if the node has work: that is noted at once, since it has to
      be known should Slurm forget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.controllers.nodeset.actions import CreatePod, DrainNodes, ResumeNodes, UndrainNodes
from slurm_operator.controllers.nodeset.decisions import Hold, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeset.actions import Action
    from slurm_operator.controllers.nodeset.cordon import Changes
    from slurm_operator.controllers.nodeset.decisions import Decision
    from slurm_operator.controllers.nodeset.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.sight import Sight

# From a pod that is ready to the list that shows what was written about its node: a few polls.
JUST_NOW_SECONDS: Final = 10.0
# A pod that takes longer to start waits for something else than its turn, and nobody waits for it.
STARTS_SECONDS: Final = 30.0


class Telling:
    """Decides for each pod of one plan; `put_off` says whether any has to wait."""

    def __init__(self, seen: Observation, sight: Sight, actions: Iterable[Action]) -> None:
        self._seen = seen
        self._sight = sight
        planned = [*actions]
        self.moving = {
            name
            for one in planned
            if isinstance(one, DrainNodes | UndrainNodes | ResumeNodes)
            for name in one.names
        }
        """Slurm nodes whose state is about to be changed."""
        self.put_off = False
        self._coming = any(isinstance(one, CreatePod) for one in planned) or any(
            not (worker.ready or worker.deleting or worker.finished)
            and self._age(worker.created.timestamp()) < STARTS_SECONDS
            for worker in seen.workers
        )

    def waits(self, worker: Worker, cordon: Changes | None, decision: Decision | None) -> bool:
        """Tell whether nothing is to be written about a pod for now."""
        name = worker.slurm_name
        if (
            (name in self.moving and (cordon is not None or self._just_ready(worker)))
            or self._jobs_follow(name, decision)
            or (self._coming and decision is None and self._just_ready(worker) and not self._sight.busy(name))
        ):
            self.put_off = True
            return True
        return False

    def _just_ready(self, worker: Worker) -> bool:
        since = worker.ready_since
        return since is not None and self._age(since.timestamp()) < JUST_NOW_SECONDS

    def _age(self, moment: float) -> float:
        # A clock that is behind the one that said since when must not make it just now for ever.
        age = self._seen.wall.timestamp() - moment
        return age if age >= 0 else float("inf")

    def _jobs_follow(self, name: str, decision: Decision | None) -> bool:
        view = self._seen.view
        return (
            isinstance(decision, Hold)
            and decision.reason is Wait.JOBS_UNKNOWN
            and view is not None
            and name in view.owed
            and view.jobs_failure is None
        )
