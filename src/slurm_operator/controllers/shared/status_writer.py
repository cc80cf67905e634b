"""Conditions and the rest of a status: written when they change, and only by who owns them.

Several controllers speak about the same object: of a Controller, one says whether slurmctld runs and another
whether slurmrestd answers. Each writes with server-side apply on the status subresource under a field manager
of its own. The list of conditions is keyed by type, so the API server keeps the others' conditions, and what
a controller says no longer disappears with its next apply. No read before the write, no conflict, no lost
entry.

A status that is there already is not written again. What counts as *there* is the newest version known: the
cache, or the server's answer to our last write while the cache has not caught up with it. Without that memory
a second reconcile within the cache's delay would take the condition for new and move its transition time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.controllers.shared.conditions import conditions_of, same_status, set_condition, status_of
from slurm_operator.kube.decide.own_writes import LastWrites
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.text_limits import MESSAGE_BYTES, shorten

if TYPE_CHECKING:
    from slurm_operator.api.shared import Condition, Kind
    from slurm_operator.controllers.shared.conditions import K
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Key


class StatusWriter:
    """Writes the part of a status that one controller owns.

    Give each write all that this controller has to say: what it leaves out is removed by the next one that
    has something new to say.
    """

    def __init__(self, client: Client, field_manager: str) -> None:
        self._client = client
        self._field_manager = field_manager
        self._writes: LastWrites[Any] = LastWrites()

    def newest(self, live: K) -> K:
        """Return the object as it was last seen: in the cache, or in the answer to our own last write."""
        newest: K = self._writes.newest(live)
        return newest

    async def write(
        self,
        live: K,
        *conditions: Condition,
        now: datetime | None = None,
        version: str = "",
        **fields: Any,
    ) -> bool:
        """Write conditions and other fields of the status; return whether there was anything to write.

        `fields` are named as on the wire: `write(live, ready, isReady=True)`. An object that is gone is not
        recreated. With a `version`, a `Conflict` is raised if the object has another one: then what is said
        here may be about the past. One of the same name that took its place may get a status that was meant
        for it: for a status, the API server checks no UID. The newcomer's own reconcile puts that right.
        """
        known = self.newest(live)
        moment = now or datetime.now(UTC)
        said = [
            found
            for one in map(_bounded, conditions)
            for found in set_condition(conditions_of(known), one, moment)
            if found.type == one.type
        ]
        status = {**fields, "conditions": [_wire(one) for one in said]}
        if same_status(status_of(known), status):
            return False
        namespace, name = live.key
        guard = {"resourceVersion": version} if version else {}
        body = {"metadata": {"name": name, "namespace": namespace, **guard}, "status": status}
        try:
            answer = await self._client.apply(
                type(live), body, field_manager=self._field_manager, subresource="status"
            )
        except NotFound:
            return False
        self._writes.note(answer)
        return True

    def forget(self, kind: type[Kind], key: Key) -> None:
        """Drop the memory of an object that is gone."""
        self._writes.forget(kind, key)


def _bounded(one: Condition) -> Condition:
    """Return a condition whose message the API server takes, whatever it quotes."""
    message = shorten(one.message, MESSAGE_BYTES)
    return one if message is one.message else msgspec.structs.replace(one, message=message)


def _wire(one: Condition) -> dict[str, Any]:
    """Return a condition with every required field, also those that are empty."""
    wire: dict[str, Any] = {"reason": "", "message": "", **msgspec.to_builtins(one)}
    return wire
