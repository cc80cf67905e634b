"""How the command finds the operator, on an API server on loopback."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.plugin.exits import ExitCode, ManagerUnavailable
from slurm_operator.plugin.manager_api import ManagerApi
from slurm_operator.plugin.pod_proxy import PodProxy
from slurm_operator.status_rows import NOT_LEADER, ClusterReply
from tests.support.plugin.fake_kubernetes import OPERATOR, POD, FakeKubernetes
from tests.support.plugin.sample_authority import authority
from tests.support.plugin.states import STATES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEASES = "/apis/coordination.k8s.io/v1"
LEASE = f"{LEASES}/namespaces/{OPERATOR}/leases/slurm-operator"


@asynccontextmanager
async def calling(namespace: str = "") -> AsyncIterator[tuple[FakeKubernetes, ManagerApi]]:
    """Run an API server, and return a client of the manager behind it."""
    async with FakeKubernetes(STATES["healthy"], authority("2099-12-31")) as server:
        config = ClientConfig(server=server.server)
        async with Client(config) as client, PodProxy(config, "test") as proxy:
            yield server, ManagerApi(client, proxy, namespace=namespace)


def lease(namespace: str) -> dict[str, Any]:
    """Return the Lease of an operator."""
    metadata = {"name": "slurm-operator", "namespace": namespace}
    return {"metadata": metadata, "spec": {"holderIdentity": f"{POD}_1"}}


async def test_one_of_several_operators_has_to_be_named() -> None:
    """Anyone may create a Lease of that name in a namespace of theirs, so none is taken at random."""
    async with calling() as (server, api):
        del server.objects[LEASE]
        server.objects[f"{LEASES}/leases"] = [lease("evil"), lease("slurm-system")]
        with pytest.raises(ManagerUnavailable, match=r"evil, slurm-system.*--operator-namespace") as error:
            await api.connect()
        assert error.value.code == ExitCode.FAILED


async def test_a_leader_that_is_no_name_of_a_pod_leads_nowhere() -> None:
    """What a replica says of the leader becomes part of a path that is asked for as the user."""
    async with calling() as (server, api):
        seen = server.paths
        server.manager.refuse(503, NOT_LEADER, leader="x/../../../../secrets?y=_1")
        assert (await api.get("clusters", {}, ClusterReply)).items
        assert not any("secrets" in path for path in seen), seen
