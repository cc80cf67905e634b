"""The script that a worker runs before it ends, against real Slurm of both releases."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import TYPE_CHECKING

import pytest

from slurm_operator.objects.slurmd import PRE_STOP
from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.rest.client import RestClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox.slurm import SlurmBox

OURS = "slurm-operator: Pod is terminating"


@pytest.fixture(params=["26.05", "24.11"])
def box(request: pytest.FixtureRequest, slurm_box_factory: Callable[..., SlurmBox]) -> SlurmBox:
    """Hand out a cluster of the test's own, whose nodes do not come back by themselves."""
    return slurm_box_factory(release=request.param, nodes=1, return_to_service=0)


def _stop(box: SlurmBox, grace: int = 30) -> tuple[set[str], str]:
    """Run the script where slurmd runs, as the kubelet would, and return state and reason."""
    environment = (f"SLINKY_GRACE_SECONDS={grace}", "SLINKY_NODE_NAME=n0")
    box.run("env", *environment, "sh", "-c", PRE_STOP, node="n0", timeout=grace + 60)
    return _shown(box)


def _shown(box: SlurmBox) -> tuple[set[str], str]:
    shown = box.run("scontrol", "show", "node", "n0").stdout
    (state,) = re.findall(r"^ *State=(\S+)", shown, re.MULTILINE)
    reasons = re.findall(r"^ *Reason=(.*) \[[^]]*\]$", shown, re.MULTILINE)
    return set(state.split("+")), "".join(reasons)


def _update(box: SlurmBox, *fields: str) -> None:
    box.run("scontrol", "update", "NodeName=n0", *fields)


def test_the_node_goes_down(box: SlurmBox) -> None:
    """A worker that ends is down in Slurm, with a reason that is ours."""
    state, reason = _stop(box)
    assert {"DOWN", "DRAIN"} <= state
    assert reason == OURS


@pytest.mark.parametrize(
    "given", ["bad DIMM", 'it\'s [n0] "$HOME" `id`', "slurm-operator: Pod (a/b) was cordoned"]
)
def test_whoever_drained_the_node_keeps_his_reason(box: SlurmBox, given: str) -> None:
    """On a node that is drained the reason stays as it was, and so does the drain."""
    _update(box, "State=DRAIN", f"Reason={given}")
    state, reason = _stop(box)
    assert {"DOWN", "DRAIN"} <= state
    assert reason == given


def test_a_reason_that_is_over_does_not_stay(box: SlurmBox) -> None:
    """A reason that explains nothing any more, as Slurm 24.11 keeps it, is replaced."""
    _update(box, "State=DRAIN", "Reason=long ago")
    _update(box, "State=UNDRAIN")
    state, reason = _stop(box)
    assert {"DOWN", "DRAIN"} <= state
    assert reason == OURS


async def test_a_drain_without_a_reason_does_not_become_ours(box: SlurmBox) -> None:
    """Where nobody said why a node is drained, the reason given does not claim the drain for the operator."""
    token = box.token()
    async with RestClient(box.url, lambda: token) as client:
        await client.update_nodes("n0", NodeUpdate(state=("DRAIN",)))
    state, reason = await asyncio.to_thread(_stop, box)
    assert {"DOWN", "DRAIN"} <= state
    assert reason == "Pod is terminating"


# ----------------------------------------------------------------------------------------------- running jobs


def test_a_running_job_ends_by_itself_within_the_grace_period(box: SlurmBox) -> None:
    """The node takes no new job at once, and is down only when the job in the container has completed."""
    job = box.submit(seconds=8, nodes=["n0"])
    _until(lambda: _job(box, job)["JobState"] == "RUNNING", "the job runs")
    stopping = threading.Thread(target=_stop, args=(box, 120))
    stopping.start()
    _until(lambda: "DRAIN" in _shown(box)[0], "the node is drained")
    assert "DOWN" not in _shown(box)[0]
    assert _job(box, job)["JobState"] == "RUNNING"
    stopping.join()
    state, reason = _shown(box)
    assert {"DOWN", "DRAIN"} <= state
    assert reason == OURS
    _until(lambda: _job(box, job)["JobState"] != "COMPLETING", "the job has ended")
    told = _job(box, job)
    assert (told["JobState"], told["Restarts"], told["ExitCode"]) == ("COMPLETED", "0", "0:0")


def test_a_longer_job_is_given_up_before_the_grace_period_ends(box: SlurmBox) -> None:
    """Ten seconds before Kubernetes kills the container the node goes down, and its job is requeued."""
    job = box.submit(seconds=600, nodes=["n0"])
    _until(lambda: _job(box, job)["JobState"] == "RUNNING", "the job runs")
    before = time.monotonic()
    state, _ = _stop(box, grace=14)
    assert time.monotonic() - before >= 3
    assert {"DOWN", "DRAIN"} <= state


def _job(box: SlurmBox, job: int) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S*)", box.run("scontrol", "show", "job", str(job)).stdout))


def _until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.2)
