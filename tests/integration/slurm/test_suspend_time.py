"""Which SuspendTime a real slurmctld applies to autoscaled workers, with what the operator writes."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

import pytest

from slurm_operator.objects.content_references import Found
from slurm_operator.objects.slurm_conf import SlurmCluster, controller_files
from slurm_operator.objects.slurmd_records import record_shape
from slurm_operator.slurm.rest.client import RestClient
from tests.support.objects.resources import controller, node_set
from tests.support.slurm.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox.pytest_plugin import SlurmBoxFactory
    from kubebox.slurm import SlurmBox
    from slurm_operator.api import NodeSet
    from slurm_operator.slurm.model.records import Node

IDLE, LONGER, YEAR = 5, 600, 31_536_000
LIMITS = {"image": "x", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
SCALING = {"maxReplicas": 2, "idleSeconds": IDLE, "suspendTimeoutSeconds": 10, "resumeTimeoutSeconds": 60}
# kubebox has a partition with all nodes and without times, as the chart has.
OTHERS = f"""
SlurmctldParameters=enable_configless,power_save_interval=1,power_save_min_interval=0
PartitionName=longer Nodes=two SuspendTime={LONGER}
PartitionName=never Nodes=three SuspendTime=INFINITE
NodeSet=theirs Feature=theirs
PartitionName=theirs Nodes=theirs SuspendTime={IDLE}
"""


def scaled(name: str, *, partition: bool = True) -> NodeSet:
    return node_set(name, autoscaling=SCALING, slurmd=LIMITS, partition={"enabled": partition})


NODE_SETS = (scaled("one"), scaled("two"), scaled("three"), scaled("hidden", partition=False))
RUNNING = [f"{one.metadata.name}-0" for one in NODE_SETS]


def power_saving(longer: int = LONGER) -> str:
    """Return the sections of the operator's slurm.conf about power saving, and partitions of a user."""
    text = controller_files(SlurmCluster(controller(), node_sets=NODE_SETS), Found())["slurm.conf"]
    text = text[text.index("### POWER SAVING ###") :]
    return text + OTHERS.replace(f"SuspendTime={LONGER}", f"SuspendTime={longer}")


@pytest.fixture
def box(slurm_box_factory: SlurmBoxFactory) -> SlurmBox:
    """Hand out a Slurm 26.05 with power saving and no nodes."""
    return slurm_box_factory(nodes=0, extra_conf=power_saving())


@pytest.fixture
async def client(box: SlurmBox) -> AsyncIterator[RestClient]:
    """Hand out a client of it, with two records for each NodeSet: the operator's, and one without a time."""
    token = box.token()
    async with RestClient(box.url, lambda: token) as opened:
        for one in NODE_SETS:
            name, line = one.metadata.name, record_shape(one).line
            await opened.create_nodes(line([f"{name}-0"]))
            await opened.create_nodes(line([f"{name}-1"]).replace(f" SuspendTime={IDLE}", ""))
        yield opened


async def listed(client: RestClient) -> dict[str, Node]:
    found = await client.nodes()
    assert found is not None
    return {node.name: node for node in found.nodes}


async def times(client: RestClient) -> dict[str, float | None]:
    return {name: node.suspend_time.value for name, node in (await listed(client)).items()}


def powered(node: Node) -> bool:
    """Return whether Slurm powers a node down, or has done so."""
    return bool({"POWERING_DOWN", "POWERED_DOWN"} & {*node.state})


async def test_the_time_of_the_record_applies_whatever_partitions_it_is_in(
    box: SlurmBox, client: RestClient
) -> None:
    """Workers are powered down after idleSeconds, in the partition of all nodes and in others with a time.

    Others are so only where a user gives a partition of theirs a time.
    """
    assert {node.partitions for node in (await listed(client)).values()} == {
        ("all", "one"),
        ("all", "two", "longer"),
        ("all", "three", "never"),
        ("all", "hidden-power-saving"),
    }
    for name in (*RUNNING, "plain-0", "theirs-0"):
        conf = f"CPUs=2 RealMemory=1024 Feature={name.partition('-')[0]}"
        await asyncio.to_thread(box.add_node, name, conf)
    up = time.monotonic()

    def done(nodes: dict[str, Node]) -> bool:
        return all(powered(nodes[name]) for name in (*RUNNING, "theirs-0"))

    found = await until(lambda: listed(client), done, within=60.0)
    assert time.monotonic() - up < IDLE + 30
    assert found["plain-0"].suspend_time.value == YEAR
    assert not powered(found["plain-0"])


async def test_without_a_time_of_its_own_a_record_has_the_longest_of_its_partitions(
    box: SlurmBox, client: RestClient
) -> None:
    """Partitions without a time do not count; and no record changes its time, not even by a restart."""
    assert (expected := await times(client)) == {
        **dict.fromkeys(RUNNING, IDLE),
        "one-1": YEAR,
        "two-1": LONGER,
        "three-1": math.inf,
        "hidden-1": YEAR,
    }
    await asyncio.to_thread(box.set_conf, power_saving(longer=2 * LONGER))

    async def partition() -> str:
        shown = await asyncio.to_thread(box.run, "scontrol", "show", "partition", "longer", check=False)
        return shown.stdout

    await until(partition, lambda shown: f"SuspendTime={2 * LONGER}" in shown)
    assert await times(client) == expected
    await asyncio.to_thread(box.restart, "slurmctld")
    assert await times(client) == expected
