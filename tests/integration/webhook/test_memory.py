"""What the webhook takes of memory, against the limit that the chart sets."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.support.webhook.admission_reviews import PATHS, question
from tests.support.webhook.rule_cases import manifest

if TYPE_CHECKING:
    import pytest

    from tests.support.webhook.served_webhook import Stage

VALUES = Path(__file__).parents[3] / "charts" / "slurm-operator" / "values.yaml"
# An object in etcd has at most 1.5 MiB, and a question about an update has two.
_LARGE = 1_400_000
_QUESTIONS = 100


def most_memory(pid: int) -> float:
    """Return the most memory that a process has had, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    assert found
    return int(found[1]) / 1024


async def test_the_largest_questions_fit_into_the_charts_limit(
    own_stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hundred updates of the largest objects at once, of many small parts, leave room below the limit."""
    limit = yaml.safe_load(VALUES.read_text("utf-8"))["webhook"]["defaultResources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    entries = [{"name": f"V{number}", "value": "x"} for number in range(_LARGE // 28)]
    large = manifest("NodeSet", {"slurmd": {"image": "i", "env": entries}})
    asked = json.dumps(question(large, operation="UPDATE", oldObject=large)).encode()
    before = most_memory(own_stage.process.pid)
    answers = await asyncio.gather(
        *(own_stage.post(PATHS["NodeSet"], io.BytesIO(asked), "?timeout=30s") for _ in range(_QUESTIONS))
    )
    assert {status for status, _ in answers} <= {200, 503}
    after = most_memory(own_stage.process.pid)
    with capsys.disabled():
        sys.stdout.write(f" [webhook: {before:.0f} MiB, then {after:.0f} MiB of {limit}]")
    assert after < int(limit.removesuffix("Mi"))
