"""What the charts render from many values files, as a real API server judges it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from slurm_operator.webhook.rules.admission import validate
from tests.support.charts.helm import CHARTS, SLURM, VALUES, render
from tests.support.webhook.rule_cases import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.charts.helm import Helm

FILES = sorted(VALUES.glob("*/*.yaml"))


@pytest.mark.parametrize("values", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_object_is_accepted(dry_helm: Helm, values: Path) -> None:
    """The API server takes all that a chart renders, without an unknown field."""
    chart = CHARTS / values.parent.name
    objects = render(dry_helm.program, chart, "--values", str(values), namespace=dry_helm.namespace)
    assert objects
    said = dry_helm.dry_run(objects)
    assert len(said.splitlines()) == len(objects)


@pytest.mark.parametrize(
    "values", [path for path in FILES if path.parent.name == "slurm"], ids=lambda path: path.stem
)
def test_the_webhook_admits_every_object(helm_program: Path, values: Path) -> None:
    """What the chart makes of values that pass its schema is nothing that the webhook would refuse."""
    objects = render(helm_program, SLURM, "--values", str(values))
    ours = [item for item in objects if item["apiVersion"].startswith("slinky.slurm.net/")]
    assert ours
    for item in ours:
        errors, _ = validate(read(item))
        assert errors == (), (item["kind"], item["metadata"]["name"])


def leaves(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that holds no further names, by its path."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, values


@pytest.mark.parametrize("chart", ["slurm-operator", "slurm"])
def test_every_value_of_the_reference_is_tried(chart: str) -> None:
    """Each documented value of the reference's chart is given in the matrix with another than its default."""
    folder = VALUES / chart
    default = yaml.safe_load((folder / "reference.yaml").read_text(encoding="utf-8"))
    used: dict[str, list[Any]] = {}
    for file in folder.glob("reference-*.yaml"):
        for path, value in leaves(yaml.safe_load(file.read_text(encoding="utf-8"))):
            used.setdefault(path, []).append(value)
    same = [
        path
        for path, value in leaves(default)
        if not any(
            other != value
            for name, others in used.items()
            if f"{name}.".startswith(f"{path}.")
            for other in others
        )
    ]
    assert same == []
