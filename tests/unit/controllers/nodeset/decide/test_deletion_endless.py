"""Jobs without a time limit: what is written about them, and what it is taken for."""

from __future__ import annotations

import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages, observation
from slurm_operator.controllers.nodeset.decide.actions import Defer, PatchPod
from slurm_operator.controllers.nodeset.decide.deletion import may_delete
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.slurm.decide.node_list_trust import Evidence
from slurm_operator.slurm.model.records import Job, NoVal
from tests.support.simulation.kubernetes import moment
from tests.support.simulation.observations import observe, pod, slurm_state, worker
from tests.support.slurm.views import NOW, job, jobs, node, number, view

PROTECT, DEADLINE = wellknown.LABEL_POD_PROTECT, wellknown.ANNOTATION_POD_DEADLINE
# In Go: time.Unix(1_780_000_000, 0).Add(math.MaxInt64).Format(time.RFC3339)
START, NEVER = 1_780_000_000, "2318-09-07T20:13:56Z"


def endless(job_id: int, start: int = START) -> Job:
    """Return a job without a limit as Slurm lists it; the end is a guess of slurmctld's."""
    guess = number(start + 365 * 86_400)
    return job(job_id, "gpu-0", start_time=number(start), end_time=guess, time_limit=NoVal(infinite=True))


def patches(*running: Job, **annotations: str) -> list[dict[str, str | None]]:
    """Return what is written on a busy worker that has these annotations."""
    seen = view(node("gpu-0", "MIXED", alloc=1), jobs=jobs(*running))
    marked = {f"{wellknown.NODESET_PREFIX}{name}": value for name, value in annotations.items()}
    busy = pod(0, labels={PROTECT: "true"}, annotations=marked)
    decided = plan(observe(busy, view=seen))
    return [dict(one.annotations) for one in decided.actions if isinstance(one, PatchPod)]


def test_a_job_without_a_limit_has_the_end_that_the_go_operator_gives_it() -> None:
    """The annotation is the same text, so that neither operator writes it again after the other."""
    assert patches(endless(7)) == [{DEADLINE: NEVER}]
    assert patches(endless(7), **{"pod-deadline": NEVER}) == []


def test_the_last_of_several_counts() -> None:
    """A job with a limit does not move the end of one without, and a later one without does."""
    later = [{DEADLINE: "2318-09-07T20:14:06Z"}]
    known = {"pod-deadline": NEVER}
    assert patches(endless(7), job(8, "gpu-0"), **known) == []
    assert patches(endless(7), endless(8, START + 10), **known) == later


@pytest.mark.parametrize("deadline", [NEVER, observation.NO_DEADLINE])
def test_an_end_in_centuries_is_none(deadline: str) -> None:
    """Who reads why a pod stays is not told to wait for the year 2318."""
    lost = worker(labels={PROTECT: "true"}, annotations={DEADLINE: deadline})
    decision = may_delete(lost, slurm_state(others=Evidence(5, 0.0)), moment(NOW))
    assert isinstance(decision, Defer)
    assert decision == Defer(Reason.LOST_WHILE_BUSY, messages.lost_while_busy("gpu-0", None))
