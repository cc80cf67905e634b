"""How Slurm's own scheduler scales a NodeSet: the bounds, and the times of its power saving."""

from __future__ import annotations

from typing import Annotated

from slurm_operator.api.limits import MAX_SECONDS, MAX_TIMEOUT, MAX_WORKERS
from slurm_operator.api.markers import DEFAULTED, REQUIRED, Int32, maximum, minimum
from slurm_operator.kube.models.meta import Part


class Autoscaling(Part, frozen=True):
    """Lets Slurm's own scheduler decide which workers run, by its power saving: to zero and back.

    Slurm has a node for each of `maxReplicas` workers from the start. It powers up the nodes that a job
    needs, and the operator creates their pods; it powers down nodes that were idle for `idleSeconds`, and
    the operator removes their pods. It needs Slurm 26.05 or later and a slurmctld that the operator runs. The
    CPUs and the memory of a worker must be known before one runs, from the limits of the container slurmd or
    from `CPUs=` and `RealMemory=` in `extraConf`.
    """

    min_replicas: Annotated[Int32, minimum(0), maximum(MAX_WORKERS), DEFAULTED] = 0
    """How many idle workers Slurm keeps up. 0 lets it power down all of them."""

    max_replicas: Annotated[Int32, minimum(1), maximum(MAX_WORKERS), REQUIRED] = 1
    """How many workers there are at most; Slurm shows those that do not run as powered down (`idle~`)."""

    idle_seconds: Annotated[Int32, minimum(1), maximum(MAX_SECONDS), DEFAULTED] = 300
    """For how long a node must be idle before Slurm powers it down (`SuspendTime`)."""

    resume_timeout_seconds: Annotated[Int32, minimum(10), maximum(MAX_TIMEOUT), DEFAULTED] = 600
    """How long a worker may take from its power-up until its slurmd registers, with the time that Kubernetes
    needs to find or to add a node (`ResumeTimeout`). When it is over, Slurm requeues the job."""

    suspend_timeout_seconds: Annotated[Int32, minimum(10), maximum(MAX_TIMEOUT), DEFAULTED] = 60
    """How long Slurm gives a pod to disappear before it uses the node again (`SuspendTimeout`)."""
