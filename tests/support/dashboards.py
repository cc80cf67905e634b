"""The Grafana dashboards of the chart, and what they ask Prometheus for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

DASHBOARDS = Path(__file__).resolve().parents[2] / "charts" / "slurm-operator" / "dashboards"
_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the dashboards of the chart by their names."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in DASHBOARDS.glob("*.json")}


def concrete(expression: str) -> str:
    """Return an expression with the variables of Grafana filled in: all values, and the shortest window."""
    filled = expression.replace("$__rate_interval", "30s")
    return re.sub(r"\$\w+", ".+", filled)


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    """Yield all that a dashboard asks Prometheus for, its variables included."""
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found = _VALUES.fullmatch(variable["definition"])
            assert found is not None, variable["definition"]
            yield f"count by ({found['label']}) ({found['series']})"
