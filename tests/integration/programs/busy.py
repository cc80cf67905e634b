"""Leads, then computes for longer than its lease without giving its event loop a single turn.

    python busy.py NAMESPACE LEASE

Ends with 0 when it still may write afterwards, and has written.
"""

from __future__ import annotations

import asyncio
import sys
import time

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import ConfigMap
from slurm_operator.kube.process import log
from slurm_operator.kube.runtime.lease import LeaderElector

LEASE_SECONDS = 5.0


async def run(namespace: str, lease: str) -> int:
    config = load_config()
    elector = LeaderElector(
        config,
        namespace=namespace,
        name=lease,
        identity="busy",
        lease_duration=LEASE_SECONDS,
        renew_deadline=4.4,
        retry_period=0.3,
    )
    await elector.acquire()
    end = time.monotonic() + 1.2 * LEASE_SECONDS
    turns = 0
    while time.monotonic() < end:
        turns += sum(range(1000))
    elector.fence()
    async with Client(config, fence=elector.fence) as client:
        await client.create(ConfigMap, {"metadata": {"name": lease, "namespace": namespace}})
    if elector.lost.is_set():
        return 1
    await elector.release()
    return 0


if __name__ == "__main__":
    log.configure(log.LogOptions())
    raise SystemExit(asyncio.run(run(sys.argv[1], sys.argv[2])))
