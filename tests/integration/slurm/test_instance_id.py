"""What real Slurm makes of `slurmd --instance-id`, by which the slurmd of a pod can be known."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox.slurm.daemons import CLUSTER
from tests.integration.slurm.test_rest_real import known, listed, old
from tests.support.slurm.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubebox.slurm import SlurmBox
    from slurm_operator.slurm.model.records import Node
    from slurm_operator.slurm.rest.client import RestClient

NAME = "identified"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def slurmd(box: SlurmBox, port: int, instance: str) -> Iterator[None]:
    """Run a slurmd as the one of a worker is started, for a while."""
    server = f"127.0.0.1:{box.record().ports['slurmctld']}"
    conf = f"NodeAddr=127.0.0.1 Port={port} {box.spec.node_conf}"
    daemon = ["slurmd", "-D", "-Z", "-N", NAME, "--conf-server", server, "--conf", conf]
    argv, environment = box.command([*daemon, "--instance-id", instance])
    running = subprocess.Popen(argv, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        # It enters another pid namespace, so the daemon is its child.
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text()
        for child in children.split():
            os.kill(int(child), signal.SIGTERM)
        running.wait(60)


def registered(after: float) -> Callable[[Node | None], bool]:
    """Return what tells whether a slurmd has registered that started after a moment."""

    def is_so(node: Node | None) -> bool:
        return (
            node is not None
            and node.state[0] == "IDLE"
            and "NOT_RESPONDING" not in node.state
            and (node.slurmd_start_time.value or 0.0) > after
        )

    return is_so


async def test_an_equal_instance_id_proves_the_pod(box: SlurmBox, real: RestClient) -> None:
    """The first slurmd's is listed. After it comes another: 24.11 shows that one's, 26.05 keeps the first."""
    port = free_port()
    node = partial(listed, real, NAME)
    with slurmd(box, port, "first"):
        await until(node, registered(0.0))
        first = await known(real, NAME)
    assert first.instance_id == "first"
    # slurmctld counts whole seconds.
    await asyncio.sleep(1.1)
    with slurmd(box, port, "second"):
        await until(node, registered(first.slurmd_start_time.value or 0.0))
        second = await known(real, NAME)
    assert second.instance_id == ("second" if old(box) else "first")
    await real.delete_node(NAME)


async def test_every_list_names_the_cluster(real: RestClient) -> None:
    """Nodes, jobs and reservations come with the ClusterName."""
    lists = await real.nodes(), await real.jobs(), await real.reservations()
    assert [found and found.cluster for found in lists] == [CLUSTER] * 3
