"""The script that a worker runs before it ends, against real Slurm of both releases."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from slurm_operator.objects.slurmd import PRE_STOP
from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.rest import RestClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox.slurm import SlurmBox

OURS = "slurm-operator: Pod is terminating"


@pytest.fixture(params=["26.05", "24.11"])
def box(request: pytest.FixtureRequest, slurm_box_factory: Callable[..., SlurmBox]) -> SlurmBox:
    """Hand out a cluster of the test's own, whose nodes do not come back by themselves."""
    return slurm_box_factory(release=request.param, nodes=1, return_to_service=0)


def _stop(box: SlurmBox) -> tuple[set[str], str]:
    """Run the script where slurmd runs, as the kubelet would, and return state and reason."""
    # The host of the box has another name than its nodes; a pod has its node's.
    box.run("sh", "-c", f"hostname() {{ echo n0; }}\n{PRE_STOP}", node="n0")
    shown = box.run("scontrol", "show", "node", "n0").stdout
    (state,) = re.findall(r"^ *State=(\S+)", shown, re.MULTILINE)
    (reason,) = re.findall(r"^ *Reason=(.*) \[[^]]*\]$", shown, re.MULTILINE)
    return set(state.split("+")), reason


def _update(box: SlurmBox, *fields: str) -> None:
    box.run("scontrol", "update", "NodeName=n0", *fields)


def test_the_node_goes_down(box: SlurmBox) -> None:
    """A worker that ends is down in Slurm, with a reason that is ours."""
    state, reason = _stop(box)
    assert {"DOWN"} <= state
    assert "DRAIN" not in state
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
    assert "DRAIN" not in state
    assert reason == OURS


async def test_a_drain_without_a_reason_does_not_become_ours(box: SlurmBox) -> None:
    """Where nobody said why a node is drained, the reason given does not claim the drain for the operator."""
    token = box.token()
    async with RestClient(box.url, lambda: token) as client:
        await client.update_nodes("n0", NodeUpdate(state=("DRAIN",)))
    state, reason = await asyncio.to_thread(_stop, box)
    assert {"DOWN", "DRAIN"} <= state
    assert reason == "Pod is terminating"
