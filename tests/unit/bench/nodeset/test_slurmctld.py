"""What the stand-in for slurmctld does to its nodes, as a real one does."""

from __future__ import annotations

import pytest

from bench.nodeset.slurmctld import Slurmctld


@pytest.mark.parametrize("conf", ["NodeName=n-0 State=CLOUD", "NodeName=n-0"])
def test_a_drain_and_its_reason_outlive_the_slurmd(conf: str) -> None:
    """Also on a record of power saving; without a drain the reason goes when the next slurmd registers."""
    slurm = Slurmctld()
    slurm.create(conf)
    for drained in (True, False):
        slurm.register("n-0")
        slurm.update(["n-0"], {"state": ["DRAIN" if drained else "UNDRAIN"], "reason": "why"})
        slurm.terminate("n-0")
        slurm.register("n-0")
        assert ("DRAIN" in slurm.nodes["n-0"]["state"]) is drained
        assert slurm.nodes["n-0"]["reason"] == ("why" if drained else "")
