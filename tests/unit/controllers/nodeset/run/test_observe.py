from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slurm_operator.controllers.nodeset.run.observe import _with_power_saving
from tests.support.objects.resources import controller
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import observe


@pytest.mark.parametrize(
    ("version", "lacks"), [("v0.0.45", ""), ("v0.0.44", "26.05"), ("v0.0.42", "26.05"), (None, "")]
)
def test_a_slurm_that_refuses_the_records_is_not_autoscaled(version: str | None, lacks: str) -> None:
    """25.11 knows no SuspendTime of a node: workers would be removed, and their records never created."""
    nodeset = make_nodeset(autoscaling={"maxReplicas": 1}, extraConf="CPUs=1 RealMemory=100")
    inputs: Any = SimpleNamespace(nodeset=nodeset, controller_ref=SimpleNamespace(controller=controller()))
    state: Any = SimpleNamespace(read=SimpleNamespace(resumes={}), records=SimpleNamespace(created_with={}))
    connection: Any = SimpleNamespace(rest=SimpleNamespace(version=version))
    seen = _with_power_saving(observe(nodeset=nodeset), inputs, state, connection)
    assert seen.record is not None
    assert "SuspendTime=300" in seen.record.options
    assert lacks in seen.lacks
    assert bool(seen.lacks) == bool(lacks)
