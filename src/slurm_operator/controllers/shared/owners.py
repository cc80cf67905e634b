"""Whether the owner of an object that is to be created still exists.

The cache may still have an owner that was just deleted: the deletions of its children, which the garbage
collector makes, can arrive before its own. Created again, they would live until the next collection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.kube.errors import KubeError, NotFound

if TYPE_CHECKING:
    from slurm_operator.api import Kind
    from slurm_operator.kube.client.client import Client


class OwnerGoneError(KubeError):
    """The owner was deleted, and the cache does not know yet; its deletion ends the work on it."""


async def require_owner(client: Client, owner: Kind) -> None:
    """Raise OwnerGoneError if the owner does not exist any more, or is being deleted."""
    try:
        found = await client.get(type(owner), owner.metadata.name, owner.metadata.namespace)
    except NotFound:
        found = None
    if found is None or found.deleting or found.metadata.uid != owner.metadata.uid:
        raise OwnerGoneError(f"{owner.RESOURCE.kind} {owner.metadata.name!r} is gone")
