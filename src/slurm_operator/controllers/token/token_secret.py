"""The Secret of a Token: what it looks like, and who owns the one that exists.

Three kinds of Secret are ours: one that the Token controls; one that carries our label and has no controller
owner, because it was orphaned; and one that Slinky slurm-operator created, whose controller owner is the
Secret with the JWT key. Any other belongs to another owner, and neither its content nor its owner references
may be changed.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.objects.labels import LAST_APPLIED, merge_maps, owner_reference, recommended

if TYPE_CHECKING:
    from slurm_operator.api import Token
    from slurm_operator.kube.models.kinds import Secret

_OPAQUE: Final = "Opaque"


def desired(token: Token, value: str) -> dict[str, Any]:
    """Return the Secret with a token in it."""
    metadata = token.metadata
    annotations = {key: text for key, text in metadata.annotations.items() if key != LAST_APPLIED}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": token.secret_name,
            "namespace": metadata.namespace,
            "labels": recommended(
                merge_maps(metadata.labels, {wellknown.LABEL_TOKEN_SECRET: wellknown.TRUE})
            ),
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [owner_reference(token)],
        },
        "type": _OPAQUE,
        "immutable": not token.spec.refresh,
        "data": {token.secret_key: base64.b64encode(value.encode()).decode()},
    }


def present(token: Token, live: Secret) -> str:
    """Return what is in the Secret where the token should be."""
    return (live.data or {}).get(token.secret_key, b"").decode("ascii", errors="replace")


def drifted(token: Token, live: Secret) -> bool:
    """Return whether anything but the token itself differs from the desired Secret.

    Extra labels, annotations and keys may be left over from an earlier apply of ours, or belong to another
    client. Only the API server tracks field ownership, so they count as drift, and the apply removes those
    that are ours. The content of an immutable Secret cannot be changed, so for it only missing labels and
    annotations count.
    """
    if not is_controlled(token, live):
        return True
    wanted, has = desired(token, ""), live.metadata
    labels, annotations = wanted["metadata"]["labels"], wanted["metadata"].get("annotations", {})
    if live.immutable:
        return not (labels.items() <= has.labels.items() and annotations.items() <= has.annotations.items())
    return (
        has.labels != labels
        or has.annotations != annotations
        or live.immutable != wanted["immutable"]
        or set(live.data or ()) != {token.secret_key}
    )


def is_controlled(token: Token, live: Secret) -> bool:
    """Return whether this very Token, not one of its name, controls the Secret."""
    owner = live.controller_owner
    return owner is not None and bool(owner.uid) and owner.uid == token.metadata.uid


def is_orphan(live: Secret) -> bool:
    """Return whether the Secret was created for a Token and has no controller owner now."""
    return (
        live.controller_owner is None
        and wellknown.LABEL_TOKEN_SECRET in live.metadata.labels
        and _is_opaque(live)
    )


def former_owners(live: Secret | None, key: Secret | None) -> frozenset[str]:
    """Return the UIDs of the owners that Slinky slurm-operator gave a Secret: the Secret with the JWT key."""
    owner = None if live is None or not _is_opaque(live) else live.controller_owner
    if owner is None or key is None or owner.kind != key.RESOURCE.kind or owner.uid != key.metadata.uid:
        return frozenset()
    return frozenset({owner.uid})


def _is_opaque(live: Secret) -> bool:
    return live.type in ("", _OPAQUE)
