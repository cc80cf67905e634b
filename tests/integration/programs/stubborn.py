"""The operator with one more part: something that never stops, however often it is cancelled.

    python stubborn.py manager [flags]

It is what a defect in a controller would look like to the process.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from slurm_operator.flags import Parser, add_manager_flags, manager_options, parse
from slurm_operator.kube.runtime.controller import Controller
from slurm_operator.process import run_manager

if TYPE_CHECKING:
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.models.meta import Key


async def never_stop() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def do_nothing(_: Key) -> None:
    return


def build(wiring: Wiring) -> Controller:
    wiring.manager.add_runnable(never_stop, name="mule", leader_only=True)
    return Controller("idle", do_nothing)


if __name__ == "__main__":
    parser = Parser(prog="stubborn", usage="stubborn manager [flags]", description="")
    add_manager_flags(parser)
    raise SystemExit(run_manager(manager_options(parse(parser, sys.argv[2:])), (build,)))
