"""A real Kubernetes control plane on one machine, for tests, demos and benchmarks; and a real Slurm.

etcd, kube-apiserver and, when asked for, kube-controller-manager, kube-scheduler and fake nodes, as plain
processes on loopback: no containers, no root, no image registry. Several boxes run side by side, and none
outlives the process that asked for it. Anybody may use this package; it knows nothing of the operator in
this repository.

    spec        what a caller wants                 box         what a caller gets
    build       how programs are made once          supervisor  the process that owns a running box
    handle      what all kinds of boxes can do      keeper      how all of them live and end
    components  command lines, pure                 nodes       who provides nodes: fake, real, the seam
    state       folders, locks, leftovers           procs       processes that are never mistaken
    slurm       Slurm clusters in the same manner   images      container images without a container engine
"""

from __future__ import annotations

from kubebox.box import Box
from kubebox.errors import BoxError, KubeboxError, SpecError, ToolError
from kubebox.slurm import SlurmBox, SlurmSpec
from kubebox.spec import BoxSpec

__all__ = ["Box", "BoxError", "BoxSpec", "KubeboxError", "SlurmBox", "SlurmSpec", "SpecError", "ToolError"]
