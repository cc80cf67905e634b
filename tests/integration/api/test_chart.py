"""The chart slurm-operator-crds, as helm sees it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from slurm_operator.api.schema import all_crds

CHART = Path(__file__).resolve().parents[3] / "charts" / "slurm-operator-crds"


def helm(programs: dict[str, Path], *arguments: str) -> str:
    result = subprocess.run([programs["helm"], *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_helm_finds_nothing_wrong_with_the_chart(kube_programs: dict[str, Path]) -> None:
    """`helm lint --strict` passes."""
    helm(kube_programs, "lint", "--strict", str(CHART))


def test_the_chart_installs_exactly_our_crds(kube_programs: dict[str, Path]) -> None:
    """What helm renders is what the structs say, to the last description."""
    text = helm(kube_programs, "template", str(CHART), "--set", "keep=false")
    rendered = [crd for crd in yaml.safe_load_all(text) if crd]
    assert sorted(rendered, key=_name) == sorted(all_crds(), key=_name)


def _name(crd: dict[str, dict[str, str]]) -> str:
    return crd["metadata"]["name"]
