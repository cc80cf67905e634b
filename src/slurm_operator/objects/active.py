"""Which slurmctld pod the clients' Service leads to.

The Service finds its pod by a label, which every pod is born with, so that none is needed to give it one.
Moving the label is safe in one order only: the new pod gets it before the old one loses it, and the old one
loses it only if the new one is ready. Nor does a pod lose it that is not ready: no Service leads there, and
when it is back, perhaps while no operator runs, it is most likely in charge again.

When no ping says who is active, or the active pod is not there, the first ready pod with the label keeps it:
Slurm's first controller takes over whenever it runs. If no pod with the label is ready, the first that is
gets it as well, since a node may have died, and the slurmrestd that we ask with it. At no point does a
Service that had a ready pod have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from slurm_operator.api import Controller
    from slurm_operator.slurm.model.records import Ping


def active_pod(controller: Controller, pings: Iterable[Ping]) -> str | None:
    """Return the pod of the slurmctld in charge: the first that responds, in the order of slurm.conf.

    A standby responds as well, but does not precede the one in charge unless that one is silent. There is one
    exception, which no ping shows: while the first is gone, an earlier standby that comes back leaves the
    charge with a later one. Pods are known by the host names in the pings, not by their place in the list.
    """
    ranks = {controller.pod_name(ordinal): ordinal for ordinal in range(controller.replicas)}
    responding = [ping.hostname for ping in pings if ping.responding and ping.hostname in ranks]
    return min(responding, key=ranks.__getitem__, default=None)


def relabel(labelled: Mapping[str, bool], active: str | None, ready: Collection[str] = ()) -> dict[str, bool]:
    """Return which pods must get (True) or lose (False) the label, in the order in which to do it.

    `labelled` has every pod that exists, and whether it has the label now; `ready` those that would serve.
    """
    wanted = active if active is not None and active in labelled else _likely(labelled, ready)
    if wanted is None:
        return {}
    changes = {} if labelled[wanted] else {wanted: True}
    if wanted in ready:
        others = (name for name, has in labelled.items() if has and name != wanted and name in ready)
        changes |= dict.fromkeys(others, False)
    return changes


def _likely(labelled: Mapping[str, bool], ready: Collection[str]) -> str | None:
    """Return the pod to label when the active slurmctld is unknown or has no pod; None to change nothing."""
    usable = [name for name in labelled if name in ready]
    serving = [name for name in labelled if labelled[name]]
    for candidates in ([name for name in usable if labelled[name]], usable):
        if candidates:
            return min(candidates, key=_rank)
    return None if serving else min(labelled, key=_rank, default=None)


def _rank(name: str) -> tuple[int, str]:
    return len(name), name
