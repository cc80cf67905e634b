"""While it leads, writes its name into a ConfigMap, over and over, and does not stop when the lease is lost.

    python writer.py NAME NAMESPACE CONFIGMAP PAUSE

An operator would end at the first sign of a lost lease. This program goes on trying, hundreds of times, so
that nothing but the fence stands between it and the API server; then it ends with 1. SIGTERM ends it with 0.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import FencedError, KubeError
from slurm_operator.kube.models.kinds import ConfigMap
from slurm_operator.kube.process import log
from slurm_operator.kube.runtime.lease import LeaderElector

STUBBORN = 300


async def run(name: str, namespace: str, configmap: str, pause: float) -> int:
    config = load_config()
    elector = LeaderElector(
        config,
        namespace=namespace,
        name=configmap,
        identity=name,
        # A machine that stands still for four seconds is no change of leader.
        lease_duration=5.0,
        renew_deadline=4.4,
        retry_period=0.4,
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Client(config, fence=elector.fence) as client:
        await elector.acquire()
        refused = count = 0
        while not stop.is_set() and refused < STUBBORN:
            count += 1
            patch = {"data": {"writer": name, "count": str(count)}}
            try:
                await client.patch(ConfigMap, configmap, namespace, patch, type=PatchType.MERGE)
            except FencedError:
                refused += 1
            except KubeError as error:
                print(f"write {count}: {error}", flush=True)  # noqa: T201 - for whoever reads a failed test
            await asyncio.sleep(0 if refused else pause)
    if refused:
        return 1
    await elector.release()
    return 0


if __name__ == "__main__":
    log.configure(log.LogOptions())
    raise SystemExit(asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))))
