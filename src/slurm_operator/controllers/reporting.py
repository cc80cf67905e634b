"""Say how a connection is: the condition first, then an Event about it if it moved.

What the SlurmClient and the Cluster controllers have in common. The Event comes after the write, so that a
condition which could not be written and is tried again is not announced twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from slurm_operator.api import wellknown
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.conditions import K, StatusWriter, condition, conditions_of, stalled
from slurm_operator.controllers.health import Wait, transition
from slurm_operator.kube.controller import Requeue

if TYPE_CHECKING:
    from slurm_operator.api.shared import Condition
    from slurm_operator.controllers.health import Health
    from slurm_operator.kube.client import Client
    from slurm_operator.kube.events import EventRecorder
    from slurm_operator.kube.meta import Key


class Reporter(Generic[K]):
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

    async def say(self, live: K, health: Health | Wait, **fields: Any) -> Requeue | None:
        """Write the condition, and `fields` of the status, unless they say so already."""
        if isinstance(health, Wait):
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
