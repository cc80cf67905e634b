"""A NodeSet that asks for more workers than there can be, on a real control plane."""

from __future__ import annotations

import asyncio
import itertools
import resource
import sys
from typing import TYPE_CHECKING

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.api.limits import MAX_WORKERS
from slurm_operator.kube.errors import ApiError
from tests.support.processes import eventually

if TYPE_CHECKING:
    import pytest

    from tests.support.controllers.nodeset_namespace import Stage

MOST = 2**31 - 1
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodesets.slinky.slurm.net"
REPLICAS = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas/maximum"
# Of which the API server's answers, and all that a whole operator takes, are the most.
MEMORY_MIB = 150


async def allow(stage: Stage, replicas: int) -> None:
    """Set the maximum in the CRD, as an older version of it had another one."""
    await stage.client.raw(
        "PATCH",
        CRD,
        body=[{"op": "replace", "path": REPLICAS, "value": replicas}],
        content_type="application/json-patch+json",
    )


def most_memory() -> float:
    """Return the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def test_an_operator_copes_with_a_nodeset_beyond_the_maximum(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """A NodeSet of two billion workers, stored under an older CRD, is treated as one of 65,536."""
    await stage.quota(3)
    await stage.nodeset(replicas=0)

    async def accepted() -> bool:
        try:
            await stage.scale(MOST)
        except ApiError:
            return False
        return True

    await allow(stage, MOST)
    try:
        await eventually(accepted, "the API server knows the older CRD")
    finally:
        await allow(stage, MAX_WORKERS)

    # Each time another number: the one that is there already is never refused.
    others = itertools.count(MOST - 1, -1)

    async def refused() -> bool:
        try:
            await stage.scale(next(others))
        except ApiError:
            return True
        return False

    await eventually(refused, "the API server knows the CRD again")
    before, began = most_memory(), asyncio.get_running_loop().time()
    await stage.operator()
    await stage.until(lambda pods: len(pods) == 3, "as many pods as the quota allows")
    await stage.counts(desired=MAX_WORKERS)
    took, memory = asyncio.get_running_loop().time() - began, most_memory() - before
    with capsys.disabled():
        sys.stdout.write(f" [2,147,483,647 replicas: {memory:.0f} MiB more, {took:.1f} s]")
    assert memory < MEMORY_MIB

    live = await stage.there(NodeSet, "blue")
    assert wellknown.FINALIZER_DRAIN in live.metadata.finalizers, "the operator can change the object"
