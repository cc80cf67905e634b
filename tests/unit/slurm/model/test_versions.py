from __future__ import annotations

import pytest

from slurm_operator.slurm.model import versions
from slurm_operator.slurm.model.versions import Feature


def test_versions_are_known_newest_first() -> None:
    """The newest version is tried first."""
    assert versions.KNOWN == ("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42")


@pytest.mark.parametrize(
    ("version", "offered"),
    [
        ("v0.0.42", set()),
        ("v0.0.43", {Feature.TOPOLOGY, Feature.RESERVATIONS}),
        ("v0.0.44", {*Feature} - {Feature.SUSPEND_TIME}),
        ("v0.0.45", {*Feature}),
    ],
)
def test_what_each_version_can_do(version: str, offered: set[Feature]) -> None:
    """A version can do what came with it and before it."""
    assert {feature for feature in Feature if versions.offers(version, feature)} == offered


def test_a_lack_is_told_with_its_cure() -> None:
    """Whoever lacks something is told which Slurm has it."""
    assert versions.lack("v0.0.42", Feature.CREATE_NODES) == (
        "creating nodes needs v0.0.44 (Slurm 25.11 or later), and this slurmrestd speaks v0.0.42"
    )
