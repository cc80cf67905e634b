"""The words of decisions: one text for each cause of a drain, and a page that lists them."""

from __future__ import annotations

from pathlib import Path

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import RemovalCause, drain_reason
from slurm_operator.objects import slurmd

PAGE = Path(__file__).parents[5] / "docs" / "concepts" / "workers.md"


def test_the_reasons_of_drains_are_documented() -> None:
    """The page has each text as it is written into Slurm, beside the cause on the pod."""
    page = PAGE.read_text(encoding="utf-8")
    prefix = wellknown.REASON_PREFIX
    rows = [f"| `{prefix}{drain_reason(cause, 'NS', 'N')}` | `{cause.value}` |" for cause in RemovalCause]
    assert [row for row in rows if row not in page] == []
    assert f"{prefix}Pod is terminating" in page
    assert f"{prefix}Pod is terminating" in slurmd.PRE_STOP


def test_every_cause_has_a_text_of_its_own() -> None:
    """Whoever reads a reason knows the cause."""
    assert len({drain_reason(cause, "NS", "N") for cause in RemovalCause}) == len(RemovalCause)
