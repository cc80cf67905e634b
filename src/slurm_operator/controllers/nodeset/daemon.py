"""Names of workers that belong to a Kubernetes node.

The name of a worker follows from its node, so that a create which is repeated after a crash, or before the
cache shows the first one, cannot make a second pod.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from slurm_operator.api.nodeset import daemon_hostname

if TYPE_CHECKING:
    from slurm_operator.api.nodeset import NodeSet
    from slurm_operator.kube.models import Node

# Kubernetes' alphabet for generated names.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
# 27^10 names: among ten thousand nodes, two of the same are as good as impossible.
_SUFFIX: Final = 10
_MAX_NAME: Final = 63


def daemon_name(nodeset: NodeSet, node: Node) -> str:
    """Return the name of the worker of a node."""
    digest = hashlib.sha256(f"{nodeset.metadata.uid}/{node.metadata.name}".encode()).digest()
    suffix = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_SUFFIX])
    return f"{nodeset.pod_generate_name[: _MAX_NAME - _SUFFIX]}{suffix}"


def expected_hostname(node: Node) -> str:
    """Return the name in Slurm of the worker of a node."""
    return daemon_hostname(node.metadata.name, node.metadata.annotations)
