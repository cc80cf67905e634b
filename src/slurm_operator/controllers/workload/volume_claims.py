"""The volume with slurmctld's state: what a claim must be like, and giving it more space.

A PVC grows if its storage class allows expansion, and only once it is bound; the API server rejects it
before. The storage class is read each time, because it is not watched: no event arrives when an administrator
allows expansion later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.shared.problems import WorkloadProblem
from slurm_operator.controllers.workload.decide.read_models import StorageClass, VolumeClaim
from slurm_operator.kube.cache.referenced_objects import ReferencedObjects, Referrer
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.failures import describe

if TYPE_CHECKING:
    from slurm_operator.api import Controller
    from slurm_operator.kube.client.client import Client
    from slurm_operator.objects.slurmctld_claim import Growth

SHARED: Final = "ReadWriteMany"
_EXISTING: Final = "spec.persistence.existingClaim"
_RESOURCES: Final = "spec.persistence.resources"


def names(controller: Controller) -> list[str]:
    """Return the claims that hold the state of slurmctld: the user's, or those of the StatefulSet."""
    if controller.spec.external or not controller.persistence_enabled:
        return []
    if controller.claim_in_use:
        return [controller.claim_in_use]
    return [controller.claim_name(ordinal) for ordinal in range(controller.replicas)]


def claim_trouble(controller: Controller, claim: VolumeClaim | None) -> WorkloadProblem | None:
    """Say what is wrong with the claim that the user names; None if nothing is."""
    name = f"PersistentVolumeClaim {controller.claim_in_use!r}"
    if claim is None:
        return WorkloadProblem(Reason.MISSING_REFERENCE, f"{name} does not exist; create it", _EXISTING)
    if controller.replicas > 1 and SHARED not in claim.spec.access_modes:
        modes = ", ".join(claim.spec.access_modes) or "none"
        advice = f"with spec.ha.enabled, use one with {SHARED}, which all slurmctlds share"
        return WorkloadProblem(
            Reason.INVALID_SPEC, f"{name} has the access modes {modes}; {advice}", _EXISTING
        )
    return None


class ClaimGrower:
    """Watches the claims of Controllers and grows them."""

    def __init__(self, client: Client, controller: str) -> None:
        self.references = ReferencedObjects(client, VolumeClaim)
        self._client = client
        self._controller = controller

    async def read(self, controller: Controller) -> dict[str, VolumeClaim]:
        """Watch the claims of a Controller from now on; return those that exist."""
        namespace, wanted = controller.metadata.namespace, names(controller)
        self.references.want(
            Referrer(self._controller, controller.key), [Key(namespace, one) for one in wanted]
        )
        found = {name: await self.references.get(Key(namespace, name)) for name in wanted}
        return {name: claim for name, claim in found.items() if claim is not None}

    def release(self, key: Key) -> None:
        """Watch none for this Controller any more."""
        self.references.want(Referrer(self._controller, key), ())

    async def grow(self, claim: VolumeClaim, growth: Growth) -> WorkloadProblem | None:
        """Ask for more space, where that is possible; say why not."""
        name = f"PersistentVolumeClaim {growth.claim!r}"
        if claim.status.phase != "Bound":
            return None  # its binding is an event
        body = {
            "metadata": {"uid": claim.metadata.uid},
            "spec": {"resources": {"requests": {"storage": growth.storage}}},
        }
        try:
            if not await self._may_grow(claim):
                its = f"its storage class {claim.spec.storage_class_name or ''!r}"
                return _fixed(f"cannot expand {name}: {its} does not set allowVolumeExpansion")
            await self._client.patch(
                VolumeClaim, growth.claim, claim.metadata.namespace, body, type=PatchType.MERGE
            )
        except (NotFound, Conflict):
            return None  # the claim is another one by now, and that is an event
        except (BadRequest, Forbidden, Invalid) as error:
            return _fixed(f"cannot expand {name} to {growth.storage}: {describe(error)}")
        except KubeError as error:
            return WorkloadProblem(
                Reason.APPLY_FAILED, f"cannot update {name}: {describe(error)}", _RESOURCES
            )
        return None

    async def _may_grow(self, claim: VolumeClaim) -> bool:
        class_name = claim.spec.storage_class_name
        if not class_name:
            return False
        try:
            return (await self._client.get(StorageClass, class_name)).allow_volume_expansion
        except NotFound:
            return False


def _fixed(message: str) -> WorkloadProblem:
    return WorkloadProblem(Reason.IMMUTABLE_FIELD, message, _RESOURCES)
