"""Null in place of each value of the charts."""

from __future__ import annotations

import copy
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.charts.helm import CHARTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# As much as possible is on, so that every value is read.
BUDGET = {"replicas": 2, "pdb": {"enabled": True}}
IN_USE: dict[str, dict[str, Any]] = {
    "slurm-operator": {
        "image": {"registry": "registry.example.com"},
        "operator": BUDGET,
        "webhook": {**BUDGET, "podsBinding": True},
        "networkPolicy": {"enabled": True},
        "monitoring": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
    },
    "slurm": {
        "accounting": {"enabled": True},
        "clusters": {"c": {}},
        "controller": {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}},
        "loginsets": {"b": {}},
        "mariadb": {"enabled": True},
        "networkPolicy": {"enabled": True},
        "nodesets": {"a": {"ssh": {"enabled": True}}},
        "priorityClass": {"enabled": True, "create": True},
        "restapi": {"pdb": {"enabled": True}},
        "tokens": {"t": {"username": "u"}},
        "vendor": {"nvidia": {"dcgm": {"enabled": True}}},
    },
}


def paths(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every value, outer ones first."""
    for key, value in values.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from paths(value, (*path, key))


@pytest.mark.parametrize("chart", IN_USE)
@pytest.mark.timeout(600)
def test_no_null_is_a_nil_pointer(helm_program: Path, chart: str) -> None:
    """A null in any place renders, or the message names a value to set."""

    def refusal(path: tuple[str, ...]) -> str:
        values = copy.deepcopy(IN_USE[chart])
        place = values
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = None
        command = [str(helm_program), "template", "slurm", str(CHARTS / chart), "--values", "-"]
        done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
        wanted = "execution error" in done.stderr and "name" in done.stderr.lower()
        needed = "sssd.conf is empty" in done.stderr
        return "" if done.returncode == 0 or wanted or needed else f"{'.'.join(path)}: {done.stderr}"

    defaults = yaml.safe_load((CHARTS / chart / "values.yaml").read_text(encoding="utf-8"))
    with ThreadPoolExecutor(2) as pool:
        refusals = list(pool.map(refusal, paths(defaults)))
    assert len(refusals) > len(defaults)
    assert [text for text in refusals if text] == []
