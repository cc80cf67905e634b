"""The chart's CRDs on the shared API server, and a few short words for what these tests do with kubectl."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kubebox import BoxError
from tests.support.processes import await_kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox import Box

TEMPLATES = Path(__file__).parents[3] / "charts" / "slurm-operator-crds" / "templates"
_DEADLINE = 60.0


class Kubectl:
    """kubectl in one namespace of a box that knows our kinds."""

    def __init__(self, box: Box, namespace: str) -> None:
        self.box = box
        self.namespace = namespace

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return self.box.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply manifests as a user would, with full validation."""
        # Documents of their own: a List would be validated by kubectl, which knows nothing of defaults.
        self("apply", "--filename", "-", stdin="\n---\n".join(json.dumps(item) for item in manifests))

    def create(self, manifest: dict[str, Any]) -> None:
        """Create an object from exactly this manifest, nulls included."""
        self("create", "--filename", "-", stdin=json.dumps(manifest))

    def eventually_accepts(self, manifest: dict[str, Any]) -> None:
        """Create an object whose kind the API server may only just have learned."""
        deadline = time.monotonic() + _DEADLINE
        while True:
            try:
                self.create(manifest)
            except BoxError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return a stored object."""
        stored: dict[str, Any] = json.loads(self("get", kind, name, "--output", "json"))
        return stored

    def refusal(self, manifest: dict[str, Any]) -> str:
        """Return why the API server refuses a manifest; empty if it would accept it."""
        try:
            self("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(manifest))
        except BoxError as error:
            return str(error)
        return ""

    def eventually(self, arguments: tuple[str, ...], accept: Callable[[str], bool]) -> str:
        """Run a command until its output is accepted, and return it."""
        deadline = time.monotonic() + _DEADLINE
        while True:
            try:
                output = self(*arguments)
            except BoxError as error:
                output = str(error)
            if accept(output):
                return output
            assert time.monotonic() < deadline, f"kubectl {' '.join(arguments)} still says:\n{output}"
            time.sleep(0.1)


@pytest.fixture(scope="session")
def slurm_box(kube_box: Box) -> Box:
    """Hand out the shared box with the chart's CRDs in it."""
    kube_box.kubectl("apply", "--filename", str(TEMPLATES))
    names = [f"crd/{path.stem.split('_')[1]}.slinky.slurm.net" for path in TEMPLATES.glob("*.yaml")]
    await_kinds(kube_box, *names)
    # Discovery learns of the kinds some moments after they are established.
    Kubectl(kube_box, "default").eventually(
        ("api-resources", "--api-group=slinky.slurm.net", "--output=name"),
        lambda output: len(output.split()) == len(names),
    )
    return kube_box


@pytest.fixture
def kubectl(slurm_box: Box, kube_namespace: str) -> Kubectl:
    """Hand out kubectl in a fresh namespace."""
    return Kubectl(slurm_box, kube_namespace)


@pytest.fixture(scope="session")
def dry_kubectl(slurm_box: Box) -> Kubectl:
    """Hand out kubectl for tests that only ask and store nothing, and so can share a namespace."""
    return Kubectl(slurm_box, "default")
