"""Cluster: a URL that leads to a slurmrestd, and a Secret with a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.slurm.model.slurm_address import parse_url

if TYPE_CHECKING:
    from slurm_operator.api import Cluster
    from slurm_operator.webhook.rules.findings import Findings
    from slurm_operator.webhook.rules.world import World


def check(cluster: Cluster, _: World, findings: Findings) -> None:
    """Validate a Cluster."""
    try:
        parse_url(cluster.spec.server)
    except ValueError as error:
        findings.deny("spec.server", str(error))
    if not cluster.token_secret_name:
        findings.require("spec.token.secretRef", "is empty; set the name of the Secret with the token")
