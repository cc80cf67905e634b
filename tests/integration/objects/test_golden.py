"""Our children beside those of the reference, both with the defaults of a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.objects.content_references import data_checksum
from tests.fixtures.golden import CASES, Case
from tests.support.objects.golden_cases import HOST_KEYS, NAMESPACE_IN_TEXT, world
from tests.support.rendering_comparison import comparable, defaulted, differences

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from slurm_operator.objects.desired import Manifest

_TEMPLATE = "spec.template.metadata"
# What is better than in the reference, by its number in the list of differences, and where it shows.
_ACTIVE = f"{_TEMPLATE}.labels.controller.slinky.slurm.net/active: only ours"  # 6
_RECOMMENDED = [f"metadata.labels.app.kubernetes.io/{name}: only ours" for name in ("managed-by", "part-of")]
_KEY_HASH = f"{_TEMPLATE}.annotations.slinky.slurm.net/slurm-key-hash: only ours"  # 1
_CONFIG_HASH = f"{_TEMPLATE}.annotations.slinky.slurm.net/slurm-config-hash: only ours"  # 1
WANTED = {
    ("StatefulSet", "controller"): [_ACTIVE],
    ("Deployment", "restapi"): [_CONFIG_HASH, _KEY_HASH],
    ("Deployment", "login"): [_KEY_HASH],
    # Each slurmctld is scraped once.
    ("ServiceMonitor", "controller"): [
        f"spec.endpoints[{index}].{name}: only ours"
        for index in range(4)
        for name in ("followRedirects", "relabelings")
    ],
}
_SERVICE_MONITOR = "ServiceMonitor"  # no API server of the tests knows this kind; it has no defaults
# The children of NodeSets and the work of Kubernetes' own controllers are no concern of these functions.
_OURS = ("ConfigMap", "Secret", "Service", "Deployment", "StatefulSet", _SERVICE_MONITOR)


def _expected(case: Case) -> dict[tuple[str, str], Manifest]:
    return {
        (item["kind"], item["metadata"]["name"]): item
        for item in case.made
        if item["kind"] in _OURS and item["metadata"]["ownerReferences"][0]["kind"] != "NodeSet"
    }


def _settle_hashes(item: Manifest, golden: Manifest, case: Case, namespace: str) -> None:
    """Check the hashes that depend on the namespace or on chance, and make them equal."""
    mine = item.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations", {})
    theirs = golden.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations", {})
    config = "slinky.slurm.net/slurm-config-hash"
    if item["kind"] == "StatefulSet" and config in theirs:
        (files,) = (made["data"] for made in case.made if "slurm.conf" in made.get("data", {}))
        real = {name: NAMESPACE_IN_TEXT.sub(namespace, text).encode() for name, text in files.items()}
        assert mine[config] == data_checksum(real)
        mine[config] = theirs[config]
    keys = "slinky.slurm.net/ssh-host-keys-hash"
    if keys in theirs:
        assert mine[keys] == data_checksum(HOST_KEYS)
        mine[keys] = theirs[keys]


def _readable(item: Manifest) -> Manifest:
    if item["kind"] == "Secret" and item.get("immutable"):
        return item | {"data": dict.fromkeys(item["data"], "<generated>")}
    return item


@pytest.mark.parametrize(
    "name",
    [
        "01-minimal",
        "02-accounting",
        "03-login",
        "04-config-merge",
        "06-nodeset-rich",
        "07-daemonset",
        "08-external",
    ],
)
def test_children_are_those_of_the_reference(
    name: str, kube_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """Each child equals the recorded one, except for the listed improvements, none missing, none extra."""
    (case,) = (case for case in CASES if case.name == name)
    rendered = [item for desired in world(case, kube_namespace).desired() for item in desired.objects]
    expected = _expected(case)
    assert {(item["kind"], item["metadata"]["name"]) for item in rendered} == expected.keys()
    known = [item for item in rendered if item["kind"] != _SERVICE_MONITOR]
    unknown = [item for item in rendered if item["kind"] == _SERVICE_MONITOR]
    stored = defaulted(kube_box, tmp_path, kube_namespace, known) + unknown
    for item, answer in zip(known + unknown, stored, strict=True):
        key = (item["kind"], item["metadata"]["name"])
        ours = comparable(_readable(answer), item, kube_namespace)
        golden = comparable(expected[key], item, "NS")
        _settle_hashes(ours, golden, case, kube_namespace)
        component: Any = item["metadata"]["labels"]["app.kubernetes.io/component"]
        wanted = [*_RECOMMENDED, *WANTED.get((key[0], component), [])]
        assert list(differences(ours, golden)) == wanted, json.dumps(key)
