"""Packaged charts: the same bytes from the same tree, with the digests of the images."""

from __future__ import annotations

import os
import tarfile
from typing import TYPE_CHECKING

import pytest
import yaml

from scripts.release import charting

if TYPE_CHECKING:
    from pathlib import Path

DIGESTS = {
    name: f"sha256:{number:064x}"
    for number, name in enumerate(
        ("slurm-operator", "slurmctld", "slurmd", "slurmdbd", "slurmrestd", "login", "mariadb", "tools")
    )
}


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        return {member.name: (opened.extractfile(member) or opened).read() for member in opened}  # type: ignore[union-attr]


@pytest.mark.parametrize("name", charting.NAMES)
def test_two_archives_are_equal(name: str, tmp_path: Path) -> None:
    """Neither the time of the day nor that of a file is in the archive of a chart."""
    settings = charting.values_of_release(name, "registry.example.com", DIGESTS)
    first, second = tmp_path / "first.tgz", tmp_path / "second.tgz"
    charting.write_chart(name, first, settings)
    os.utime(charting.CHARTS / name / "Chart.yaml")
    charting.write_chart(name, second, settings)
    assert first.read_bytes() == second.read_bytes()


def test_archive_has_what_helm_needs_and_no_tests(tmp_path: Path) -> None:
    """Chart.yaml is first, a chart below is in it, and the suites of the charts are not."""
    charting.write_chart("slurm-operator", tmp_path / "chart.tgz", {})
    names = list(members(tmp_path / "chart.tgz"))
    assert names[0] == "slurm-operator/Chart.yaml"
    assert "slurm-operator/charts/slurm-operator-crds/Chart.yaml" in names
    assert "slurm-operator/templates/operator/deployment.yaml" in names
    assert not [name for name in names if "/tests/" in name and "/templates/tests/" not in name]


@pytest.mark.parametrize("registry", ["", "registry.example.com/team"])
def test_digests_of_the_images_are_filled_in(registry: str, tmp_path: Path) -> None:
    """Operator and Slurm images are named by digest; a registry is a default only if the release has one."""
    for name in ("slurm-operator", "slurm"):
        settings = charting.values_of_release(name, registry, DIGESTS)
        charting.write_chart(name, tmp_path / f"{name}.tgz", settings)
    operator = yaml.safe_load(members(tmp_path / "slurm-operator.tgz")["slurm-operator/values.yaml"])
    slurm = yaml.safe_load(members(tmp_path / "slurm.tgz")["slurm/values.yaml"])
    assert operator["image"]["digest"] == DIGESTS["slurm-operator"]
    assert operator["image"]["registry"] == slurm["imageRegistry"] == (registry or None)
    assert slurm["imageDigests"] == {name: DIGESTS[name] for name in DIGESTS if name != "slurm-operator"}


def test_comments_and_other_values_stay() -> None:
    """Only the named values change."""
    text = "# first\na:\n  b: null # old\nc: {d: 1}\n"
    assert charting.filled(text, {("a", "b"): "x"}) == '# first\na:\n  b: "x"\nc: {d: 1}\n'


@pytest.mark.parametrize("path", [("a", "c"), ("b",)])
def test_value_that_is_not_there_is_an_error(path: tuple[str, ...]) -> None:
    """A digest that finds no place is not left out silently."""
    with pytest.raises((ValueError, KeyError)):
        charting.filled("a:\n  b: null\n", {path: "x"})
