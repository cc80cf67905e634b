"""Charts as a release packages them, and as they are in the tree."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from kubebox.binaries import provide
from scripts.release import charting

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = {
    "slurm-operator": ("--set", "image.registry=registry.example.com,crds.enabled=true"),
    "slurm": ("--set", "nodesets.cpu.replicas=2,slurmKey.create=false,jwtKey.create=false"),
}


@pytest.mark.parametrize("name", charting.NAMES)
def test_packaged_chart_renders_as_its_folder_does(name: str, tmp_path: Path) -> None:
    """Nothing that helm reads is missing from the archive of a chart."""
    helm = provide(["helm"], lambda _line: None)["helm"]
    charting.write_chart(name, tmp_path / "chart.tgz", {})
    packed, folder = (
        subprocess.run(
            [helm, "template", name, str(chart), *OPTIONS.get(name, ())],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for chart in (tmp_path / "chart.tgz", charting.CHARTS / name)
    )
    assert packed == folder
    assert packed.count("\nkind: ") >= 3
