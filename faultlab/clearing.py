"""Removes what a run leaves, so that thousands of runs fit into one cluster.

The operator has ended by then, so finalizers are taken away here, and the labels of pods, by which admission
may protect them. The namespace is deleted first: from then on nothing new is created in it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from faultlab.cluster import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from faultlab.cluster import Json, Kube, Resource

# Gone already, being changed by a controller just now, or refused for a pod that is ending.
_HARMLESS: Final = (404, 409, 422)


async def clear(kube: Kube, namespace: str, kinds: Iterable[Resource]) -> None:
    """Delete a namespace and everything in it; kube-controller-manager finishes that by itself."""
    await _tried(kube.delete("Namespace", "", namespace))
    objects = await kube.everything(namespace, kinds)
    await asyncio.gather(*(_free(kube, namespace, item) for item in objects))


async def _free(kube: Kube, namespace: str, item: Json) -> None:
    kind, meta = item["kind"], item["metadata"]
    if kind == "Pod":
        gone = {"metadata": {"labels": None, "finalizers": None}}
        await _tried(kube.patch(kind, namespace, meta["name"], gone))
        await _tried(kube.delete(kind, namespace, meta["name"], {"gracePeriodSeconds": 0}))
    elif meta.get("finalizers"):
        await _tried(kube.patch(kind, namespace, meta["name"], {"metadata": {"finalizers": None}}))


async def _tried(request: Awaitable[object]) -> None:
    try:
        await request
    except ApiError as error:
        if error.status not in _HARMLESS:
            raise
