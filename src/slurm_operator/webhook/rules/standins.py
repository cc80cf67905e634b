"""Stand-ins for the objects that a custom resource refers to.

The renderers want to know a Controller, its keys and its files before they build anything. At admission these
need not exist yet. With something in their place, whatever a renderer still complains of is a mistake in the
object itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import Accounting, Controller
from slurm_operator.api.controller import ControllerSpec
from slurm_operator.api.shared import SecretKeySelector
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from slurm_operator.kube.models.meta import ObjectMeta
from slurm_operator.objects.content_references import Found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.api import Kind
    from slurm_operator.api.shared import ConfigMapKeySelector

_KEY = SecretKeySelector(name="slurm-key", key="slurm.key")
_JWT = SecretKeySelector(name="jwt-key", key="jwt.key")
_NAME = "stand-in"


def controller_of(item: Kind, name: str) -> Controller:
    """Return a Controller that lacks nothing, of the name given or any."""
    metadata = ObjectMeta(name=name or _NAME, namespace=item.metadata.namespace)
    return Controller(metadata=metadata, spec=ControllerSpec(slurm_key_ref=_KEY, jwt_key_ref=_JWT))


def accounting_of(item: Kind, name: str) -> Accounting:
    """Return an Accounting in the namespace of an object."""
    return Accounting(metadata=ObjectMeta(name=name or _NAME, namespace=item.metadata.namespace))


def found(
    secrets: Iterable[SecretKeySelector | None] = (),
    config_maps: Iterable[ConfigMap] = (),
    keys: Iterable[ConfigMapKeySelector | None] = (),
) -> Found:
    """Return every Secret and ConfigMap that is named, each with the keys that are asked of it."""
    contents: dict[str, dict[str, bytes]] = {}
    for ref in (_KEY, _JWT, *secrets):
        if ref is not None:
            contents.setdefault(ref.name, {})[ref.key] = b"stand-in"
    files = {item.metadata.name: item for item in config_maps}
    for selector in keys:
        if selector is not None:
            known = files.get(selector.name)
            data = {**((known.data if known else None) or {}), selector.key: "stand-in"}
            files[selector.name] = config_map(selector.name, data)
    return Found({name: secret(name, data) for name, data in contents.items()}, files)


def secret(name: str, data: dict[str, bytes]) -> Secret:
    """Return a Secret."""
    return Secret(metadata=ObjectMeta(name=name), data=data)


def config_map(name: str, data: dict[str, str] | None = None) -> ConfigMap:
    """Return a ConfigMap."""
    return ConfigMap(metadata=ObjectMeta(name=name), data=data or {})
