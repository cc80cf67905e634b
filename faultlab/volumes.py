"""A volume for each claim, so that pods with claims run: the lab has no storage."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from faultlab.cluster import ApiError

if TYPE_CHECKING:
    from faultlab.cluster import Json, Kube

_CLAIMS: Final = "/api/v1/persistentvolumeclaims"


def volume(claim: Json) -> Json:
    """Return a volume that only this claim can have."""
    meta, spec = claim["metadata"], claim["spec"]
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(claim)},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": spec.get("storageClassName") or "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {**reference, **{key: meta[key] for key in ("namespace", "name", "uid")}},
            "hostPath": {"path": "/nowhere"},
        },
    }


def volume_name(claim: Json) -> str:
    """Return the name of a claim's volume."""
    return f"pv-{claim['metadata']['uid']}"


async def provide_volumes(kube: Kube) -> None:
    """Give every claim a volume until cancelled; kube-controller-manager binds the two."""
    while True:
        claims = await kube.request("GET", _CLAIMS)
        for claim in claims["items"]:
            await kube.ensure(volume(claim))
        version = claims["metadata"]["resourceVersion"]
        async for event in kube.stream(f"{_CLAIMS}?watch=1&resourceVersion={version}"):
            if event["type"] == "ERROR":
                break
            if event["type"] == "ADDED":
                await kube.ensure(volume(event["object"]))
            elif event["type"] == "DELETED":
                with contextlib.suppress(ApiError):
                    await kube.delete("PersistentVolume", "", volume_name(event["object"]))
