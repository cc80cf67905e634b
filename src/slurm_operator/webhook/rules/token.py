"""Token: the rules are those of the controller that issues it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.objects import token_checks as tokens

if TYPE_CHECKING:
    from slurm_operator.api import Token
    from slurm_operator.webhook.rules.findings import Findings
    from slurm_operator.webhook.rules.world import World


def check(token: Token, _: World, findings: Findings) -> None:
    """Validate a Token."""
    findings.note(tokens.problems(token))
