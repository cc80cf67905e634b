"""RestApi: slurmrestd as a Deployment and its Service.

Everything that slurmrestd needs of its cluster comes from the Controller: the ConfigMap with slurm.conf and
the key. So a RestApi follows its Controller, and the Accounting of that, and the Secret with the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from slurm_operator.api import Accounting, Controller, RestApi, wellknown
from slurm_operator.controllers.workload.children import ChildKey, Children
from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails
from slurm_operator.controllers.workload.reconcile import WorkloadController, WorkloadPlan, hold_unreadable
from slurm_operator.kube.models.kinds import Service
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.sources import ignore_status
from slurm_operator.objects import slurmrestd
from slurm_operator.objects.slurm_conf import SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.models.store import Change
    from slurm_operator.kube.runtime import controller as runtime


def build(wiring: Wiring) -> runtime.Controller:
    """Wire the controller."""
    return RestApiController(wiring).controller


class RestApiController(WorkloadController[RestApi]):
    """Keeps the slurmrestd of every RestApi."""

    NAME: ClassVar = "restapi-controller"
    WORKERS: ClassVar = "restapi"
    DAEMON: ClassVar = "slurmrestd"
    APP: ClassVar = wellknown.APP_SLURMRESTD

    def __init__(self, wiring: Wiring) -> None:
        super().__init__(wiring, RestApi, Children(wiring, Service, DeploymentDetails))
        self._controllers = wiring.manager.informer(Controller)
        self._accountings = wiring.manager.informer(Accounting)
        self.controller.watch(self._controllers, self._of_controller, ignore_status)
        self.controller.watch(self._accountings, self._of_accounting, ignore_status)

    def _of_controller(self, change: Change[Controller]) -> Iterable[Key]:
        namespace, name = change.key
        return [
            restapi.key
            for restapi in self._objects.store.list(namespace)
            if restapi.spec.controller_ref.name == name
        ]

    def _of_accounting(self, change: Change[Accounting]) -> Iterable[Key]:
        """Map an Accounting to the RestApis of the Controllers that use it: their slurm.conf names it."""
        namespace, name = change.key
        users = {
            controller.metadata.name
            for controller in self._controllers.store.list(namespace)
            if controller.spec.accounting_ref is not None and controller.spec.accounting_ref.name == name
        }
        return [
            restapi.key
            for restapi in self._objects.store.list(namespace)
            if restapi.spec.controller_ref.name in users
        ]

    def workload(self, live: RestApi) -> ChildKey:
        """Return the Deployment."""
        return ChildKey(DeploymentDetails.RESOURCE.kind, live.workload_name)

    async def plan(self, live: RestApi) -> WorkloadPlan:
        """Decide what should be."""
        cluster = self._cluster(live)
        names = slurmrestd.references(cluster.controller if cluster else None)
        found = await self._contents.read(live.key, names)
        return WorkloadPlan(slurmrestd.desired(live, cluster, found), found)

    def _cluster(self, live: RestApi) -> SlurmCluster | None:
        """Return the Controller and its Accounting; None if there is no such Controller."""
        namespace = live.metadata.namespace
        key = Key(namespace, live.spec.controller_ref.name)
        hold_unreadable(self._controllers, key)
        controller = self._controllers.store.get(key)
        if controller is None:
            return None
        accounting = None
        if controller.spec.accounting_ref is not None:
            named = Key(namespace, controller.spec.accounting_ref.name)
            hold_unreadable(self._accountings, named)
            accounting = self._accountings.store.get(named)
        return SlurmCluster(controller, (), accounting)
