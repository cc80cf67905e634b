"""LoginSet: login pods as a Deployment, their Service, the configuration of sshd, and its host keys.

Host keys are generated once, in a thread, because an RSA key takes seconds of CPU. The Secret is created, and
its content is never changed. If a Secret of that name exists, its keys are used, unless another object
controls it; if it cannot be used, a condition reports the reason. So an administrator can keep the host keys
of an existing login host, which users have already accepted, by creating the Secret first.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from slurm_operator.api import Controller, LoginSet, wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.shared.problems import WorkloadProblem
from slurm_operator.controllers.workload.children import ChildKey, Children
from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails, Workload
from slurm_operator.controllers.workload.reconcile import WorkloadController, WorkloadPlan, hold_unreadable
from slurm_operator.kube.errors import AlreadyExists, ApiError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Secret, Service
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.failures import describe
from slurm_operator.kube.runtime.sources import ignore_status
from slurm_operator.objects import login
from slurm_operator.objects.host_keys import make_host_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.api.shared import Condition
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.models.store import Change
    from slurm_operator.kube.runtime import controller as runtime

_KEY_FILES: Final = tuple(
    f"ssh_host_{kind}_key{end}" for kind in wellknown.SSH_HOST_KEY_TYPES for end in ("", ".pub")
)
_CONTROLLER_REF: Final = "spec.controllerRef"


def build(wiring: Wiring) -> runtime.Controller:
    """Wire the controller."""
    return LoginSetController(wiring).controller


def keys_trouble(loginset: LoginSet, secret: Secret) -> WorkloadProblem | None:
    """Say why the Secret with the name of the host keys cannot be used; None if it can."""
    name, owner = f"Secret {secret.metadata.name!r}", secret.controller_owner
    if secret.deleting:
        return WorkloadProblem(
            Reason.NAME_TAKEN, f"{name} is being deleted; it will be recreated with new host keys"
        )
    if owner is not None and owner.uid != loginset.metadata.uid:
        former = (owner.kind, owner.name) == (loginset.RESOURCE.kind, loginset.metadata.name)
        why = (
            "belongs to a deleted LoginSet of this name; waiting for its deletion"
            if former
            else f"belongs to {owner.kind} {owner.name!r}: give this LoginSet another name"
        )
        return WorkloadProblem(Reason.NAME_TAKEN, f"{name} {why}")
    if lacking := [file for file in _KEY_FILES if not (secret.data or {}).get(file)]:
        advice = "add them, or delete the Secret to get new host keys"
        return WorkloadProblem(Reason.INVALID_SPEC, f"{name} lacks {', '.join(lacking)}: {advice}")
    return None


class LoginSetController(WorkloadController[LoginSet]):
    """Keeps the login pods of every LoginSet."""

    NAME: ClassVar = "loginset-controller"
    WORKERS: ClassVar = "loginset"
    DAEMON: ClassVar = "sshd"
    APP: ClassVar = wellknown.APP_LOGIN

    def __init__(self, wiring: Wiring) -> None:
        super().__init__(wiring, LoginSet, Children(wiring, Service, ConfigMap, DeploymentDetails))
        self._domain = wiring.cluster_domain
        self._controllers = wiring.manager.informer(Controller)
        self.controller.watch(self._controllers, self._of_controller, ignore_status)

    def _of_controller(self, change: Change[Controller]) -> Iterable[Key]:
        namespace, name = change.key
        return [
            loginset.key
            for loginset in self._objects.store.list(namespace)
            if loginset.spec.controller_ref.name == name
        ]

    def workload(self, live: LoginSet) -> ChildKey:
        """Return the Deployment."""
        return ChildKey(DeploymentDetails.RESOURCE.kind, live.workload_name)

    def fields(self, live: LoginSet, workload: Workload | None) -> dict[str, Any]:
        """Return what autoscalers read, too."""
        return {
            **super().fields(live, workload),
            "replicas": workload.status.replicas if workload else 0,
            "selector": live.selector,
        }

    def event_reason(self, degraded: Condition) -> str:
        """Return the reason that Slinky slurm-operator uses for a missing Controller."""
        missing = degraded.message.startswith(_CONTROLLER_REF)
        return "ControllerRefFailed" if missing else super().event_reason(degraded)

    async def plan(self, live: LoginSet) -> WorkloadPlan:
        """Decide what should be, with host keys that exist by then."""
        key = Key(live.metadata.namespace, live.spec.controller_ref.name)
        hold_unreadable(self._controllers, key)
        controller = self._controllers.store.get(key)
        found = await self._contents.read(live.key, login.references(live, controller))
        secret = found.secrets.get(live.ssh_host_keys_name) or await self._host_keys(live)
        found = replace(found, secrets={**found.secrets, live.ssh_host_keys_name: secret})
        trouble = keys_trouble(live, secret)
        desired = login.desired(live, controller, found, cluster_domain=self._domain)
        if trouble is not None:
            # Pods with such keys would not start, and those that run have the keys that users know.
            kept = tuple(one for one in desired.objects if one["kind"] != DeploymentDetails.RESOURCE.kind)
            return WorkloadPlan(replace(desired, objects=kept), found, (trouble,))
        await self._keep_labels(live, secret)
        return WorkloadPlan(desired, found)

    # ---------------------------------------------------------------------------------------------- host keys
    async def _host_keys(self, live: LoginSet) -> Secret:
        """Return the Secret with the host keys: the one that exists after all, or a new one."""
        name, namespace = live.ssh_host_keys_name, live.metadata.namespace
        # The watch of the Secret may be behind, and making keys is dear.
        with contextlib.suppress(NotFound):
            return await self._client.get(Secret, name, namespace)
        await self._children.require_owner(live)
        keys = await asyncio.to_thread(make_host_keys)
        try:
            made = await self._client.create(Secret, login.host_keys_secret(live, keys))
        except AlreadyExists:
            return await self._client.get(Secret, name, namespace)
        except ApiError as error:
            note = f"Cannot create Secret {name!r}: {describe(error)}"
            self._events.event(live, "Warning", "CreateFailed", "Create", note)
            raise
        self._events.event(live, "Normal", "CreateSucceeded", "Create", f"Created Secret {name!r}", made)
        return made

    async def _keep_labels(self, live: LoginSet, secret: Secret) -> None:
        """Restore missing labels of the Secret that the operator created; its content is immutable."""
        owner = secret.controller_owner
        if owner is None or not secret.immutable:
            return
        manifest = login.host_keys_secret(live, secret.data or {})
        wanted: dict[str, str] = manifest["metadata"]["labels"]
        if not wanted.items() <= secret.metadata.labels.items():
            manifest["metadata"]["uid"] = secret.metadata.uid
            await self._client.apply(Secret, manifest)
