from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import RemovalCause
from tests.support.simulation.kubernetes import make_node, make_nodeset
from tests.support.simulation.observations import observe, pod, reported
from tests.support.slurm.views import NOW, node

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.status import Report


GUARDED = (wellknown.FINALIZER_DRAIN,)


def says(told: Report, kind: str) -> tuple[str, str]:
    found = find_condition(told.conditions, kind)
    assert found is not None
    assert found.message
    return found.status, found.reason


def test_a_settled_set_is_ready_and_nothing_else() -> None:
    """All there, nothing to do, nothing wrong."""
    told = reported(observe(pod(0), slurm=(node("gpu-0"),)))
    assert says(told, "Ready") == ("True", "AllAvailable")
    assert says(told, "Progressing") == ("False", "Settled")
    assert says(told, "Degraded") == ("False", "AsExpected")


def test_a_drain_of_somebody_else_is_seen() -> None:
    """A node that a person has drained is nothing to do for the operator, and yet the status says so."""
    told = reported(observe(pod(0), slurm=(node("gpu-0", "IDLE", "DRAIN", reason="memtest by ann"),)))
    assert says(told, "Progressing") == ("False", "Settled")
    found = find_condition(told.conditions, "Progressing")
    assert found is not None
    foreign = messages.foreign_drain("gpu-0", "memtest by ann", rejected=False)
    assert found.message.endswith(f"; {messages.drained_by_others([foreign])}")


def test_nobody_is_ready_while_nobody_is_counted() -> None:
    """Between a deletion and the cache that shows it, pods still pending removal are not forgotten."""
    nodeset = make_nodeset(replicas=1, finalizers=GUARDED)
    told = reported(observe(pod(0), pod(1), slurm=(node("gpu-0"),), nodeset=nodeset, settled=False))
    assert says(told, "Ready") == ("False", "CacheBehind")


def test_counts() -> None:
    """Every number of the status means what the API says."""
    pods = [
        pod(0),
        pod(1, revision="r0"),
        pod(2, ready_since=None),
        pod(3, deleting=True),
        pod(4, ready_since=NOW - 5),
    ]
    slurm = (
        node("gpu-0"),
        node("gpu-1", "MIXED", "DRAIN", alloc=1),
        node("gpu-2", "DOWN"),
        node("gpu-3", "ALLOCATED", alloc=2),
        node("other"),
    )
    nodeset = make_nodeset(replicas=6, minReadySeconds=30, finalizers=GUARDED)
    fields = reported(observe(*pods, slurm=slurm, nodeset=nodeset)).fields
    expected = {
        "replicas": 5,
        "updatedReplicas": 3,
        "readyReplicas": 4,
        "availableReplicas": 2,
        "unavailableReplicas": 4,
        "desired": 6,
        "slurmIdle": 1,
        "slurmAllocated": 2,
        "slurmDown": 1,
        "slurmDrain": 1,
        "observedGeneration": 1,
        "nodeSetHash": "r1",
        "selector": "app.kubernetes.io/instance=gpu,app.kubernetes.io/name=slurmd",
    }
    assert fields == expected


def test_numbers_from_slurm_stay_while_nobody_can_ask() -> None:
    """An outage does not make idle nodes disappear."""
    nodeset = make_nodeset(replicas=1, finalizers=GUARDED)
    status = msgspec.structs.replace(nodeset.status, slurm_idle=7)
    nodeset = msgspec.structs.replace(nodeset, status=status)
    told = reported(observe(pod(0), nodeset=nodeset, view=None))
    assert told.fields["slurmIdle"] == 7
    assert says(told, "Degraded") == ("True", "NoConnection")


def test_without_workers_no_node_is_counted_whoever_can_be_asked() -> None:
    """No requeue is asked for because of nodes that are not there."""
    nodeset = make_nodeset(replicas=0, finalizers=GUARDED)
    status = msgspec.structs.replace(nodeset.status, slurm_idle=7)
    told = reported(observe(nodeset=msgspec.structs.replace(nodeset, status=status), view=None))
    assert told.fields["slurmIdle"] == 0


def test_what_waits_is_counted_by_its_reason() -> None:
    """The NodeSet shows what it waits for, and how often."""
    nodeset = make_nodeset(replicas=0, finalizers=GUARDED)
    slurm = (
        node("gpu-0", "MIXED", "DRAIN", alloc=1, reason="slurm-operator: x"),
        node("gpu-1", "MIXED", "DRAIN", alloc=1, reason="slurm-operator: x"),
        node("gpu-2"),
    )
    told = reported(observe(pod(0), pod(1), pod(2), slurm=slurm, nodeset=nodeset))
    found = find_condition(told.conditions, "Progressing")
    assert found is not None
    assert (found.status, found.reason) == ("True", "JobsRunning")
    waiting = messages.waiting({Reason.DRAIN_PENDING: 1, Reason.JOBS_RUNNING: 2})
    assert found.message == f"{messages.removing_for(RemovalCause.SCALE_IN, 3)}; {waiting}"
    assert says(told, "Ready") == ("False", "Removing")
    assert says(told, "Degraded") == ("False", "AsExpected")


def test_the_same_state_gives_the_same_status_later() -> None:
    """No sentence has an age in it."""
    nodeset = make_nodeset(replicas=0, finalizers=GUARDED)
    stale: Any = observe(pod(0), slurm=(node("gpu-0"),), nodeset=nodeset, now=NOW + 100)
    later: Any = observe(pod(0), slurm=(node("gpu-0"),), nodeset=nodeset, now=NOW + 200)
    assert reported(stale) == reported(later)


def test_pins_follow_the_pods_and_forget_nodes_that_are_gone() -> None:
    """ordinalToNode has where workers run, and for others where they ran, while that node is there."""
    nodeset = make_nodeset(replicas=2, pinToNode=True, finalizers=GUARDED)
    status = msgspec.structs.replace(nodeset.status, ordinal_to_node={"0": "old", "1": "kept", "2": "gone"})
    nodeset = msgspec.structs.replace(nodeset, status=status)
    nodes = {name: make_node(name) for name in ("node-0", "old", "kept")}
    told = reported(observe(pod(0), nodeset=nodeset, nodes=nodes))
    assert told.fields["ordinalToNode"] == {"0": "node-0", "1": "kept"}


def test_a_node_that_is_down_under_a_running_pod_is_told() -> None:
    """Kubernetes alone would call this healthy."""
    assert says(reported(observe(pod(0), slurm=(node("gpu-0", "DOWN"),))), "Degraded") == (
        "True",
        "NodesDown",
    )


def test_a_registration_that_slurm_refuses_is_told() -> None:
    """A worker that promises more than it has takes no job; the status says so, in words of Slurm."""
    reason = "gres/gpu count reported lower than configured (0 < 4)"
    refused = node("gpu-0", "IDLE", "DRAIN", "INVALID_REG", reason=reason)
    told = reported(observe(pod(0), slurm=(refused,)))
    assert says(told, "Degraded") == ("True", "NodesRefused")
    degraded = find_condition(told.conditions, "Degraded")
    progressing = find_condition(told.conditions, "Progressing")
    assert degraded is not None
    assert progressing is not None
    assert degraded.message == messages.nodes_refused(1, "gpu-0", reason)
    assert messages.foreign_drain("gpu-0", reason, rejected=True) in progressing.message
