"""Which slurmctld pod the clients' Service leads to.

The Service finds its pod by a label, which every pod is born with, so that none is needed to give it one.
Moving the label is safe in one order only: the new pod gets it before the old one loses it. When no ping says
who is active, or the active pod is not there, a pod that is the only one with the label keeps it. Of several
the first that is ready keeps it: Slurm's first controller takes over whenever it runs. At no point does a
Service that had a pod have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from slurm_operator.api import Controller
    from slurm_operator.slurm.model import Ping


def active_pod(controller: Controller, pings: Iterable[Ping]) -> str | None:
    """Return the pod of the slurmctld in charge: the first that responds, in the order of slurm.conf.

    A standby responds as well, but never precedes the one in charge unless that one is silent. Pods are known
    by the host names in the pings, not by their place in the list.
    """
    ranks = {controller.pod_name(ordinal): ordinal for ordinal in range(controller.replicas)}
    responding = [ping.hostname for ping in pings if ping.responding and ping.hostname in ranks]
    return min(responding, key=ranks.__getitem__, default=None)


def relabel(labelled: Mapping[str, bool], active: str | None, ready: Collection[str] = ()) -> dict[str, bool]:
    """Return which pods must get (True) or lose (False) the label, in the order in which to do it.

    `labelled` has every pod that exists, and whether it has the label now; `ready` those that would serve.
    """
    serving = [name for name, has in labelled.items() if has]
    if active is not None and active in labelled:
        wanted = active
    elif not labelled or (serving and not any(name in ready for name in serving)):
        return {}
    else:
        candidates = [name for name in serving if name in ready] or [*labelled]
        wanted = min(candidates, key=lambda name: (len(name), name))
    changes = {} if labelled[wanted] else {wanted: True}
    others = (name for name, has in labelled.items() if has and name != wanted)
    return changes | dict.fromkeys(others, False)
