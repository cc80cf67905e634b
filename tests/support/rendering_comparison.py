"""Compares what we render with what the reference made, on equal terms.

Our objects go through a real API server first (a dry run), because the recorded ones did: both then have its
defaults. Left out is what the server or another controller decides again each time (`_VOLATILE`, ports it
allocated), and what the recording left out: the texts of scripts, the namespace's name, generated keys.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from slurm_operator.objects import scripts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kubebox import Box
    from slurm_operator.objects.desired import Manifest

_VOLATILE = {
    "": ("status",),
    "metadata": ("creationTimestamp", "generation", "managedFields", "namespace", "resourceVersion", "uid"),
    "spec": ("clusterIPs", "ipFamilies", "ipFamilyPolicy"),
}
_REVISION = "deployment.kubernetes.io/revision"  # written by the Deployment controller
_SCRIPTS = (scripts.LOGFILE, scripts.RECONFIGURE, scripts.INITCONF)


def defaulted(box: Box, folder: Path, namespace: str, manifests: list[Manifest]) -> list[Manifest]:
    """Return objects as the API server would store them."""
    file = folder / "objects.json"
    body = {"apiVersion": "v1", "kind": "List", "items": manifests}
    file.write_text(json.dumps(body), encoding="utf-8")
    flags = ("--server-side", "--dry-run=server", "--output=json")
    answer = json.loads(box.kubectl("apply", "--namespace", namespace, *flags, "--filename", str(file)))
    items: list[Manifest] = answer["items"] if answer["kind"] == "List" else [answer]
    return items


def comparable(stored: Manifest, rendered: Manifest, namespace: str) -> Manifest:
    """Return an object without what differs between two runs of one and the same operator."""
    text = json.dumps(stored).replace(namespace, "NS")
    for script in _SCRIPTS:
        text = text.replace(json.dumps(script), '"<script>"')
    result: Manifest = json.loads(text)
    for part, names in _VOLATILE.items():
        inner = result.get(part, {}) if part else result
        for name in names:
            inner.pop(name, None)
    annotations = result["metadata"].pop("annotations", {})
    annotations.pop(_REVISION, None)
    if annotations:
        result["metadata"]["annotations"] = annotations
    for owner in result["metadata"].get("ownerReferences", ()):
        owner.pop("uid", None)
    template = result.get("spec", {}).get("template", {})
    template.get("metadata", {}).pop("creationTimestamp", None)
    for claim in result.get("spec", {}).get("volumeClaimTemplates", ()):
        claim.pop("status", None)
        claim["metadata"].pop("creationTimestamp", None)
    if result["kind"] == "Service":
        _forget_allocated(result["spec"], rendered["spec"])
    return result


def _forget_allocated(spec: dict[str, Any], rendered: dict[str, Any]) -> None:
    if spec.get("clusterIP") != "None":
        spec.pop("clusterIP", None)
    for port, wanted in zip(spec["ports"], rendered["ports"], strict=True):
        if "nodePort" not in wanted:
            port.pop("nodePort", None)


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Yield every place at which two objects differ, with what is there."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            below = f"{path}.{key}" if path else key
            if key not in theirs:
                yield f"{below}: only ours"
            elif key not in ours:
                yield f"{below}: only theirs: {theirs[key]!r}"
            else:
                yield from differences(ours[key], theirs[key], below)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(mine, other, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: ours {ours!r}, theirs {theirs!r}"
