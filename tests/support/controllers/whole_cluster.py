"""A whole cluster: one object of each kind that runs a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import Accounting, Controller, Kind, LoginSet, RestApi

if TYPE_CHECKING:
    from tests.support.controllers.workload_namespace import Operator, Stage

KINDS: tuple[type[Kind], ...] = (Controller, Accounting, RestApi, LoginSet)


async def whole_cluster(stage: Stage) -> Operator:
    """Run one object of each kind, all ready."""
    operator = await stage.operator()
    await make_whole_cluster(stage)
    return operator


async def make_whole_cluster(stage: Stage) -> None:
    """Write one object of each kind, and wait until all are ready."""
    await stage.keys()
    await stage.password("p")
    await stage.secret("sssd", sssd__conf="[sssd]")
    await stage.config_map("gres", gres__conf="Name=gpu")
    await stage.controller(accountingRef={"name": "slurm"}, configFileRefs=[{"name": "gres"}])
    await stage.accounting()
    await stage.restapi()
    await stage.loginset()
    await all_ready(stage)


async def all_ready(stage: Stage) -> None:
    for kind in KINDS:
        name = "login" if kind is LoginSet else "slurm"
        await stage.says(kind, name, "Available")
        await stage.says(kind, name, "Complete", "Progressing")
