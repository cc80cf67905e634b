"""The memory of decisions: what is kept, what is counted, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import actions as do
from slurm_operator.controllers.nodeset.decide.actions import Blocked, Defer, RemovalCause
from slurm_operator.controllers.nodeset.decide.observation import FailedResume
from slurm_operator.controllers.nodeset.decide.plan import Plan
from slurm_operator.kube.decide.event_series import Occurrence
from slurm_operator.kube.models.meta import ObjectReference
from slurm_operator.status_api.decision_log import DecisionLog, Remark, Subject
from tests.support.simulation.observations import observe, pod

START = datetime(2026, 11, 16, 12, tzinfo=UTC)
SEEN = observe(pod(0), pod(1))
KEY = SEEN.nodeset.key
RUNNING = Blocked("gpu-1", "gpu-1", RemovalCause.SCALE_IN, Defer(Reason.JOBS_RUNNING, "job 7 is on it"))


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def subject(name: str, namespace: str = "slurm") -> Subject:
    return Subject("Pod", namespace, name)


def note(log: DecisionLog, name: str, why: str = "because", namespace: str = "slurm") -> None:
    log._note(subject(name, namespace), "workers", Remark("decision", "DeletePod", why), log._clock())


def test_a_repeated_entry_is_counted_not_added() -> None:
    """The same decision about the same object again is one entry with a count and two times."""
    clock = Clock()
    log = DecisionLog(clock)
    note(log, "a")
    clock.now += timedelta(seconds=9)
    note(log, "a")
    (entry,) = log.of(subject("a"))
    assert (entry.count, entry.first, entry.at) == (2, clock.now - timedelta(seconds=9), clock.now)
    note(log, "a", "another reason")
    assert [one.why for one in log.of(subject("a"))] == ["another reason", "because"]


def test_when_a_late_node_is_resumed_is_remembered() -> None:
    """After the third failure in a row the operator waits four seconds."""
    log = DecisionLog()
    log.planned(replace(SEEN, resumes={"gpu-1": FailedResume(3, SEEN.now - 1, 5.0)}), Plan())
    (late,) = log.plan(KEY).late.values()
    assert late.times == 3
    assert late.resumed_at is not None
    assert late.resumed_at == SEEN.wall + timedelta(seconds=3)
    assert log.plan(KEY).late.keys() == {"gpu-1"}


def test_memory_is_bounded_for_each_object_and_in_all() -> None:
    """The oldest entries go first, also those of other objects, and no object is left without entries."""
    log = DecisionLog(most_of_one=3, most_in_all=5)
    for number in range(10):
        note(log, "a", str(number))
    assert [one.why for one in log.of(subject("a"))] == ["9", "8", "7"]
    for number in range(4):
        note(log, f"b-{number}")
    assert len(log) == 5
    assert [one.why for one in log.of(subject("a"))] == ["9"]
    for number in range(5):
        note(log, f"c-{number}")
    assert log.of(subject("a")) == []
    assert len(log._of_subject) == 5


def test_the_newest_come_first_and_only_from_namespaces_that_may_be_seen() -> None:
    """Entries of other namespaces are left out, and a version tells what is new."""
    log = DecisionLog()
    note(log, "a", namespace="one")
    note(log, "b", namespace="two")
    version = log.version
    note(log, "c", namespace="one")
    note(log, "a", namespace="one")
    assert [row.object.name for row in log.newest(10)] == ["a", "c", "b"]
    assert [row.object.name for row in log.newest(10, {"two"})] == ["b"]
    assert [row.object.name for row in log.newest(10, None, version)] == ["a", "c"]
    assert [row.object.name for row in log.newest(1, {"one"})] == ["a"]


def test_a_block_is_remembered_since_when_it_began() -> None:
    """While reason and cause stay the same the time stays, whatever the message; another reason is new."""
    clock = Clock()
    log = DecisionLog(clock)
    log.planned(SEEN, Plan(blocked=(RUNNING,)))
    clock.now += timedelta(minutes=1)
    log.planned(
        SEEN, Plan(blocked=(replace(RUNNING, wait=Defer(Reason.JOBS_RUNNING, "jobs 7, 8 are on it")),))
    )
    assert log.plan(KEY).blocked["gpu-1"][1] == START
    log.planned(SEEN, Plan(blocked=(replace(RUNNING, wait=Defer(Reason.SLURM_UNREACHABLE, "no answer")),)))
    assert log.plan(KEY).blocked["gpu-1"][1] == clock.now
    told = [(row.type, row.what, row.why) for row in log.of(subject("gpu-1", KEY.namespace))]
    assert told == [
        ("blocked", "ScaleInBlocked", "SlurmUnreachable: no answer"),
        ("blocked", "ScaleInBlocked", "JobsRunning: jobs 7, 8 are on it"),
        ("blocked", "ScaleInBlocked", "JobsRunning: job 7 is on it"),
    ]
    log.planned(SEEN, Plan())
    assert log.plan(KEY).blocked == {}


def test_an_unchanged_block_adds_nothing() -> None:
    """A plan that blocks the same as the one before leaves no trace of itself."""
    log = DecisionLog()
    log.planned(SEEN, Plan(blocked=(RUNNING,)))
    version = log.version
    log.planned(SEEN, Plan(blocked=(RUNNING,)))
    assert log.version == version


def test_actions_are_told_of_the_pod_and_of_the_nodeset() -> None:
    """A deletion and a drain appear on the pod and, with its name, on the NodeSet; conditions do not."""
    log = DecisionLog()
    actions = (
        do.DeletePod("gpu-1", "uid-1", "gpu-1", RemovalCause.SCALE_IN, "Slurm node gpu-1 is drained"),
        do.DrainNodes("NodeSet (slurm/gpu) scales in", ("gpu-0",)),
        do.PatchPodStatus("gpu-0", "uid-0"),
    )
    log.planned(SEEN, Plan(actions))
    namespace, name = KEY
    assert [(row.what, row.why) for row in log.of(subject("gpu-1", namespace))] == [
        ("DeletePod", "ScaleIn: Slurm node gpu-1 is drained")
    ]
    assert [(row.what, row.why) for row in log.of(subject("gpu-0", namespace))] == [
        ("DrainNode", "NodeSet (slurm/gpu) scales in")
    ]
    whole = [(row.what, row.why) for row in log.of(Subject("NodeSet", namespace, name))]
    assert ("DeletePod", "gpu-1: ScaleIn: Slurm node gpu-1 is drained") in whole
    assert ("DrainNode", "gpu-0: NodeSet (slurm/gpu) scales in") in whole
    assert len(whole) == 2


def test_every_action_of_a_plan_has_words() -> None:
    """Each kind of action is told, but for conditions, comments and owners of claims."""
    silent = {do.PatchPodStatus, do.WriteNodes, do.OwnClaim}
    told = {
        *(do.AddFinalizer, do.RemoveFinalizer, do.RecordExternal, do.CreatePod, do.PatchPod, do.DeletePod),
        *(do.ReleasePod, do.DrainNodes, do.UndrainNodes, do.ResumeNodes, do.DeleteRecord, do.RestoreClaims),
        *(do.WriteReservation, do.DeleteReservation, do.ResumeCloudNodes, do.PowerUpNodes, do.CreateRecords),
    }
    assert {*do.Action.__args__} == told | silent


def test_an_event_is_told_of_its_object_and_of_the_related_pod() -> None:
    """Events of every controller are part of the history."""
    log = DecisionLog()
    log.reported(
        Occurrence(
            regarding=ObjectReference(kind="NodeSet", namespace="slurm", name="gpu"),
            type="Warning",
            reason="FailedCreate",
            action="Create",
            note="no quota",
            time=START,
            related=ObjectReference(kind="Pod", namespace="slurm", name="gpu-3"),
        )
    )
    assert [(row.object.kind, row.what, row.warning) for row in log.newest(9)] == [
        ("Pod", "FailedCreate", True),
        ("NodeSet", "FailedCreate", True),
    ]
    assert log.of(subject("gpu-3"))[0].nodeset == "gpu"


def test_a_nodeset_that_is_gone_leaves_no_plan() -> None:
    """The last plan goes with the NodeSet, and what was decided stays."""
    log = DecisionLog()
    log.planned(SEEN, Plan(blocked=(RUNNING,)))
    log.forgotten(KEY)
    assert log.plan(KEY).blocked == {}
    assert log.of(subject("gpu-1", KEY.namespace))


def test_of_one_plan_only_some_entries_are_remembered() -> None:
    """A plan that blocks thousands of workers is remembered as such, without an entry for each of them."""
    log = DecisionLog()
    many = tuple(replace(RUNNING, pod=f"gpu-{number}") for number in range(3000))
    log.planned(SEEN, Plan(blocked=many))
    assert len(log) == 1000
    assert len(log.plan(KEY).blocked) == 3000
