"""The rules: one module per kind, each with a pure `check(item, world, findings)`.

`CHECKS` is the table of them. A rule that needs to know another object says so in `wanted`, and gets the
answer in the `World`. What is wrong with the step from one state to another, though either would be good, is
in `check_change`. Of Secrets only changes of the keys of daemons are validated (`keys`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from slurm_operator.api import Accounting, Cluster, Controller, Kind, LoginSet, NodeSet, RestApi, Token
from slurm_operator.webhook.rules import (
    accounting,
    cluster,
    controller,
    keys,
    loginset,
    nodeset,
    restapi,
    token,
)
from slurm_operator.webhook.rules.findings import Findings
from slurm_operator.webhook.rules.world import Wanted, World

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


def wanted(item: Kind, old: Kind | None = None) -> Wanted:
    """Return what the rules of an object, and of the change from an old one to it, ask about."""
    match item:
        case Controller():
            return replace(controller.wanted(item), clusters=_switches(item, old))
        case Accounting():
            return Wanted(clusters=_switches(item, old))
        case NodeSet():
            return Wanted(node_sets=True)
        case _:
            return Wanted()


def check_change(item: Kind, old: Kind, world: World, findings: Findings) -> None:
    """Validate the change from an old object to a new one, where the new one may be good by itself."""
    match item:
        case Controller() if _switches(item, old):
            keys.check_controller(item, world, findings)
        case Accounting() if _switches(item, old):
            keys.check_accounting(item, world, findings)


def _switches(item: Controller | Accounting, old: Kind | None) -> bool:
    """Return whether daemons that run here would have another single key."""
    if not isinstance(old, Controller | Accounting) or item.spec.external or old.spec.external:
        return False
    return keys.switches(item.spec.slurm_key_ref, old.spec.slurm_key_ref)
