"""The volume with slurmctld's state: what a claim must be like, and giving it more space.

A PVC grows if its storage class allows expansion, and only once it is bound; the API server rejects it
before. The storage class is read each time, because it is not watched: no event arrives when an administrator
allows expansion later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.controllers.workload.models import Claim, StorageClass
from slurm_operator.controllers.workload.verdict import Cause, Trouble
from slurm_operator.kube.client import PatchType
from slurm_operator.kube.errors import BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound
from slurm_operator.kube.failures import describe
from slurm_operator.kube.meta import Key
from slurm_operator.kube.references import Owner, References

if TYPE_CHECKING:
    from slurm_operator.api import Controller
    from slurm_operator.kube.client import Client
    from slurm_operator.objects.claims import Growth

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


def claim_trouble(controller: Controller, claim: Claim | None) -> Trouble | None:
    """Say what is wrong with the claim that the user names; None if nothing is."""
    name = f"PersistentVolumeClaim {controller.claim_in_use!r}"
    if claim is None:
        return Trouble(Cause.MISSING, f"{name} does not exist; create it", _EXISTING)
    if controller.replicas > 1 and SHARED not in claim.spec.access_modes:
        modes = ", ".join(claim.spec.access_modes) or "none"
        advice = f"with spec.ha.enabled, name one with {SHARED}: all slurmctlds share it"
        return Trouble(Cause.INVALID, f"{name} has the access modes {modes}; {advice}", _EXISTING)
    return None


class Claims:
    """Watches the claims of Controllers and grows them."""

    def __init__(self, client: Client, controller: str) -> None:
        self.references = References(client, Claim)
        self._client = client
        self._controller = controller

    async def read(self, controller: Controller) -> dict[str, Claim]:
        """Watch the claims of a Controller from now on; return those that exist."""
        namespace, wanted = controller.metadata.namespace, names(controller)
        self.references.want(Owner(self._controller, controller.key), [Key(namespace, one) for one in wanted])
        found = {name: await self.references.get(Key(namespace, name)) for name in wanted}
        return {name: claim for name, claim in found.items() if claim is not None}

    def release(self, key: Key) -> None:
        """Watch none for this Controller any more."""
        self.references.want(Owner(self._controller, key), ())

    async def grow(self, claim: Claim, growth: Growth) -> Trouble | None:
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
                return _fixed(f"{name} cannot grow: {its} has no allowVolumeExpansion")
            await self._client.patch(
                Claim, growth.claim, claim.metadata.namespace, body, type=PatchType.MERGE
            )
        except (NotFound, Conflict):
            return None  # the claim is another one by now, and that is an event
        except (BadRequest, Forbidden, Invalid) as error:
            return _fixed(f"{name} cannot grow to {growth.storage}: {describe(error)}")
        except KubeError as error:
            return Trouble(Cause.FAILED, f"{name} could not be changed: {describe(error)}", _RESOURCES)
        return None

    async def _may_grow(self, claim: Claim) -> bool:
        class_name = claim.spec.storage_class_name
        if not class_name:
            return False
        try:
            return (await self._client.get(StorageClass, class_name)).allow_volume_expansion
        except NotFound:
            return False


def _fixed(message: str) -> Trouble:
    return Trouble(Cause.IMMUTABLE, message, _RESOURCES)
