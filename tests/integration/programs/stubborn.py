"""The operator with one more part: something that never stops, however often it is cancelled.

    python stubborn.py manager [flags]

It is what a defect in a controller would look like to the process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator import cli, process
from slurm_operator.kube.controller import Controller

if TYPE_CHECKING:
    from slurm_operator.flags import ManagerOptions
    from slurm_operator.kube.client import Client
    from slurm_operator.kube.manager import Manager
    from slurm_operator.kube.meta import Key


async def never_stop() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def do_nothing(_: Key) -> None:
    return


def build(manager: Manager, _client: Client, _options: ManagerOptions) -> Controller:
    manager.add_runnable(never_stop, name="mule", leader_only=True)
    return Controller("idle", do_nothing)


if __name__ == "__main__":
    process.CONTROLLERS = (build,)
    raise SystemExit(cli.main())
