from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import (
    CreatePod,
    DeletePod,
    DeleteRecord,
    DrainNodes,
    RemovalCause,
    ResumeNodes,
    UndrainNodes,
    WriteNodes,
    WriteReservation,
)
from slurm_operator.controllers.nodeset.decide.deletion import confirm
from slurm_operator.controllers.nodeset.decide.name_conflicts import claimants, name_conflict, neighbours
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.objects.node_fit import node_fit
from tests.support.simulation.kubernetes import NAMESPACE, UID, make_node, make_nodeset
from tests.support.simulation.observations import observe, pod, shown
from tests.support.slurm.views import node, view
from tests.unit.controllers.nodeset.decide.test_deletion import LONG_GONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeset.decide.name_conflicts import Neighbour
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.plan import Plan

TO_SLURM = (DrainNodes, UndrainNodes, ResumeNodes, WriteNodes, DeleteRecord, WriteReservation)
GUARD = (wellknown.FINALIZER_DRAIN,)


def nodeset(name: str = "gpu", born: int = 5, *, leaving: bool = False, **spec: Any) -> NodeSet:
    """Return a NodeSet; the one called gpu is the one that is looked at."""
    made = make_nodeset(finalizers=GUARD, deleting=leaving, **spec)
    uid = UID if name == "gpu" else f"uid-{name}"
    moment = f"2026-01-01T00:00:{born:02}Z"
    metadata = msgspec.convert(
        msgspec.to_builtins(made.metadata) | {"name": name, "uid": uid, "creationTimestamp": moment},
        type(made.metadata),
    )
    return msgspec.structs.replace(made, metadata=metadata)


def beside(mine: NodeSet, *others: NodeSet) -> tuple[Neighbour, ...]:
    return neighbours(mine, [mine, *others], node_fit)


def observed(*pods: Any, mine: NodeSet, others: tuple[NodeSet, ...], **fields: Any) -> Observation:
    named: dict[str, set[str]] = {one.hostname: {UID} for one in pods}
    for name, owner in fields.pop("elsewhere", {}).items():
        named.setdefault(name, set()).add(f"uid-{owner}")
    name_holders = {name: frozenset(owners) for name, owners in named.items()}
    return observe(*pods, nodeset=mine, neighbours=beside(mine, *others), name_holders=name_holders, **fields)


def creates(decided: Plan) -> list[str]:
    return [one.name for one in decided.actions if isinstance(one, CreatePod)]


def degraded(seen: Observation) -> tuple[str, str]:
    found = {one.type: one for one in report(seen, plan(seen)).conditions}
    return found["Degraded"].reason, found["Degraded"].message


# ------------------------------------------------------------------------------------------------ making pods


def test_the_younger_nodeset_makes_no_worker_of_a_name_that_the_older_one_asks_for() -> None:
    """It makes the others, and says whose the name is, which field decides, and what to do."""
    mine = nodeset(replicas=3)
    other = nodeset("old", 1, replicas=2, template={"spec": {"hostname": "gpu-"}})
    seen = observed(mine=mine, others=(other,))
    assert creates(plan(seen)) == ["gpu-2"]
    reason, message = degraded(seen)
    assert reason == "NameTaken"
    assert message == messages.similar(messages.name_of_older("gpu-0", "old", "hostname"), 2)


def test_the_older_nodeset_goes_on() -> None:
    """Nothing that a younger NodeSet asks for keeps it from its workers."""
    mine = nodeset(replicas=2)
    other = nodeset("new", 9, replicas=2, template={"spec": {"hostname": "gpu-"}})
    assert creates(plan(observed(mine=mine, others=(other,)))) == ["gpu-0", "gpu-1"]


def test_of_the_same_age_the_first_by_name_is_the_older() -> None:
    """Somebody has to be, and always the same one."""
    prefix = {"spec": {"hostname": "node-"}}
    mine = nodeset(replicas=1, template=prefix)
    first, last = (nodeset(name, replicas=1, template=prefix) for name in ("alpha", "zeta"))
    assert creates(plan(observed(mine=mine, others=(first,)))) == []
    assert creates(plan(observed(mine=mine, others=(last,)))) == ["gpu-0"]


def test_a_worker_that_runs_keeps_its_name() -> None:
    """An older NodeSet does not take a name from a pod of a younger one: a job may be on it."""
    mine = nodeset(replicas=2)
    other = nodeset("new", 9, replicas=1, template={"spec": {"hostname": "gpu-"}})
    seen = observed(mine=mine, others=(other,), elsewhere={"gpu-0": "new"})
    assert creates(plan(seen)) == ["gpu-1"]
    assert degraded(seen) == ("NameTaken", messages.name_used_by("gpu-0", "new", "hostname"))


def test_a_nodeset_that_leaves_keeps_the_names_of_its_pods_only() -> None:
    """Its successor gets each name when the pod is gone."""
    mine = nodeset(replicas=2)
    other = nodeset("old", 1, leaving=True, replicas=2, template={"spec": {"hostname": "gpu-"}})
    seen = observed(mine=mine, others=(other,), elsewhere={"gpu-1": "old"})
    assert creates(plan(seen)) == ["gpu-0"]
    assert plan(seen).requeue is not None, "nobody calls when that pod is gone"


def test_two_nodesets_that_follow_the_same_nodes() -> None:
    """A Kubernetes node that matches both gets a worker of the older one."""
    mine = nodeset(scalingMode="DaemonSet")
    other = nodeset("old", 1, scalingMode="DaemonSet", template={"spec": {"nodeSelector": {"gpu": "yes"}}})
    kube_nodes = [make_node("node-0", labels={"gpu": "yes"}), make_node("node-1")]
    seen = observed(mine=mine, others=(other,), nodes={one.metadata.name: one for one in kube_nodes})
    decided = plan(seen)
    assert [one.node for one in decided.actions if isinstance(one, CreatePod)] == ["node-1"]
    assert decided.desired == 1
    assert degraded(seen) == ("NameTaken", messages.name_of_older("node-0", "old", "nodeSelector"))


def test_a_number_and_a_node_of_one_name() -> None:
    """A numbered worker is not made under the name of a Kubernetes node that has a worker of its own."""
    mine = nodeset(replicas=2)
    other = nodeset("old", 1, scalingMode="DaemonSet")
    seen = observed(mine=mine, others=(other,), nodes={"gpu-1": make_node("gpu-1")})
    assert creates(plan(seen)) == ["gpu-0"]


def test_on_the_network_of_its_node_a_worker_is_made_whatever_others_are_called() -> None:
    """Its name in Slurm will be that of the Kubernetes node, not the one with its number."""
    mine = nodeset(replicas=1, template={"spec": {"hostNetwork": True}})
    other = nodeset("old", 1, replicas=1, template={"spec": {"hostname": "gpu-"}})
    assert creates(plan(observed(mine=mine, others=(other,)))) == ["gpu-0"]


def test_a_name_that_is_given_up_has_heirs() -> None:
    """Those NodeSets that ask for it, by number or by Kubernetes node, and that stay."""
    kube_node = make_node("gpu-1")
    asking = [nodeset("one", replicas=2, template={"spec": {"hostname": "gpu-"}}), nodeset(replicas=3)]
    follows = nodeset("follows", scalingMode="DaemonSet")
    others = [nodeset("few", replicas=1), nodeset("leaves", leaving=True, scalingMode="DaemonSet")]
    assert claimants([*others, *asking], node_fit, "gpu-1", None) == asking
    assert claimants([*others, follows], node_fit, "gpu-1", kube_node) == [follows]


def test_without_neighbours_every_name_is_free() -> None:
    """A NodeSet is not its own neighbour."""
    mine = nodeset(replicas=1)
    assert beside(mine) == ()
    assert name_conflict(observed(mine=mine, others=()), "gpu-0") is None


# ------------------------------------------------------------------------------------------------ having pods


def both_have(number: int = 0, **fields: Any) -> Observation:
    """Return what a younger NodeSet sees that has a worker of a name that a worker of the older one has."""
    mine = nodeset(replicas=fields.pop("replicas", 1), **fields.pop("spec", {}))
    other = nodeset("old", 1, replicas=1, template={"spec": {"hostname": "gpu-"}})
    return observed(pod(number), mine=mine, others=(other,), elsewhere={f"gpu-{number}": "old"}, **fields)


def test_nothing_is_done_to_a_worker_whose_name_an_older_nodeset_has() -> None:
    """Its pod stays, even if Slurm calls the node drained: that may be about the other one."""
    for state in (("IDLE", "DRAIN"), ("IDLE",), ("DOWN", "NOT_RESPONDING")):
        seen = both_have(replicas=0, slurm=(node("gpu-0", *state),))
        decided = plan(seen)
        assert not [one for one in decided.actions if isinstance(one, (DeletePod, *TO_SLURM))]
        assert [one.wait.reason for one in decided.blocked] == [Reason.NAME_TAKEN]
        assert degraded(seen) == ("NameTaken", messages.name_conflict("gpu-0", "old", "hostname"))


def test_a_worker_whose_name_is_shared_is_not_registered_again() -> None:
    """That Slurm does not list the node is no reason to replace it: nobody can tell whose it would be."""
    known = pod(0, conditions=shown("Idle"))
    alone = observed(known, mine=nodeset(replicas=1), others=(), view=view(**LONG_GONE))
    assert [*plan(alone).going.values()] == [RemovalCause.REGISTRATION]
    decided = plan(both_have(view=view(**LONG_GONE)))
    assert decided.going == {}
    assert decided.blocked == ()


def test_a_deletion_is_not_confirmed_when_an_older_nodeset_has_got_the_name() -> None:
    """What was decided before the other worker was seen is decided again."""
    mine = nodeset(replicas=0)
    before = observed(pod(0), mine=mine, others=(), slurm=(node("gpu-0", "IDLE", "DRAIN"),))
    deletions = tuple(one for one in plan(before).actions if isinstance(one, DeletePod))
    assert confirm(before, deletions) == deletions != ()
    assert confirm(both_have(replicas=0, slurm=(node("gpu-0", "IDLE", "DRAIN"),)), deletions) == ()


def test_the_older_of_two_workers_is_looked_after_as_ever() -> None:
    """That a younger NodeSet has a worker of the name, too, is the younger one's trouble."""
    mine = nodeset(replicas=0)
    other = nodeset("new", 9, replicas=1, template={"spec": {"hostname": "gpu-"}})
    seen = observed(
        pod(0), mine=mine, others=(other,), elsewhere={"gpu-0": "new"}, slurm=(node("gpu-0", "IDLE"),)
    )
    assert [one.names for one in plan(seen).actions if isinstance(one, DrainNodes)] == [("gpu-0",)]


def test_a_record_is_not_deleted_while_another_nodeset_has_a_worker_of_its_name() -> None:
    """The comment may still be the former worker's when the next one is there."""
    mine = nodeset(pruneSlurmNodeRecords="ScaledIn", replicas=0)
    comment = (
        f'{{"namespace":"{NAMESPACE}","podName":"gpu-7","nodeSetName":"gpu","nodeSetUID":"{UID}","node":"n"}}'
    )
    record = node("gpu-7", "DOWN", "NOT_RESPONDING", comment=comment)
    other = nodeset("new", 9, replicas=1)
    alone = observed(mine=mine, others=(other,), slurm=(record,))
    assert [one.name for one in plan(alone).actions if isinstance(one, DeleteRecord)] == ["gpu-7"]
    seen = observed(mine=mine, others=(other,), slurm=(record,), elsewhere={"gpu-7": "new"})
    assert not [one for one in plan(seen).actions if isinstance(one, DeleteRecord)]


# ------------------------------------------------------------------------------------------- whatever happens

PREFIXES = ("x-", "y-", "x-1")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 2)),
        st.tuples(st.just("scale"), st.integers(0, 2), st.integers(0, 12)),
        st.tuples(st.just("rename"), st.integers(0, 2), st.sampled_from(PREFIXES)),
        st.tuples(st.just("replace"), st.integers(0, 2)),
        st.tuples(st.just("leave"), st.integers(0, 2)),
    ),
    max_size=25,
)


class Cluster:
    """Three NodeSets that make every worker that they may make, with a cache that shows all of them."""

    def __init__(self) -> None:
        self.changes: list[dict[str, Any]] = [
            {"replicas": 2, "template": {"spec": {"hostname": "x-"}}} for _ in range(3)
        ]
        self.leaving: set[int] = set()
        self.pods: dict[tuple[int, int], str] = {}
        """The names in Slurm, by NodeSet and number."""

    def nodesets(self) -> list[NodeSet]:
        names = ("gpu", "one", "two")
        return [
            nodeset(name, number, leaving=number in self.leaving, **self.changes[number])
            for number, name in enumerate(names)
        ]

    def step(self, what: str, number: int, value: Any = None) -> None:
        mine = [key for key in self.pods if key[0] == number]
        if what == "pass":
            self.reconcile(number)
        elif what == "scale":
            self.changes[number] |= {"replicas": value}
            self.remove(key for key in mine if key[1] >= value)
        elif what == "rename":
            self.changes[number] |= {"template": {"spec": {"hostname": value}}}
        elif what == "replace":
            self.remove(mine)
        else:
            self.leaving.add(number)
            self.remove(mine[:1])

    def reconcile(self, number: int) -> None:
        everybody = self.nodesets()
        me = everybody[number]
        name_holders: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
        for (owner, _), name in self.pods.items():
            name_holders[name] |= {everybody[owner].metadata.uid}
        seen = observe(nodeset=me, neighbours=neighbours(me, everybody, node_fit), name_holders=name_holders)
        for ordinal in range(0 if me.deleting else me.spec.replicas):
            name = me.pod_hostname(ordinal)
            if (number, ordinal) not in self.pods and name_conflict(seen, name) is None:
                self.pods[number, ordinal] = name

    def remove(self, keys: Iterable[tuple[int, int]]) -> None:
        for key in [*keys]:
            self.pods.pop(key, None)


@given(STEPS)
def test_two_workers_never_have_one_name_and_no_name_is_left_unused(steps: list[tuple[Any, ...]]) -> None:
    """However NodeSets scale, change their names and leave, each name that is asked for gets one worker."""
    cluster = Cluster()
    for step in steps:
        cluster.step(*step)
        names = [*cluster.pods.values()]
        assert len(names) == len({*names})
    for number in range(3):
        cluster.step("replace", number)
    for number in (2, 0, 1, 2, 0, 1):
        cluster.step("pass", number)
    wanted = {
        one.pod_hostname(ordinal)
        for one in cluster.nodesets()
        if not one.deleting
        for ordinal in range(one.spec.replicas)
    }
    assert {*cluster.pods.values()} == wanted
