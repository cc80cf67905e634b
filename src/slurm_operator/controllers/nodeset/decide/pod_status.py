"""The conditions of a pod that mirror its Slurm node, and whether it may be deleted.

Only types of our own are touched: the kubelet writes its conditions into the same list.

When the conditions of a pod, and the comment of its node, are worth writing.

At rest they say what is so. While things move, many would be true for a second and cost a write each, and
the writes would be in the way of what moves. So they are put off, for some seconds at most:

    - a drain, or its end, is asked for the first time: the next list will show it, and most idle pods are
      gone by then;
    - a node has just begun to look drained, and the jobs that decide about it are being listed;
    - the pod has just become ready, and others are still starting: a user who scales out waits for these,
      and for the status that counts them. Not if the node has work: that is recorded at once, since the
      record is needed if Slurm loses the node.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import (
    CreatePod,
    DrainNodes,
    Hold,
    ResumeNodes,
    UndrainNodes,
    Wait,
)
from slurm_operator.kube.meta import Condition
from slurm_operator.kube.texts import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from slurm_operator.controllers.nodeset.decide.actions import Action, Decision
    from slurm_operator.controllers.nodeset.decide.cordon import Changes
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.slurm_state import Sight
    from slurm_operator.slurm.model import Node


def _slurm_word(state: str) -> str:
    """Return the word that Slurm has for a state: `NotResponding` is NOT_RESPONDING there."""
    return "".join(
        f"_{char}" if char.isupper() and index else char for index, char in enumerate(state)
    ).upper()


_BASE: Final = {_slurm_word(state): state for state in wellknown.SLURM_BASE_STATES}
_FLAGS: Final = {_slurm_word(state): state for state in wellknown.SLURM_FLAG_STATES}
_WAITS: Final = {wait.value: wait for wait in Wait}


def state_names(node: Node) -> tuple[str, ...]:
    """Return the base state of a node and its flags, in the words of the conditions."""
    return _names(node.state)


# Few combinations exist, and thousands of nodes share them.
@functools.lru_cache(maxsize=1024)
def _names(state: tuple[str, ...]) -> tuple[str, ...]:
    base = next((name for word, name in _BASE.items() if word in state), None)
    flags = (name for word, name in _FLAGS.items() if word in state)
    return (*((base,) if base else ()), *flags)


def state_conditions(node: Node) -> tuple[Condition, ...]:
    """Return the conditions that mirror a node."""
    return _conditions(node.state, shorten(node.reason))


@functools.lru_cache(maxsize=1024)
def _conditions(state: tuple[str, ...], message: str) -> tuple[Condition, ...]:
    kinds = (f"{wellknown.POD_CONDITION_PREFIX}{name}" for name in _names(state))
    return tuple(Condition(type=kind, status="True", message=message) for kind in kinds)


def safe_condition(decision: Decision) -> Condition:
    """Return the condition that says whether a pod that must be removed may be deleted."""
    if isinstance(decision, Hold):
        return Condition(
            type=wellknown.POD_CONDITION_SAFE,
            status="False",
            reason=decision.reason.value,
            message=shorten(decision.message),
        )
    return Condition(
        type=wellknown.POD_CONDITION_SAFE, status="True", reason="Safe", message=shorten(decision.because)
    )


def said_hold(worker: Worker) -> Hold | None:
    """Return the hold that a pod says it is in, if it does."""
    for one in worker.conditions:
        if one.type == wellknown.POD_CONDITION_SAFE and one.status == "False" and one.reason in _WAITS:
            return Hold(_WAITS[one.reason], one.message)
    return None


def changed_conditions(
    worker: Worker, wanted: Iterable[Condition], *, states_known: bool, wall: datetime
) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
    """Return the conditions of ours to set and the types to remove; states stay while they are unknown."""
    present = {
        one.type: one
        for one in worker.conditions
        if one.type.startswith(wellknown.POD_CONDITION_PREFIX) or one.type == wellknown.POD_CONDITION_SAFE
    }
    by_type = {one.type: one for one in wanted}
    new = []
    for kind, one in by_type.items():
        old = present.get(kind)
        if old is not None and (old.status, old.reason, old.message) == (one.status, one.reason, one.message):
            continue
        moved = old is None or old.status != one.status
        since = wall.replace(microsecond=0) if moved or old is None else old.last_transition_time
        new.append(
            Condition(
                type=kind,
                status=one.status,
                reason=one.reason,
                message=one.message,
                last_transition_time=since,
            )
        )
    gone = [
        kind
        for kind in present
        if kind not in by_type and (states_known or kind == wellknown.POD_CONDITION_SAFE)
    ]
    return tuple(new), tuple(gone)


# From a pod that is ready to the list that shows what was written about its node: a few polls.
JUST_NOW_SECONDS: Final = 10.0
# A pod that takes longer to start waits for something else than its turn, so no write is put off for it.
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
