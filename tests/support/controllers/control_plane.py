"""Fixtures for controllers whose pods must really become ready: a whole control plane with fake nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.processes import await_kinds, install_crds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubebox import Box


@pytest.fixture(scope="session")
def slinky_box(kube_cluster: Box) -> Box:
    """Hand out the shared control plane with our CRDs in it."""
    install_crds(kube_cluster)
    await_kinds(kube_cluster)
    return kube_cluster


@pytest.fixture
def kube_namespace(slinky_box: Box) -> Iterator[str]:
    """Hand out the name of a fresh namespace."""
    with slinky_box.namespace() as name:
        yield name
