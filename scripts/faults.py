"""Run the operator of this tree in the fault lab, with the permissions and the policy of its chart.

python scripts/faults.py                     every scenario, crashed at every kind of write
python scripts/faults.py all --suite stale   another suite; see `python -m faultlab run --help`
python scripts/faults.py properties          every property of every CRD, changed and changed back
python scripts/faults.py full FOLDER         crashes, old and withheld views, and the properties, with reports
                                             in a folder; the same command continues what was interrupted
python scripts/faults.py --ci                the fixed sample that CI runs
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faultlab.cli import INTERRUPTED
from faultlab.cli import main as faultlab
from kubebox.binaries import provide

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "charts" / "slurm-operator-crds" / "templates"
NAMESPACE = NAME = "slurm-operator"
PARTS = ("operator/rbac.yaml", "operator/deletionprotection.yaml")
WITHOUT_EFFECT = Path(__file__).with_name("properties_without_effect.yaml")
FLAGS = (
    "--namespaces={namespace}",
    "--slurm-api-override={slurm}",
    "--health-addr=127.0.0.1:0",
    "--metrics-addr=127.0.0.1:0",
    "--status-addr=127.0.0.1:0",
)
# Every second kind of write, crashed at in one of the three ways, which take turns: the same in every run.
CI = (
    *("install", "scale-in-jobs", "rolling-update", "nodeset-deleted"),
    *("--sample", "1", "--ways", "turns", "--part", "1/2"),
)
_OPEN = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
_SERVICE_MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": _OPEN}],
    },
}


def permissions(folder: Path) -> Path:
    """Write what the chart renders for the operator's account, and the right to a Lease in any namespace."""
    helm = provide(["helm"], print)["helm"]
    only = [word for part in PARTS for word in ("--show-only", f"templates/{part}")]
    chart = [NAME, str(ROOT / "charts" / "slurm-operator"), "--namespace", NAMESPACE]
    image = ["--set", "image.repository=slurm-operator"]
    done = subprocess.run(
        [str(helm), "template", *chart, *image, *only], capture_output=True, text=True, check=True
    )
    path = folder / "operator.yaml"
    more = (*_leases(), _SERVICE_MONITORS)
    path.write_text("\n---\n".join([done.stdout, *map(json.dumps, more)]), encoding="utf-8")
    return path


def _leases() -> list[dict[str, object]]:
    rbac = "rbac.authorization.k8s.io"
    verbs = ["get", "create", "update", "patch"]
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}
    meta = {"name": "faultlab-leases"}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    return [
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": meta["name"]},
            "subjects": [subject],
        },
    ]


def main() -> int:
    """Run the lab."""
    words = sys.argv[1:]
    if words[:1] == ["full"]:
        return full(Path(words[1]), words[2:])
    if "--ci" in words:
        words = [*CI, *(word for word in words if word != "--ci")]
    elif not words or words[0].startswith("-"):
        words = ["all", *words]
    return lab(words)


def full(folder: Path, words: list[str]) -> int:
    """Run what finds most, and return the worst result; one that was interrupted at this commit goes on."""
    began = time.monotonic()
    # One write of each kind, in all three ways.
    suites = ["--sample", "1", "--suite", "crash,stale,withheld", "--at-once", "20"]
    reports = ["--json", str(folder / "faults.json"), "--reports", str(folder), "--version", commit()]
    worst = lab(["all", *suites, *reports, *words])
    if worst == INTERRUPTED:
        return worst
    worst = max(worst, lab(["properties", "--json", str(folder / "properties.json")]))
    print(f"took {time.monotonic() - began:.0f} s; the reports are in {folder}")
    return worst


def commit() -> str:
    """Return the commit of this tree; empty if something in it has changed since."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = done.stdout.strip()
    return "" if done.returncode or found.endswith("-dirty") else found


def lab(words: list[str]) -> int:
    """Run one suite."""
    command = " ".join([sys.executable, "-m", "slurm_operator", "manager", *FLAGS])
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        manifests = [word for path in (CRDS, permissions(Path(folder))) for word in ("--manifest", str(path))]
        account = ["--account", f"{NAMESPACE}/{NAME}"]
        listed = ["--without-effect", str(WITHOUT_EFFECT)]
        mode = ["properties", *words[1:], *listed] if words[0] == "properties" else ["run", *words]
        again = ["--repeat-as", "python scripts/faults.py"]
        return faultlab([*mode, "--operator", command, *manifests, *account, *again])


if __name__ == "__main__":
    sys.exit(main())
