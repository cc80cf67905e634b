from __future__ import annotations

import pytest

from faultlab.errors import ScenarioError
from faultlab.faults import Fault, parse
from faultlab.writes import Write

FAULTS = [
    Fault("kill-before", point="PATCH pods/status compute-0 #2"),
    Fault("kill-accepted", point="POST slurm:nodes a,b DRAIN #1"),
    Fault("stale", kind="pods", seconds=3.5),
    Fault("stale", kind="pods", point="DELETE pods compute-0 #1"),
    Fault("withhold", kind="pods", name="compute-0"),
    Fault("answer", status=409, times=3, method="PATCH"),
    Fault("frozen-slurm", server="slurm", method="GET"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.do)
def test_text_form_is_read_back(fault: Fault) -> None:
    """What a report prints is the same fault when it is given back."""
    assert parse(fault.to_text()) == fault


@pytest.mark.parametrize(
    "text",
    [
        "do=nothing",
        "kind=pods",
        "do=kill-before",
        "do=delay write='PATCH pods a #1'",
        "do=withhold",
        "do=answer status=200",
        "do=answer status=many",
        "do=delay server=etcd",
        "do=delay what",
        "do=delay point=x",
    ],
)
def test_a_wrong_fault_is_refused(text: str) -> None:
    """A fault that means nothing is an error, not a run without a fault."""
    with pytest.raises(ScenarioError):
        parse(text)


def test_a_kill_hits_one_write_of_the_scenario() -> None:
    """The write is found by its name and occurrence, and only in the scenario's own part."""
    fault = Fault("kill-before", point="PATCH pods compute-0 #2")

    def write(occurrence: int, *, counted: bool) -> Write:
        return Write(1, "kubernetes", "PATCH", "pods", "compute-0", occurrence, "", 0.0, 1, counted=counted)

    assert fault.hits_write(write(2, counted=True))
    assert not fault.hits_write(write(1, counted=True))
    assert not fault.hits_write(write(2, counted=False))


def test_requests_are_chosen_by_what_is_given() -> None:
    """What a fault does not name, it does not look at; without a server it means kube-apiserver."""
    assert Fault("delay").hits("kubernetes", "GET", "pods", "")
    assert not Fault("delay").hits("slurm", "GET", "slurm:nodes", "")
    assert Fault("reset", kind="pods", method="PATCH").hits("kubernetes", "PATCH", "pods", "a")
    assert not Fault("reset", kind="pods", method="PATCH").hits("kubernetes", "GET", "pods", "a")
