"""The well-known names against every object that the reference operator was seen to make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import wellknown
from tests.fixtures.golden import CASES, NAMES, Case

if TYPE_CHECKING:
    from collections.abc import Iterator

KNOWN = {value for name, value in vars(wellknown).items() if name.isupper() and isinstance(value, str | int)}


def _metadata(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the metadata of an object and of the templates inside it."""
    if isinstance(value, dict):
        if isinstance(value.get("metadata"), dict):
            yield value["metadata"]
        for below in value.values():
            yield from _metadata(below)


def _pod_specs(case: Case) -> Iterator[dict[str, Any]]:
    for item in case.made:
        if item["kind"] == "Pod":
            yield item["spec"]
        elif item["kind"] in {"StatefulSet", "Deployment"}:
            yield item["spec"]["template"]["spec"]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_labels_and_annotations(case: Case) -> None:
    """Every label and annotation of our domains on a derived object has a name here."""
    keys = {
        key
        for item in case.made
        for metadata in _metadata(item)
        for part in ("labels", "annotations")
        for key in metadata.get(part) or {}
        if "slinky.slurm.net/" in key or key.startswith(("app.kubernetes.io/", "controller.kubernetes.io/"))
    }
    assert keys
    assert keys <= KNOWN


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_ports_and_users(case: Case) -> None:
    """Every port and user id that the operator itself sets has a name here."""
    for spec in _pod_specs(case):
        main, *_ = spec["containers"]
        assert {port["containerPort"] for port in main.get("ports", ())} <= KNOWN
        assert main["name"] in KNOWN
        context = spec.get("securityContext") or {}
        assert {context[key] for key in ("runAsUser", "runAsGroup", "fsGroup") if key in context} <= KNOWN


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_volumes_and_paths(case: Case) -> None:
    """Every volume and mount path that the operator itself adds has a name here."""
    own = {"data", "home", "shm"}  # volumes of the users in these cases
    folders = (f"{wellknown.DIR_SSH}/", f"{wellknown.DIR_STATESAVE}/")
    for spec in _pod_specs(case):
        volumes = {volume["name"] for volume in spec.get("volumes", ())} - own
        assert volumes <= KNOWN
        for container in spec["containers"]:
            for mount in container.get("volumeMounts", ()):
                if mount["name"] not in own:
                    assert mount["mountPath"] in KNOWN or mount["mountPath"].startswith(folders), mount
