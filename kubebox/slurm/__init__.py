"""A real Slurm cluster on one machine, for tests: no Kubernetes, no containers, no installed Slurm.

slurmctld, slurmrestd, real slurmd and, when asked for, slurmdbd with MariaDB run from Debian packages that
are unpacked once into a cache. Everything listens on 127.0.0.1, several clusters run side by side, and none
outlives the process that asked for it. It needs root.

    spec       what a caller wants                  box         what a caller gets
    packages   Debian packages as files             rootfs      the file system in which Slurm runs
    conf       files and command lines, pure        sandbox     namespaces: what ends with what
    layout     where the files of a box are         supervisor  the process that owns a running box
"""

from __future__ import annotations

from kubebox.slurm.box import SlurmBox
from kubebox.slurm.spec import SlurmSpec

__all__ = ["SlurmBox", "SlurmSpec"]
