from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import (
    Action,
    CreatePod,
    DeleteRecord,
    DeleteReservation,
    DrainNodes,
)
from slurm_operator.controllers.nodeset.decide.observation import FailedResume
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.controllers.nodeset.run.nodeset_metrics import (
    DECISIONS,
    NodeSetCollector,
    decisions,
    measure,
)
from slurm_operator.kube.models.meta import Condition, Key
from tests.support.simulation.kubernetes import make_nodeset, moment
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, node, view

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation

KEY = Key("slurm", "gpu")
LABELS = {"cluster": "slurm/slurm", "nodeset": "gpu"}
CORDONED = {wellknown.ANNOTATION_POD_CORDON: "true", wellknown.ANNOTATION_POD_CORDON_BY: "ScaleIn"}


def blocked(since: float) -> dict[str, Condition]:
    """Return the condition of a pod that has been blocked since a moment."""
    kind = wellknown.POD_CONDITION_SAFE
    return {
        kind: Condition(
            type=kind,
            status="False",
            reason="JobsRunning",
            last_transition_time=moment(since),
            message="jobs",
        )
    }


def creating(*names: str) -> Plan:
    return Plan(actions=tuple(CreatePod(name) for name in names))


def exposed(collector: NodeSetCollector, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry.get_sample_value(f"slurm_operator_nodeset_{name}", LABELS | labels)


def test_a_settled_nodeset_in_numbers() -> None:
    """All workers are ready and protected, and nothing is blocked, draining or decided."""
    seen = observe(pod(0), pod(1, protected=False), slurm=(node("gpu-0"), node("gpu-1")))
    found = measure(seen, Plan(desired=2))
    assert (found.desired, found.ready, found.protected, found.draining) == (2, 2, 1, 0)
    assert (found.blocked, found.blocked_since) == ({}, None)


def test_a_blocked_scale_in_in_numbers() -> None:
    """A worker with a running job is draining and blocked, since the moment that its condition names."""
    seen = observe(
        pod(1, annotations=CORDONED, conditions=blocked(NOW - 60)),
        slurm=(node("gpu-1", "MIXED", "DRAIN", alloc=1, reason="slurm-operator: x"),),
        nodeset=make_nodeset(replicas=0, finalizers=(wellknown.FINALIZER_DRAIN,)),
    )
    found = measure(seen, plan(seen))
    assert (found.desired, found.draining) == (0, 1)
    assert found.blocked == {Reason.JOBS_RUNNING.value: 1}
    assert found.blocked_since == moment(NOW - 60)


def test_a_removal_that_was_just_blocked_has_age_zero() -> None:
    """Before the condition of the pod is written, the removal is blocked since now."""
    seen = observe(
        pod(1),
        slurm=(node("gpu-1", "MIXED", alloc=1),),
        nodeset=make_nodeset(replicas=0, finalizers=(wellknown.FINALIZER_DRAIN,)),
    )
    decided = plan(seen)
    assert measure(seen, decided).blocked_since == seen.wall
    assert ("drain", "gpu-1") in {*decisions(decided)}


def test_the_age_of_a_blocked_removal_grows_between_reconciles() -> None:
    """A scrape computes the age; without a blocked removal it is 0."""
    clock = [moment(NOW)]
    collector = NodeSetCollector(lambda: clock[0])
    collector.record(KEY, observe(), Plan())
    assert exposed(collector, "oldest_blocked_seconds") == 0
    since = moment(NOW - 60)
    seen = observe(
        pod(1, annotations=CORDONED, conditions=blocked(NOW - 60)),
        slurm=(node("gpu-1", "MIXED", "DRAIN", alloc=1, reason="slurm-operator: x"),),
        nodeset=make_nodeset(replicas=0, finalizers=(wellknown.FINALIZER_DRAIN,)),
    )
    collector.record(KEY, seen, plan(seen))
    clock[0] = since + timedelta(seconds=90)
    assert exposed(collector, "oldest_blocked_seconds") == 90
    clock[0] = since - timedelta(seconds=5)
    assert exposed(collector, "oldest_blocked_seconds") == 0


def test_a_decision_counts_once() -> None:
    """A decision that is still to be carried out is no new one; made again later, it is."""
    collector = NodeSetCollector()
    for decided in (creating("a"), creating("a", "b"), Plan(), creating("a")):
        collector.record(KEY, observe(), decided)
    assert exposed(collector, "decisions_total", kind="create") == 3
    assert exposed(collector, "decisions_total", kind="delete") == 0


def test_series_go_with_the_nodeset() -> None:
    """A NodeSet that is gone leaves no series, and others keep theirs."""
    collector, other = NodeSetCollector(), Key("slurm", "other")
    collector.record(KEY, observe(), creating("a"))
    collector.record(other, observe(), Plan())
    collector.forget(KEY)
    left = {sample.labels["nodeset"] for family in collector.collect() for sample in family.samples}
    assert left == {"other"}
    collector.record(KEY, observe(), Plan())
    assert exposed(collector, "decisions_total", kind="create") == 0


def test_labels_are_bounded() -> None:
    """Reasons are those of conditions and decisions those of the table, whatever a plan has."""
    assert {*DECISIONS} <= {*get_args(Action)}
    collector = NodeSetCollector()
    collector.record(KEY, observe(), creating("x"))
    samples = [sample for family in collector.collect() for sample in family.samples]
    kinds = {sample.labels["kind"] for sample in samples if "kind" in sample.labels}
    assert kinds == {*DECISIONS.values()}


def test_each_decision_is_about_what_it_changes() -> None:
    """Nodes, pods and records are counted one by one."""
    decided = Plan(
        actions=(
            CreatePod("gpu-3"),
            DrainNodes("why", ("gpu-0", "gpu-1")),
            DeleteRecord("gpu-9"),
            DeleteReservation("maintenance"),
        )
    )
    assert {*decisions(decided)} == {
        ("create", "gpu-3"),
        ("drain", "gpu-0"),
        ("drain", "gpu-1"),
        ("delete_record", "gpu-9"),
        ("unreserve", ""),
    }


CLOUD = ("CLOUD", "DYNAMIC_NORM")
DOWN, COMING, UP = ("IDLE", *CLOUD, "POWERED_DOWN"), ("MIXED", *CLOUD, "POWERING_UP"), ("MIXED", *CLOUD)


def scaled(*states: tuple[str, ...], at: float = NOW, late: float | None = None) -> Observation:
    """Return an autoscaled NodeSet of two workers whose nodes are in these states; one may have failed."""
    nodes = tuple(node(f"gpu-{number}", *state) for number, state in enumerate(states))
    nodeset = make_nodeset(finalizers=(wellknown.FINALIZER_DRAIN,), autoscaling={"maxReplicas": 2})
    shown = view(*nodes, listed_at=at) if nodes else None
    failed = {} if late is None else {"gpu-0": FailedResume(1, at, late)}
    return observe(nodeset=nodeset, view=shown, now=at, wall=moment(at), resumes=failed)


def test_a_resume_is_measured_from_the_power_up_until_the_node_is_up() -> None:
    """It counts once; while Slurm cannot be queried it goes on, and what powers down again is no resume."""
    collector = NodeSetCollector()
    for seen in (
        scaled(DOWN, DOWN),
        scaled(COMING, COMING, at=NOW + 1),
        scaled(at=NOW + 20),
        scaled(UP, COMING, at=NOW + 5),
        scaled(UP, DOWN, at=NOW + 6),
        scaled(UP, DOWN, at=NOW + 7),
    ):
        collector.record(KEY, seen, plan(seen))
    assert exposed(collector, "resume_duration_seconds_count") == 1
    assert exposed(collector, "resume_duration_seconds_sum") == 4
    assert exposed(collector, "resume_duration_seconds_bucket", le="2.0") == 0
    assert exposed(collector, "resume_duration_seconds_bucket", le="5.0") == 1
    assert exposed(collector, "power_state_nodes", state="up") == 1
    assert exposed(collector, "power_state_nodes", state="powered_down") == 1
    assert exposed(collector, "power_state_nodes", state="powering_up") == 0


def test_each_failed_resume_counts_once() -> None:
    """A failure that is seen again is the same one; a later one of the same node is another."""
    collector = NodeSetCollector()
    for late in (None, 9.0, 9.0, None, 50.0, 60.0):
        collector.record(KEY, scaled(DOWN, DOWN, late=late), Plan())
    assert exposed(collector, "failed_resumes_total") == 3


def test_a_nodeset_that_slurm_does_not_scale_has_no_series_of_resumes() -> None:
    """They are gone when autoscaling is switched off."""
    collector = NodeSetCollector()
    collector.record(KEY, scaled(DOWN, DOWN), Plan())
    assert exposed(collector, "failed_resumes_total") == 0
    collector.record(KEY, observe(), Plan())
    for name in ("failed_resumes_total", "resume_duration_seconds_count"):
        assert exposed(collector, name) is None
    assert exposed(collector, "power_state_nodes", state="up") is None
