"""Helm on a box: what a person would type, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.processes import await_kinds

if TYPE_CHECKING:
    from kubebox import Box

CHARTS = Path(__file__).resolve().parents[3] / "charts"
VALUES = CHARTS.parent / "tests" / "integration" / "charts" / "values"
CRDS, OPERATOR, SLURM = CHARTS / "slurm-operator-crds", CHARTS / "slurm-operator", CHARTS / "slurm"
_DEADLINE = 60.0
# Every installation of the operator has to name an image.
_IMAGE = ("--set", "image.repository=slurm-operator")
# Kinds of others that the charts may make. What they say inside is not ours to check.
FOREIGN_KINDS = {
    "issuers.cert-manager.io": "Issuer",
    "certificates.cert-manager.io": "Certificate",
    "servicemonitors.monitoring.coreos.com": "ServiceMonitor",
    "prometheusrules.monitoring.coreos.com": "PrometheusRule",
}


def render(helm: Path, chart: Path, *arguments: str, release: str = "slurm", namespace: str = "slurm") -> Any:
    """Return the objects of a chart, rendered without a cluster."""
    image = _IMAGE if chart == OPERATOR else ()
    command = [str(helm), "template", release, str(chart), "--namespace", namespace, *image, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def foreign_kinds() -> str:
    """Return definitions of the kinds of others, as a manifest."""
    documents = []
    for name, kind in FOREIGN_KINDS.items():
        plural, _, group = name.partition(".")
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        names = {"kind": kind, "plural": plural}
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        documents.append(json.dumps({**definition, "metadata": {"name": name}, "spec": spec}))
    return "\n---\n".join(documents)


def settle_kinds(box: Box) -> None:
    """Wait until every definition in a box can be used: discovery learns of them some moments later."""
    await_kinds(box)
    wanted = {name.partition("/")[2] for name in box.kubectl("get", "crd", "--output=name").split()}
    deadline = time.monotonic() + _DEADLINE
    while missing := wanted - set(box.kubectl("api-resources", "--output=name").split()):
        assert time.monotonic() < deadline, f"still not served: {sorted(missing)}"
        time.sleep(0.1)


class Helm:
    """Helm and kubectl on one box, in one namespace unless told otherwise."""

    def __init__(self, program: Path, box: Box, namespace: str, home: Path) -> None:
        self.program, self.box, self.namespace = program, box, namespace
        folders = {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        self._environment = {**os.environ, **box.environment, **folders}

    def __call__(self, *arguments: str | Path, fails: bool = False) -> str:
        """Run helm and return what it says; it must fail if that is expected."""
        image = _IMAGE if OPERATOR in arguments else ()
        command = [str(self.program), "--namespace", self.namespace, *map(str, arguments), *image]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment, check=False)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def install(self, release: str, chart: Path, *arguments: str | Path) -> str:
        """Install a chart as a release."""
        return self("install", release, chart, *arguments)

    def upgrade(self, release: str, chart: Path, *arguments: str | Path) -> str:
        """Upgrade a release to a chart."""
        return self("upgrade", release, chart, *arguments)

    def uninstall(self, release: str) -> None:
        """Remove a release."""
        self("uninstall", release)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.box.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None."""
        text = self.kubectl("get", kind, name, "--ignore-not-found", "--output=json")
        found: dict[str, Any] | None = json.loads(text) if text else None
        return found

    def names(self, *kinds: str, selector: str = "") -> set[str]:
        """Return kinds and names of all objects of some kinds."""
        chosen = [f"--selector={selector}"] if selector else []
        return set(self.kubectl("get", ",".join(kinds), "--output=name", *chosen).split())

    def dry_run(self, objects: list[dict[str, Any]]) -> str:
        """Ask the API server whether it would take the objects, with all fields checked."""
        text = "\n---\n".join(json.dumps(item) for item in objects)
        strict = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts")
        return self.box.kubectl("apply", *strict, "--filename=-", stdin=text)
