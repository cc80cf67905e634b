"""Upgrades of a cluster that the Slinky chart made to ours, with the same values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from slurm_operator.api import NodeSet
from slurm_operator.kube.manifests.revisions import go_json, hash_revision, same_data
from slurm_operator.kube.manifests.semantics import canonical
from slurm_operator.objects.slurmd_revision import ZERO_FIELDS, revision_data
from tests.fixtures.golden import Case
from tests.fixtures.slinky_charts import RELEASES
from tests.support.charts.helm import SLURM, render
from tests.support.objects.golden_cases import decode, world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.slinky_charts import Release
    from tests.support.charts.helm import Helm

KINDS = "controllers,accountings,restapis,loginsets,nodesets.slinky.slurm.net,secrets"
# 1.0 had each worker's limits in its environment, which 1.1 leaves to the operator: that upgrade replaces
# workers, too.
KEPT = [release for release in RELEASES if not release.version.startswith("1.0.")]


def as_a_chart(release: Release, folder: Path) -> Path:
    """Write a chart that renders what a release rendered."""
    chart = folder / "slurm"
    (chart / "templates").mkdir(parents=True)
    about = {"apiVersion": "v2", "name": "slurm", "version": release.version}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
    objects = [item | {"metadata": {**item["metadata"], "namespace": None}} for item in release.objects]
    text = "\n---\n".join(json.dumps(item) for item in objects)
    (chart / "templates" / "all.yaml").write_text(text, encoding="utf-8")
    return chart


def stored(helm: Helm) -> list[dict[str, Any]]:
    """Return the custom resources and Secrets of the release, as the API server has them."""
    found: list[dict[str, Any]] = json.loads(helm.kubectl("get", KINDS, "--output=json"))["items"]
    return [item for item in found if item.get("type") != "helm.sh/release.v1"]


def unversioned(helm: Helm) -> list[dict[str, Any]]:
    """Return the same without versions: the first write of an object stores the default of its status."""
    return [_unversioned(item) for item in stored(helm)]


def _unversioned(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "metadata": item["metadata"] | {"resourceVersion": ""}}


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return everything inside of a value by its path, for messages that can be read."""
    if not isinstance(value, dict | list) or not value:
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {name: leaf for key, inner in items for name, leaf in leaves(inner, f"{path}/{key}").items()}


def without_nulls(value: Any) -> Any:
    """Return a manifest as the API server stores it: nulls in it are dropped."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def go_revision(manifest: dict[str, Any]) -> Any:
    """Return the data of the revision that Slinky slurm-operator makes of a NodeSet."""
    nodeset = decode(manifest)
    assert isinstance(nodeset, NodeSet)
    data = revision_data(nodeset)
    # Go's types drop an empty text; ours keep what is written.
    spec = data["spec"]["template"]["spec"]
    if spec.get("priorityClassName") == "":
        del spec["priorityClassName"]
    return data


def pod_templates(objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return the pod template of every daemon that the operator makes of custom resources."""
    workloads = world(Case("stored", tuple(objects), (), ())).workloads()
    templates = {item["metadata"]["name"]: canonical(item["spec"]["template"]) for item in workloads}
    # The API server drops an empty text.
    return {(path, str(leaf)) for path, leaf in leaves(templates).items() if leaf != ""}


@pytest.mark.parametrize("release", KEPT, ids=lambda release: release.version)
def test_equal_values_replace_no_worker(helm: Helm, release: Release, tmp_path: Path) -> None:
    """The upgrade leaves every NodeSet its revision, to the byte, and every daemon its pod template."""
    helm.install("slurm", as_a_chart(release, tmp_path))
    before = stored(helm)
    values = tmp_path / "values.json"
    values.write_text(json.dumps(release.values), encoding="utf-8")
    for _ in range(2):
        # The second upgrade finds our own objects.
        helm.upgrade("slurm", SLURM, "--values", values)
        after = stored(helm)
        old = {item["metadata"]["name"]: item for item in before if item["kind"] == "NodeSet"}
        new = {item["metadata"]["name"]: item for item in after if item["kind"] == "NodeSet"}
        assert old.keys() == new.keys()
        assert old
        for name, item in new.items():
            data = revision_data(decode(item))  # type: ignore[arg-type]
            assert go_json(data) == go_json(go_revision(old[name]))
            assert hash_revision(go_json(data), 0) == hash_revision(go_json(go_revision(old[name])), 0)
        assert pod_templates(after) ^ pod_templates(before) == set()


@pytest.mark.parametrize("release", KEPT, ids=lambda release: release.version)
def test_equal_values_and_labels_replace_no_worker_without_a_cluster(
    helm_program: Path, release: Release, tmp_path: Path
) -> None:
    """Where Helm only renders, the labels of the Slinky chart as values are enough for an equal revision."""
    old = {
        item["metadata"]["name"]: without_nulls(item) for item in release.objects if item["kind"] == "NodeSet"
    }
    values = tmp_path / "values.json"
    values.write_text(json.dumps(release.values), encoding="utf-8")
    labels: dict[str, str] = next(iter(old.values()))["metadata"]["labels"]
    labels = {key: labels[key] for key in labels if "/" in key}
    arguments = (
        "--values",
        str(values),
        "--set-json",
        f"nodesetDefaults.metadata.labels={json.dumps(labels)}",
    )
    new = [item for item in render(helm_program, SLURM, *arguments) if item["kind"] == "NodeSet"]
    assert {item["metadata"]["name"] for item in new} == old.keys()
    for item in new:
        data = revision_data(decode(item))  # type: ignore[arg-type]
        assert same_data(data, go_revision(old[item["metadata"]["name"]]), zero_fields=ZERO_FIELDS)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_the_keys_of_a_cluster_stay(helm: Helm, release: Release, tmp_path: Path) -> None:
    """Daemons know each other by the same Secrets as before, under the names that the release gave them."""
    helm.install("slurm", as_a_chart(release, tmp_path))
    before = {item["metadata"]["name"]: item["data"] for item in stored(helm) if item["kind"] == "Secret"}
    values = tmp_path / "values.json"
    values.write_text(json.dumps(release.values), encoding="utf-8")
    for _ in range(2):
        helm.upgrade("slurm", SLURM, "--values", values)
        controller = helm.get("controllers.slinky.slurm.net", "slurm")
        assert controller is not None
        named = {controller["spec"][field]["name"] for field in ("slurmKeyRef", "jwtKeyRef")}
        after = {item["metadata"]["name"]: item["data"] for item in stored(helm) if item["kind"] == "Secret"}
        assert named <= before.keys()
        assert after == before


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_an_upgrade_of_ours_changes_nothing(helm: Helm, release: Release, tmp_path: Path) -> None:
    """A cluster that our chart made gets none of these labels, and no upgrade changes an object."""
    values = tmp_path / "values.json"
    values.write_text(json.dumps(release.values), encoding="utf-8")
    helm.install("slurm", SLURM, "--values", values)
    before = stored(helm)
    for item in before:
        assert "helm.sh/chart" not in json.dumps(item["metadata"].get("labels", {}))
        assert "helm.sh/chart" not in json.dumps(item.get("spec", {}))
    helm.upgrade("slurm", SLURM, "--values", values)
    assert unversioned(helm) == [_unversioned(item) for item in before]
