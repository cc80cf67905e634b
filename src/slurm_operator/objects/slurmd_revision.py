"""What makes a revision of a NodeSet: the part of its spec that decides how a worker looks.

The data follow from the spec alone. Neither what the operator makes of it, nor the content of Secrets, nor
the Controller goes into them, so a new version of the operator is no reason to replace workers; what else can
make a worker outdated is `slurmd.content_changed`.

They are written the way Go's types write them, as far as that can be told from outside: a container always
has a name and resources, a pod always has containers, quantities are texts. For most specs the hash is then
the one that the Slinky slurm-operator computed, and where it is not, `kube.runtime.revision_history` finds
out that the revisions mean the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from slurm_operator.api.nodeset import Ssh
from slurm_operator.objects import labels
from slurm_operator.objects.slurmd_identity import SLURMD

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet

# Fields in which Slinky slurm-operator writes a zero although it stands for nothing.
ZERO_FIELDS: Final = frozenset({"ordinalPadding", "oversubscribeNode"})

_REPLACE = {"$patch": "replace"}
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")


def revision_data(nodeset: NodeSet) -> dict[str, Any]:
    """Return the data of the revision that a NodeSet's spec stands for."""
    spec = nodeset.spec
    data: dict[str, Any] = {
        "template": {
            **_REPLACE,
            "metadata": _kept(msgspec.to_builtins(spec.template.metadata)),
            "spec": _pod_spec(spec.template.spec),
        },
        "ordinalPadding": spec.ordinal_padding,
        "oversubscribeNode": spec.oversubscribe_node,
        "slurmd": {**_REPLACE, "name": "", **_container(spec.slurmd)},
        "logfile": {**_REPLACE, "name": "", **_container(spec.logfile)},
    }
    if spec.extra_conf:
        data["extraConf"] = spec.extra_conf
    if spec.ssh != Ssh():
        data["ssh"] = {**_REPLACE, "enabled": False, "sssdConfRef": {}, **msgspec.to_builtins(spec.ssh)}
        data["ssh"]["sssdConfRef"] = {"key": "", **data["ssh"]["sssdConfRef"]}
    return {"spec": data}


def revision_labels(nodeset: NodeSet) -> dict[str, str]:
    """Return the labels by which the revisions of a NodeSet are found."""
    return labels.selector_labels(SLURMD, nodeset.metadata.name)


def trusted_hash(nodeset: NodeSet) -> str:
    """Return the hash that the status gives for the spec as it is now; empty if it is of an older spec."""
    status = nodeset.status
    return status.node_set_hash if status.observed_generation == nodeset.metadata.generation else ""


def _pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {"containers": None, **_kept(spec)}
    for name in _CONTAINER_LISTS:
        if isinstance(kept.get(name), list):
            kept[name] = [_container(item) if isinstance(item, dict) else item for item in kept[name]]
    return kept


def _container(value: dict[str, Any]) -> dict[str, Any]:
    return {"resources": {}, **_kept(value)}


def _kept(value: Any, key: str = "") -> Any:
    """Return a value without what Go drops, and with quantities as texts."""
    if isinstance(value, dict):
        if key in ("limits", "requests"):
            return {name: str(item) for name, item in value.items() if item is not None}
        return {name: _kept(item, name) for name, item in value.items() if item is not None and item != []}
    if isinstance(value, list):
        return [_kept(item) for item in value]
    return value
