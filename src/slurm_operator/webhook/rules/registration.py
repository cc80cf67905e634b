"""Under which name and path each webhook is registered: the contract with the chart.

Names and paths are those of Slinky slurm-operator, so that its configurations lead here unchanged. Secrets,
which it does not validate, and removals of pods are named after the same pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_operator.api import KINDS
from slurm_operator.kube.models.kinds import Secret

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Object, Resource

BINDING_NAME: Final = "podsbinding-v1.kb.io"
BINDING_PATH: Final = "/mutate--v1-binding"
REMOVAL_NAME: Final = "podsremoval-v1.kb.io"
REMOVAL_PATH: Final = "/mutate--v1-pod-removal"


@dataclass(frozen=True, slots=True)
class Webhook:
    """One validating webhook."""

    kind: type[Object]

    @property
    def resource(self) -> Resource:
        """Return the resource that it validates."""
        return self.kind.RESOURCE

    @property
    def name(self) -> str:
        """Return its name in the ValidatingWebhookConfiguration."""
        return f"{self.resource.kind.lower()}-{self.resource.version}.kb.io"

    @property
    def path(self) -> str:
        """Return where it is served."""
        group = self.resource.group.replace(".", "-")
        return f"/validate-{group}-{self.resource.version}-{self.resource.kind.lower()}"


WEBHOOKS: Final = (*(Webhook(kind) for kind in KINDS), Webhook(Secret))
