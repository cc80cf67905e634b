"""Rules that every kind with a Service has in common, and about the names of children."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from slurm_operator.webhook.rules import shapes

if TYPE_CHECKING:
    from slurm_operator.api.shared import ServiceSpec
    from slurm_operator.webhook.rules.findings import Findings

_MAX_PORT: Final = 65_535
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def check_service(wish: ServiceSpec, findings: Findings) -> bool:
    """Validate the wishes for a Service; return whether one can be rendered from them."""
    for path, number in (("spec.service.port", wish.port), ("spec.service.nodePort", wish.node_port)):
        if not 0 <= number <= _MAX_PORT:
            findings.deny(
                path, f"{number} is not a port; use a number from 1 to {_MAX_PORT}, or leave it out"
            )
    if wish.spec.get("externalIPs"):
        findings.warn(
            "spec.service.spec.externalIPs",
            "external IPs are not allowed on this Service and are dropped; use the type LoadBalancer instead",
        )
    return shapes.fits(wish.spec, shapes.ServiceShape, "spec.service.spec", findings)


def check_child_name(name: str, kind: str, findings: Findings) -> None:
    """Refuse an object whose name makes one that a child cannot have."""
    if not _LABEL.fullmatch(name):
        findings.deny(
            "metadata.name",
            f"its {kind} would be named {name!r}, which is not valid: at most 63 lowercase letters, digits "
            "and dashes are allowed; choose a shorter name without dots",
        )
    elif name[0].isdigit():
        # Newer versions allow it, and this one is not asked for.
        findings.warn(
            "metadata.name",
            f"its {kind} would be named {name!r}; older versions of Kubernetes reject a name that starts "
            "with a digit, and then no daemon starts",
        )


def check_not_negative(path: str, number: int, findings: Findings) -> None:
    """Refuse a count below zero; of kinds with a scale, the API server itself looks after the replicas."""
    if number < 0:
        findings.deny(path, f"{number} is negative; it must be 0 or greater")
