"""What the charts render from many values files, as a real API server judges it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.charts.charting import CHARTS, VALUES, render

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.charts.charting import Helm

FILES = sorted(VALUES.glob("*/*.yaml"))


@pytest.mark.parametrize("values", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_object_is_accepted(dry_helm: Helm, values: Path) -> None:
    """The API server takes all that a chart renders, without an unknown field."""
    chart = CHARTS / values.parent.name
    objects = render(dry_helm.program, chart, "--values", str(values), namespace=dry_helm.namespace)
    assert objects
    said = dry_helm.dry_run(objects)
    assert len(said.splitlines()) == len(objects)
