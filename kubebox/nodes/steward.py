"""Storage and pretended devices, looked after: `python -m kubebox.nodes.steward FOLDER SERVER GPUS`.

A claim of our storage class that has no volume yet gets one: a folder of the box that every node sees, so it
may be mounted by many nodes at once, whatever access mode was asked for. When the claim is gone, so are
volume and folder. GPUs are a number in a node's status; kubelet sets it back when the node reboots, and so it
is written again.

It asks once in a while instead of watching: a missed change costs half a second, and nothing is remembered.
"""

from __future__ import annotations

import http.client
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from kubebox.api import Api, admin_context
from kubebox.nodes.cluster import PROVISIONER, STORAGE_CLASS

_PERIOD = 0.5
_IN_NODE = "/var/lib/kubebox/volumes"
_VOLUMES, _CLAIMS = "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_GPU = "nvidia.com/gpu"
_MERGE = "application/merge-patch+json"


def wants_volume(claim: dict[str, Any]) -> bool:
    """Say whether a claim is ours to serve: of our class, alive and without a volume."""
    spec = claim["spec"]
    return (
        spec.get("storageClassName") == STORAGE_CLASS
        and not spec.get("volumeName")
        and not claim["metadata"].get("deletionTimestamp")
    )


def volume_name(claim: dict[str, Any]) -> str:
    """Return the name of a claim's volume, the same at every attempt."""
    return f"pvc-{claim['metadata']['uid']}"


def volume(claim: dict[str, Any]) -> dict[str, Any]:
    """Return the volume for a claim."""
    metadata, spec = claim["metadata"], claim["spec"]
    name = volume_name(claim)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {_PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "accessModes": spec["accessModes"],
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": f"{_IN_NODE}/{name}", "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }


def is_spent(found: dict[str, Any]) -> bool:
    """Say whether a volume is ours and its claim has gone."""
    return bool(
        found["metadata"].get("annotations", {}).get(_PROVISIONED_BY) == PROVISIONER
        and found.get("status", {}).get("phase") == "Released"
        and found["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    )


def lacks_gpus(node: dict[str, Any], gpus: int) -> bool:
    """Say whether a node tells another number of GPUs than it should."""
    return bool(node["status"].get("capacity", {}).get(_GPU, "0") != str(gpus))


class Steward:
    """One round at a time: claims, volumes, devices."""

    def __init__(self, api: Api, volumes: Path, gpus: int) -> None:
        self._api = api
        self._volumes = volumes
        self._gpus = gpus

    def round(self) -> None:
        """Do what is to be done now."""
        for claim in self._list(_CLAIMS):
            if wants_volume(claim):
                self._provide(claim)
        for found in self._list(_VOLUMES):
            if is_spent(found):
                shutil.rmtree(self._volumes / found["metadata"]["name"], ignore_errors=True)
                self._api.request("DELETE", f"{_VOLUMES}/{found['metadata']['name']}")
        for node in self._list("/api/v1/nodes") if self._gpus else ():
            if lacks_gpus(node, self._gpus):
                status = {"status": {"capacity": {_GPU: str(self._gpus)}}}
                path = f"/api/v1/nodes/{node['metadata']['name']}/status"
                self._api.request("PATCH", path, status, content_type=_MERGE)

    def _list(self, path: str) -> list[dict[str, Any]]:
        reply = self._api.request("GET", f"{path}?resourceVersion=0")
        items: list[dict[str, Any]] = reply.json()["items"] if reply.ok else []
        return items

    def _provide(self, claim: dict[str, Any]) -> None:
        folder = self._volumes / volume_name(claim)
        folder.mkdir(exist_ok=True)
        # Pods run as any user, and kubelet changes no owner in a folder of the machine.
        folder.chmod(0o777)
        reply = self._api.request("POST", _VOLUMES, volume(claim))
        if not reply.ok and reply.status != http.client.CONFLICT:
            sys.stderr.write(f"volume for {claim['metadata']['name']}: {reply.status} {reply.text()}\n")
            sys.stderr.flush()


def main() -> None:
    """Look after a box until it ends."""
    folder, server, gpus = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with Api(server, admin_context(folder / "pki")) as api:
        steward = Steward(api, folder / "volumes", gpus)
        while True:
            try:
                steward.round()
            except (OSError, http.client.HTTPException) as error:
                # The API server of a box comes and goes; the next round asks again.
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                sys.stderr.flush()
            time.sleep(_PERIOD)


if __name__ == "__main__":
    main()
