"""What can be wrong with an object, as the conditions of all kinds report it; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slurm_operator.api.reasons import Reason

URGENCY: Final = (
    Reason.REFERENCE_UNREADABLE,
    Reason.MISSING_REFERENCE,
    Reason.INVALID_SPEC,
    Reason.NAME_TAKEN,
    Reason.APPLY_FAILED,
    Reason.ROLLOUT_STALLED,
    Reason.PODS_FAILING,
    Reason.IMMUTABLE_FIELD,
)
"""The reasons of problems, the most urgent first."""


@dataclass(frozen=True, slots=True)
class NodeSetProblem:
    """Something that keeps a NodeSet from being as it should: its reason, a sentence and its Event."""

    reason: Reason
    message: str
    event: Reason = Reason.SYNC_FAILED


@dataclass(frozen=True, slots=True)
class WorkloadProblem:
    """One problem, as the conditions report it."""

    cause: Reason
    message: str
    field: str = ""

    @property
    def text(self) -> str:
        """Return a sentence with the field in it."""
        return f"{self.field}: {self.message}" if self.field else self.message
