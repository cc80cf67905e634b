"""ServiceMonitors: children of a kind that the API server may or may not serve.

The Prometheus operator can be installed at any time, before this operator or long after. Whether its kind is
served is checked periodically through the discovery API, which every authenticated client may read; a change
is sent on `changes`. Until the API server has answered, the kind counts as not served: no ServiceMonitor is
created, and none is removed either.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from slurm_operator.controllers.workload.decide.read_models import MonitorObject
from slurm_operator.kube.cache.referenced_objects import ReferencedObjects, Referrer
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.runtime.sources import Channel

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Key

log = structlog.get_logger(__name__)

PERIOD_SECONDS: Final = 30.0


class _MonitorEntry(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: list[_MonitorEntry] = []


class Monitors:
    """Knows whether ServiceMonitors exist as a kind, and watches those that are asked for."""

    def __init__(self, client: Client, controller: str, period: float = PERIOD_SECONDS) -> None:
        self.changes: Channel[bool] = Channel()
        self.references = ReferencedObjects(client, MonitorObject)
        self._client = client
        self._controller = controller
        self._period = period
        self._served: bool | None = None

    async def served(self) -> bool:
        """Return whether the API server is known to serve the kind."""
        if self._served is None:
            await self._discover()
        return bool(self._served)

    def want(self, owner: Key, key: Key | None) -> None:
        """Watch one ServiceMonitor for an owner, or none."""
        self.references.want(Referrer(self._controller, owner), [] if key is None else [key])

    async def find(self, key: Key) -> MonitorObject | None:
        """Return a ServiceMonitor that is watched."""
        return await self.references.get(key)

    async def run(self) -> None:
        """Ask every so often, until cancelled."""
        while True:
            await asyncio.sleep(self._period)
            before = self._served
            await self._discover()
            if self._served is not None and self._served is not before:
                log.info(
                    "ServiceMonitors are available"
                    if self._served
                    else "ServiceMonitors are no longer available"
                )
                self.changes.send(self._served)

    async def _discover(self) -> None:
        resource = MonitorObject.RESOURCE
        try:
            answer = await self._client.raw("GET", f"/apis/{resource.api_version}")
            names = {entry.name for entry in msgspec.json.decode(answer, type=_Resources).resources}
            self._served = resource.plural in names
        except NotFound:
            self._served = False
        except (KubeError, msgspec.MsgspecError) as error:
            log.warning("cannot determine whether ServiceMonitors are available", error=str(error))
