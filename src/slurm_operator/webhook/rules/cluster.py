"""Cluster: a URL that leads to a slurmrestd, and a Secret with a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.slurm.address import parse_url

if TYPE_CHECKING:
    from slurm_operator.api import Cluster
    from slurm_operator.webhook.findings import Findings
    from slurm_operator.webhook.world import World


def check(cluster: Cluster, _: World, findings: Findings) -> None:
    """Judge a Cluster."""
    try:
        parse_url(cluster.spec.server)
    except ValueError as error:
        findings.deny("spec.server", str(error))
    if not cluster.token_secret_name:
        findings.require("spec.token.secretRef", "is empty; name the Secret with the token")
