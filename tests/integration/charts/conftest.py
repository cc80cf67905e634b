"""A box for charts: its own, since a chart brings webhooks that would judge what other tests do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kubebox import Box, BoxSpec
from tests.support.charts.helm import Helm, foreign_kinds, settle_kinds
from tests.support.processes import install_crds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def helm_program(kube_programs: dict[str, Path]) -> Path:
    """Hand out the path of helm."""
    return kube_programs["helm"]


@pytest.fixture(scope="session")
def chart_box(kube_programs: dict[str, Path]) -> Iterator[Box]:
    """Hand out an API server with our kinds and those of cert-manager and the Prometheus operator."""
    assert kube_programs
    with Box.up(BoxSpec()) as box:
        install_crds(box)
        box.kubectl("apply", "--filename=-", stdin=foreign_kinds())
        settle_kinds(box)
        yield box


@pytest.fixture(scope="session")
def dry_helm(helm_program: Path, chart_box: Box, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Hand out helm for tests that only ask and store nothing, and so can share a namespace."""
    for name in ("slinky", "team-a", "team-b"):
        chart_box.kubectl("create", "namespace", name)
    return Helm(helm_program, chart_box, "slinky", tmp_path_factory.mktemp("helm"))


@pytest.fixture
def helm(helm_program: Path, chart_box: Box, tmp_path: Path) -> Iterator[Helm]:
    """Hand out helm in a fresh namespace."""
    with chart_box.namespace() as name:
        yield Helm(helm_program, chart_box, name, tmp_path)
