"""The rules: one module per kind, each with a pure `check(item, world, findings)`.

`CHECKS` is the table of them. A rule that needs to know another object says so in `wanted`, and gets the
answer in the `World`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from slurm_operator.api import Accounting, Cluster, Controller, Kind, LoginSet, NodeSet, RestApi, Token
from slurm_operator.webhook.findings import Findings
from slurm_operator.webhook.rules import (
    accounting,
    cluster,
    controller,
    loginset,
    nodeset,
    restapi,
    token,
)
from slurm_operator.webhook.world import Wanted, World

Check: TypeAlias = Callable[[Any, World, Findings], None]

CHECKS: dict[type[Kind], Check] = {
    Accounting: accounting.check,
    Cluster: cluster.check,
    Controller: controller.check,
    LoginSet: loginset.check,
    NodeSet: nodeset.check,
    RestApi: restapi.check,
    Token: token.check,
}


def wanted(item: Kind) -> Wanted:
    """Return what the rules of an object ask about."""
    match item:
        case Controller():
            return controller.wanted(item)
        case NodeSet():
            return Wanted(node_sets=True)
        case _:
            return Wanted()
