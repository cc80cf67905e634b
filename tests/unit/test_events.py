"""Every reason of an Event is on the page that lists them, and some test asserts it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurm_operator.api.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "events.md"
_ROW = re.compile(r"^\| `([A-Za-z ]+)` \| (Normal|Warning)", re.MULTILINE)
# Reasons that are put together, or looked up, where the Event is recorded.
_MADE: Final = {
    "CreateFailed",  # an action and "Failed": workload/children.py, token.py
    "PatchFailed",
    "DeleteFailed",
    "RollingUpdate",  # nodeset/decide/update.py
    "Scheduled Update",
    "SucceededDaemonPod",  # nodeset/decide/scale.py
    "FailedDaemonPod",
    "SlurmNodeNotRegistered",  # nodeset/decide/update.py
    "ControllerRefFailed",  # nodeset/run/report.py, loginset.py
    "SyncFailed",
    "SyncFinalizerFailed",
    "ConflictingController",  # nodeset/decide/plan.py and status.py
    "NameTaken",
    "BudgetMissing",
    "ControllerGone",
    "AutoscalingUnsupported",
    "SlurmListSuspicious",  # shared/connection_health.py
    "SlurmTokenRefused",
    "SlurmClusterNameMismatch",
}
# Which argument is the reason, by what is called.
_ASSERT: Final = ("tells", "eventually", "parametrize")
_RECORDS: Final = {"event": 2, "_event": 1, "Note": 0, "EventText": 1}


def _name(called: ast.expr) -> str:
    """Return the name of a function or method."""
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def _reasons() -> set[str]:
    """Return the reasons that the code records, as far as they are written where it does."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not any(f"{name}(" in text for name in _RECORDS):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            place = _RECORDS.get(_name(node.func))
            if place is None or len(node.args) <= place:
                continue
            if isinstance(reason := node.args[place], ast.Constant):
                found.add(str(reason.value))
            elif isinstance(reason, ast.Attribute) and isinstance(reason.value, ast.Name):
                found |= {str(Reason[reason.attr])} if reason.value.id == Reason.__name__ else set()
    return found


def _asserted(reasons: set[str]) -> Iterator[str]:
    """Return the texts that tests with these reasons assert or wait for, some of them as parameters."""
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path == Path(__file__) or not any(reason in text for reason in reasons):
            continue
        for node in ast.walk(ast.parse(text)):
            called = isinstance(node, ast.Call) and _name(node.func) in _ASSERT
            if called or isinstance(node, ast.Assert):
                for one in ast.walk(node):
                    if isinstance(one, ast.Constant) and isinstance(one.value, str):
                        yield one.value


def test_the_page_lists_every_reason() -> None:
    """No Event has a reason that the page does not explain, and the page explains no other."""
    listed = [reason for reason, _ in _ROW.findall(PAGE.read_text(encoding="utf-8"))]
    assert len(listed) == len(set(listed))
    assert set(listed) == _reasons() | _MADE


def test_every_reason_is_asserted_by_a_test() -> None:
    """An Event that no test waits for may be lost, or have another reason, without anyone noticing."""
    reasons = _reasons() | _MADE
    assert sorted(reasons - {*_asserted(reasons)}) == []
