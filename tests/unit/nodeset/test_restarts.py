"""What a new process says before Slurm has answered it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.shared import Condition, find_condition
from slurm_operator.controllers.nodeset.plan import plan
from slurm_operator.controllers.nodeset.sight import FIRST_ANSWER_SECONDS
from slurm_operator.controllers.nodeset.status import report
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.view import ClusterView
from tests.unit.nodeset.clustermodel import SimPod, make_nodeset
from tests.unit.nodeset.making import observe, pod
from tests.unit.slurm.views import NOW, node

DEGRADED = wellknown.CONDITION_DEGRADED
FINE = ("False", "AsExpected", "nothing is wrong")
DOWN = ("True", "NodesDown", "1 workers run, but Slurm has their nodes down, such as gpu-0")
# Of the process that led before.
UNREACHABLE = ("True", "SlurmUnreachable", "slurmrestd does not answer")
JUST_STARTED = NOW - 1
NOT_ASKED: list[ClusterView | None] = [None, ClusterView()]


def says(*pods: SimPod, before: tuple[str, str, str] | None, **fields: Any) -> tuple[str, str, str]:
    """Return status, reason and message of `Degraded`, when the NodeSet says something else so far."""
    nodeset = make_nodeset(replicas=len(pods), finalizers=(wellknown.FINALIZER_DRAIN,))
    if before is not None:
        status, reason, message = before
        said = Condition(type=DEGRADED, status=status, reason=reason, message=message)
        nodeset = msgspec.structs.replace(
            nodeset, status=msgspec.structs.replace(nodeset.status, conditions=(said,))
        )
    seen = observe(*pods, nodeset=nodeset, **fields)
    found = find_condition(report(seen, plan(seen)).conditions, DEGRADED)
    assert found is not None
    return found.status, found.reason, found.message


@pytest.mark.parametrize("before", [FINE, DOWN, UNREACHABLE], ids=lambda one: one[1])
@pytest.mark.parametrize("view", NOT_ASKED, ids=["no connection", "no answer"])
def test_a_restart_is_no_news(view: ClusterView | None, before: tuple[str, str, str]) -> None:
    """Until Slurm has had the time to answer, what was said of it before stays, word for word."""
    assert says(pod(0), before=before, view=view, since=JUST_STARTED) == before


@pytest.mark.parametrize("view", NOT_ASKED, ids=["no connection", "no answer"])
def test_silence_becomes_news(view: ClusterView | None) -> None:
    """When Slurm has still not answered after that, it is said, and somebody looks for it in time."""
    assert says(pod(0), before=FINE, view=view, since=NOW - FIRST_ANSWER_SECONDS)[0] == "True"
    waiting = plan(observe(pod(0), view=view, since=JUST_STARTED)).requeue
    assert waiting is not None
    assert waiting <= FIRST_ANSWER_SECONDS


def test_an_answer_is_news_at_once() -> None:
    """Slurm's own word, be it that it cannot be reached, does not wait."""
    refused = ClusterView(failure=RestUnreachable("refused"))
    assert says(pod(0), before=FINE, view=refused, since=JUST_STARTED)[1] == "SlurmUnreachable"
    assert says(pod(0), before=FINE, slurm=(node("gpu-0", "DOWN"),), since=NOW - 2) == DOWN
    assert says(pod(0), before=UNREACHABLE, slurm=(node("gpu-0"),), since=NOW - 2) == FINE


def test_who_never_said_anything_says_what_is_so() -> None:
    """A NodeSet without a status is not called healthy by who cannot know."""
    assert says(pod(0), before=None, view=None, since=JUST_STARTED)[:2] == ("True", "NoConnection")


def test_what_needs_no_slurm_is_said_at_once() -> None:
    """A pod that has failed is seen without Slurm, and one that has recovered is not remembered."""
    failed = ("True", "PodsFailed", "1 pods have failed, such as gpu-0")
    assert says(pod(0, phase="Failed"), before=FINE, view=None, since=JUST_STARTED)[1] == "PodsFailed"
    assert says(pod(0), before=failed, view=None, since=JUST_STARTED) == FINE
