"""Which jobs are asked about while nodes drain, and when their end is a reason to list the nodes."""

from __future__ import annotations

from slurm_operator.slurm.decide.job_ends import MOST_ASKED, JobEnds
from slurm_operator.slurm.decide.poll_schedule import WatchTiming
from slurm_operator.slurm.model.jobs import NodeJobs

TIMING = WatchTiming(states=1.0, states_pause=60.0, cost=10.0)


def on(**nodes: tuple[int, ...]) -> dict[str, NodeJobs]:
    """Return what a list of jobs has on each node."""
    return {name: NodeJobs(jobs, 0.0) for name, jobs in nodes.items()}


def watching(draining: list[str], jobs: dict[str, NodeJobs]) -> JobEnds:
    ends = JobEnds(TIMING)
    ends.watch(draining, jobs)
    return ends


def test_at_rest_nothing_is_asked() -> None:
    """Jobs on nodes that do not drain are nothing to ask about."""
    ends = watching([], on(n1=(1,), n2=(2,)))
    assert ends.next_question(100.0) is None
    assert not ends.seen(100.0)


def test_only_jobs_on_draining_nodes_are_asked_about() -> None:
    """Each job is asked about once, at once, though it is on several draining nodes."""
    ends = watching(["n1", "n2"], on(n1=(2, 1), n2=(2,), n3=(3,)))
    assert ends.next_question(100.0) == 100.0
    assert ends.asked == (1, 2)
    assert ends.seen(100.0)


def test_a_node_is_free_when_all_its_jobs_have_ended() -> None:
    """One of two jobs is no reason to list; the second is, and then nothing more is asked."""
    ends = watching(["n1"], on(n1=(1, 2)))
    found = []
    for unfinished, moment in (({2}, 100.0), ((), 101.0)):
        ends.answered(unfinished, moment, moment)
        found.append((ends.freed, ends.asked, ends.next_question(moment)))
    assert found == [(False, (2,), 101.0), (True, (), None)]


def test_a_job_that_ended_is_not_asked_about_again() -> None:
    """If the node is not drained after all, something else is on it: it is polled as without states."""
    jobs = on(n1=(1,), n2=(2,))
    ends = watching(["n1", "n2"], jobs)
    ends.answered({2}, 100.0, 100.0)
    ends.freed = False
    found = []
    for draining in (["n1", "n2"], ["n2"], ["n1", "n2"]):
        ends.watch(draining, jobs)
        found.append((ends.asked, ends.seen(101.0), ends.freed))
    assert found == [((2,), False, False), ((2,), True, False), ((1, 2), True, False)]


def test_a_job_that_the_list_of_jobs_has_no_more_has_ended() -> None:
    """It ended after the nodes were listed and before the jobs were: the nodes are listed again, once."""
    ends = watching(["n1", "n2"], on(n1=(1,), n2=(2,)))
    ends.watch(["n1", "n2"], on(n2=(2,)))
    assert ends.freed
    ends.freed = False
    ends.watch(["n1", "n2"], on(n2=(2,)))
    assert not ends.freed
    assert not ends.seen(100.0)


def test_a_node_without_a_known_job_is_not_seen() -> None:
    """A job that started after the last list of jobs cannot be asked about."""
    ends = watching(["n1", "n2"], on(n1=(1,)))
    assert not ends.seen(100.0)
    assert ends.asked == (1,)


def test_no_more_jobs_are_asked_about_than_fit() -> None:
    """The nodes beyond are polled as without states."""
    jobs = on(big=(*range(MOST_ASKED),), more=(MOST_ASKED,), same=(0,))
    ends = watching(["big", "more", "same"], jobs)
    assert len(ends.asked) == MOST_ASKED
    assert not ends.seen(100.0)
    ends.watch(["big", "same"], jobs)
    assert ends.seen(100.0)


def test_states_that_take_long_are_asked_for_less_often() -> None:
    """They take a tenth of slurmrestd's time at most, and are asked for each second at most."""
    ends = watching(["n1"], on(n1=(1,)))
    ends.answered({1}, 100.0, 100.01)
    assert ends.next_question(100.5) == 101.0
    ends.answered({1}, 101.0, 101.5)
    assert ends.next_question(102.0) == 106.0


def test_after_a_failure_it_goes_on_without_states() -> None:
    """Nothing is asked for a minute, and no end of a job is seen meanwhile; then it is tried again."""
    ends = watching(["n1"], on(n1=(1,)))
    ends.failed(100.0)
    assert not ends.seen(159.0)
    assert ends.next_question(101.0) == 160.0
    assert ends.seen(160.0)
