"""Accounting: slurmdbd as a StatefulSet, its Service, and the Secret with slurmdbd.conf.

The Secrets with the keys and with the database's password are watched by name: a password that is rotated
there reaches slurmdbd by itself.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from slurm_operator.api import Accounting, wellknown
from slurm_operator.controllers.workload.children import ChildKey, Children, as_running
from slurm_operator.controllers.workload.decide.read_models import StatefulSetDetails
from slurm_operator.controllers.workload.reconcile import WorkloadController, WorkloadPlan
from slurm_operator.kube.models.kinds import Secret, Service
from slurm_operator.objects import corrections, slurmdbd
from slurm_operator.objects.desired import ObjectName, Unbuildable

if TYPE_CHECKING:
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.runtime import controller as runtime


def build(wiring: Wiring) -> runtime.Controller:
    """Wire the controller."""
    return AccountingController(wiring).controller


class AccountingController(WorkloadController[Accounting]):
    """Keeps the slurmdbd of every Accounting."""

    NAME: ClassVar = "accounting-controller"
    WORKERS: ClassVar = "accounting"
    DAEMON: ClassVar = "slurmdbd"
    APP: ClassVar = wellknown.APP_SLURMDBD

    def __init__(self, wiring: Wiring) -> None:
        super().__init__(wiring, Accounting, Children(wiring, Service, Secret, StatefulSetDetails))

    def workload(self, live: Accounting) -> ChildKey | None:
        """Return the StatefulSet, if slurmdbd runs here."""
        return None if live.spec.external else ChildKey(StatefulSetDetails.RESOURCE.kind, live.workload_name)

    async def plan(self, live: Accounting) -> WorkloadPlan:
        """Decide what should be."""
        found = await self._contents.read(live.key, slurmdbd.references(live))
        desired = slurmdbd.desired(live, found)
        if live.spec.external or corrections.consented(live):
            return WorkloadPlan(desired, found)
        password = b""
        with suppress(Unbuildable):
            password = found.secret_key(live.spec.storage_config.password_key_ref, "")
        kept = corrections.keep(
            desired,
            corrections.Files("Secret", live.config_name, wellknown.ANNOTATION_SLURMDBD_CONF_HASH),
            ObjectName("apps/v1", "StatefulSet", live.workload_name),
            as_running(self._cached(live)),
            self._written(live),
            corrections.former_slurmdbd_lines(password),
        )
        return WorkloadPlan(kept.desired, found, waiting=kept.waiting)

    def _written(self, live: Accounting) -> dict[str, str]:
        """Return the slurmdbd.conf that was written last; none if it cannot be read."""
        slot = ChildKey(Secret.RESOURCE.kind, live.config_name)
        existing = self._children.cached(slot, live.metadata.namespace)
        data = existing.data if isinstance(existing, Secret) else None
        try:
            return {name: content.decode() for name, content in (data or {}).items()}
        except UnicodeDecodeError:
            return {}
