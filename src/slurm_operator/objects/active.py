"""Which slurmctld pod the clients' Service leads to.

The Service finds its pod by a label. Moving the label is safe in one order only: the new pod gets it before
the old one loses it, and nobody loses it on a guess. When no ping says who is active, or the active pod is
not there, the labels stay as they are. At no point does a Service that had a pod have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


def relabel(labelled: Mapping[str, bool], active: str | None) -> dict[str, bool]:
    """Return which pods must get (True) or lose (False) the label, in the order in which to do it.

    `labelled` has every pod that exists, and whether it has the label now.
    """
    if active is not None and active in labelled:
        wanted = active
    elif any(labelled.values()) or not labelled:
        return {}
    else:
        # Somebody must serve. Slurm's first controller takes over whenever it runs, so it is the best guess.
        wanted = min(labelled, key=lambda name: (len(name), name))
    changes = {} if labelled[wanted] else {wanted: True}
    others = (name for name, has in labelled.items() if has and name != wanted)
    return changes | dict.fromkeys(others, False)
