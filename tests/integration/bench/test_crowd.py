"""Many clusters behind one address, as `bench.clusters` uses them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from bench.crowd import Mood, SharedAddress, jwt_key
from bench.nodeset.slurmctld import Slurmctld
from bench.nodeset.standin import StandIn, serving_application
from slurm_operator.slurm.errors import TokenRefused
from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.rest.client import RestClient
from slurm_operator.slurm.web_token import mint


def token(key: bytes) -> str:
    """Return a token that a key has signed."""
    return mint(key, "slurm", timedelta(minutes=1), datetime.now(UTC))


async def test_a_request_is_for_the_cluster_whose_key_signed_its_token() -> None:
    """Nodes and writes of one cluster are not those of another, and a foreign token opens none."""
    standins = [StandIn(Slurmctld()) for _ in range(4)]
    for number, standin in enumerate(standins):
        standin.slurmctld.register(f"node-{number}")
    address = SharedAddress(standins, Mood(), slow_seconds=0.0)
    async with serving_application(address.application()) as url:
        for number in (2, 3):
            async with RestClient(url, partial(token, jwt_key(number))) as rest:
                listed = await rest.nodes()
                assert listed is not None
                assert [node.name for node in listed.nodes] == [f"node-{number}"]
        async with RestClient(url, partial(token, jwt_key(3))) as rest:
            await rest.update_nodes("node-3", NodeUpdate(state=("DRAIN",), reason="slurm-operator: test"))
        async with RestClient(url, partial(token, b"another")) as rest:
            with pytest.raises(TokenRefused):
                await rest.nodes()
    assert [bool(count) for count in address.counts["requests"]] == [False, False, True, True]
    assert address.counts["writes"] == [0, 0, 0, 1]
