"""Names that this controller writes on pods and NodeSets beside those of the reference."""

from __future__ import annotations

from typing import Final

from slurm_operator.api import wellknown

# Beside `pod-cordon`, and only there when the operator set that one: why it did. A cordon without it is a
# person's, and stays until that person takes it away.
ANNOTATION_POD_CORDON_BY: Final = f"{wellknown.NODESET_PREFIX}pod-cordon-by"
# On a NodeSet: "true" lets its deletion take the pods without draining them first.
ANNOTATION_SKIP_DRAIN: Final = f"{wellknown.NODESET_PREFIX}skip-drain"
# On a NodeSet: it is not gone before its nodes are drained and its pods deleted.
FINALIZER_DRAIN: Final = f"{wellknown.NODESET_PREFIX}drain"
# Set by `kubectl delete --cascade=orphan`: the pods are to stay.
FINALIZER_ORPHAN: Final = "orphan"

# On a pod that has to go: whether it may, and if not, what is being waited for.
POD_CONDITION_SAFE: Final = "SlurmSafeToDelete"

# A value of `pruneSlurmNodeRecords` that the reference does not have.
PRUNE_SCALED_IN: Final = "ScaledIn"
# The latest end of jobs that have none; any real end is earlier.
NO_DEADLINE: Final = "9999-12-31T23:59:59Z"
