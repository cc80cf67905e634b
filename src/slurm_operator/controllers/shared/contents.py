"""Read the Secrets and ConfigMaps that a custom resource refers to, each watched by its name.

What `objects` gets is certain: an object is there, or the API server said that there is none. If neither can
be known, a KubeError goes up, and everything in the cluster stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.kube.cache.referenced_objects import Referrer
from slurm_operator.kube.models.meta import Key, T
from slurm_operator.objects.content_references import Found, References

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.cache import referenced_objects

_NOTHING = References()


class Contents:
    """Reads on behalf of one controller."""

    def __init__(self, wiring: Wiring, controller: str) -> None:
        self._secrets = wiring.secrets
        self._config_maps = wiring.config_maps
        self._controller = controller

    async def read(self, owner: Key, names: References) -> Found:
        """Watch all these objects from now on, and no others for this owner; return those that exist."""
        self._want(owner, names)
        return Found(
            await _existing(self._secrets, owner.namespace, names.secrets),
            await _existing(self._config_maps, owner.namespace, names.config_maps),
        )

    def release(self, owner: Key) -> None:
        """Watch nothing for this owner any more."""
        self._want(owner, _NOTHING)

    def _want(self, owner: Key, names: References) -> None:
        who = Referrer(self._controller, owner)
        self._secrets.want(who, [Key(owner.namespace, name) for name in names.secrets])
        self._config_maps.want(who, [Key(owner.namespace, name) for name in names.config_maps])


async def _existing(
    watched: referenced_objects.ReferencedObjects[T], namespace: str, names: Iterable[str]
) -> Mapping[str, T]:
    # All of them have been asked for already, so this waits for the slowest answer, not for their sum.
    found = {name: await watched.get(Key(namespace, name)) for name in sorted(names)}
    return {name: one for name, one in found.items() if one is not None}
