"""A small world in which a NodeSet lives, with everything that can go wrong in it.

The operator in it is the real deciding code: `plan` and `confirm`, the real beliefs about Slurm's lists, the
real expectations. Kubernetes and Slurm are `clustermodel` and `slurmmodel`. Whatever the operator sends is
checked against what really runs, not against what it could know.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset import actions
from slurm_operator.controllers.nodeset.decisions import Wait
from slurm_operator.controllers.nodeset.observation import Fate, Observation, Revision, read_worker
from slurm_operator.controllers.nodeset.plan import Plan, confirm, plan
from slurm_operator.kube.expectations import Expectations
from slurm_operator.kube.meta import Key
from slurm_operator.slurm.belief import Belief
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.jobs import JobBook
from slurm_operator.slurm.view import ClusterView
from slurm_operator.slurm.wishes import Drain, Undrain
from tests.unit.nodeset.clustermodel import (
    EPOCH,
    NAME,
    NAMESPACE,
    SimPod,
    make_node,
    make_nodeset,
    moment,
)
from tests.unit.nodeset.slurmmodel import Slurm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api.nodeset import NodeSet
    from slurm_operator.kube.models import Node, Pod
    from slurm_operator.slurm.wishes import Wish

KEY = Key(NAMESPACE, NAME)
NODES = tuple(f"node-{index}" for index in range(8))


class Operator:
    """What a process of the operator remembers, and loses when it ends."""

    def __init__(self, world: World) -> None:
        self.belief = Belief()
        self.book = JobBook()
        self.view = ClusterView()
        self.since = world.now
        self.written: dict[str, float] = {}
        self.expectations: Expectations[Key] = Expectations()
        self.cache: dict[str, Pod] = {}
        self.behind: list[tuple[str, Pod | None]] = []
        for pod in world.pods.values():
            self.cache[pod.name] = pod.show()


class World:
    """Everything there is."""

    def __init__(self, replicas: int = 3, strategy: str = "RollingUpdate") -> None:
        self.now = 1000.0
        self.slurm = Slurm()
        self.pods: dict[str, SimPod] = {}
        self.nodes: dict[str, Node] = {name: make_node(name) for name in NODES}
        self.replicas, self.strategy, self.mode = replicas, strategy, "StatefulSet"
        self.revision = 1
        self.finalizers: tuple[str, ...] = ()
        self.deleting = False
        self.connected = True
        self.lagging = False
        self.uids = 0
        self.writes = 0
        self.operator = Operator(self)

    # --- time

    def advance(self, seconds: float) -> None:
        """Move the clock; jobs end at their limit, also those that slurmctld has forgotten."""
        self.now += seconds
        self.slurm.end_overdue(self.now)

    def pass_time(self, seconds: float) -> None:
        """Move the clock, and let everybody but the operator do what is due."""
        self.advance(seconds)
        for pod in list(self.pods.values()):
            self._live(pod)
        self.poll()

    def _live(self, pod: SimPod) -> None:
        """Let scheduler, kubelet and slurmd do one step each."""
        if pod.deleting:
            self.slurm.unregister(pod.hostname, pod.uid)
            del self.pods[pod.name]
            self._tell(pod.name, None)
        elif not pod.node:
            used = {other.node for other in self.pods.values()}
            free = [
                name for name, node in self.nodes.items() if name not in used and not node.spec.unschedulable
            ]
            pod.node = pod.target or (free[0] if free else "")
            if pod.node:
                self.touch(pod)
        elif pod.phase == "Pending":
            pod.phase, pod.started = "Running", True
            self.touch(pod)
            self._register(pod)
        elif pod.phase == "Running" and not pod.registered:
            self._register(pod)
        elif pod.phase == "Running" and pod.ready_since is None:
            pod.ready_since = self.now
            self.touch(pod)

    def _register(self, pod: SimPod) -> None:
        # slurmd tries to register until it is heard; after that, never again.
        if self.slurm.up:
            self.slurm.register(pod.hostname, pod.uid)
            pod.registered = True

    def poll(self) -> None:
        """Let the watch list nodes and jobs, if it can."""
        operator, slurm = self.operator, self.slurm
        view = operator.view
        if not slurm.answers:
            operator.view = replace(view, failure=RestUnreachable("down"))
            return
        operator.belief.listed(slurm.listed(), self.now)
        operator.belief.uptime(self.now - slurm.started, self.now)
        census = operator.belief.census
        jobs = operator.book.listed(slurm.listed_jobs(EPOCH.timestamp()), self.now)
        operator.view = ClusterView(
            nodes=census.nodes,
            taken=census.taken,
            complete=census.complete,
            suspicion=census.suspicion,
            doubts=census.doubts,
            absent=census.absent,
            others=census.others,
            jobs=jobs,
            jobs_taken=self.now,
            reservations_taken=self.now,
            up_since=operator.belief.started,
            just_started=operator.belief.just_started(self.now),
        )

    # --- the cache

    def touch(self, pod: SimPod) -> None:
        pod.version += 1
        self._tell(pod.name, pod.show())

    def _tell(self, name: str, pod: Pod | None) -> None:
        self.operator.behind.append((name, pod))
        if not self.lagging:
            self.catch_up()

    def catch_up(self, events: float = math.inf) -> None:
        """Deliver what the watch of pods has held back."""
        operator = self.operator
        while operator.behind and events > 0:
            events -= 1
            name, pod = operator.behind.pop(0)
            old = operator.cache.pop(name, None)
            if pod is None:
                if old is not None:
                    operator.expectations.deletion_observed(KEY, old.metadata.uid)
                continue
            operator.cache[name] = pod
            operator.expectations.creation_observed(KEY, name, pod.metadata.uid)
            if pod.deleting:
                operator.expectations.deletion_observed(KEY, pod.metadata.uid)

    # --- the operator

    def nodeset(self) -> NodeSet:
        return make_nodeset(
            replicas=self.replicas,
            scalingMode=self.mode,
            updateStrategy={"type": self.strategy, "rollingUpdate": {"maxUnavailable": 1}},
            finalizers=self.finalizers,
            deleting=self.deleting,
        )

    def observe(self) -> Observation:
        operator, nodeset = self.operator, self.nodeset()
        current = f"r{self.revision}"
        return Observation(
            nodeset=nodeset,
            workers=tuple(read_worker(nodeset, pod) for pod in operator.cache.values()),
            revision=Revision(current, frozenset({current})),
            wall=moment(self.now),
            now=self.now,
            view=operator.view if self.connected else None,
            nodes=self.nodes,
            settled=operator.expectations.satisfied(KEY, self.now),
            since=operator.since,
            written=MappingProxyType(operator.written),
            controller=Fate.STAYS,
        )

    def reconcile(self, crash_after: int | None = None) -> Plan:
        """Look, decide, and do what was decided; die after so many writes if told to."""
        decided = plan(self.observe())
        for index, action in enumerate(decided.actions):
            if index == crash_after:
                self.crash()
                break
            self._do(action)
        return decided

    def crash(self) -> None:
        self.operator = Operator(self)

    def _do(self, action: actions.Action) -> None:  # noqa: C901, PLR0912 - one arm per word
        self.writes += 1
        match action:
            case actions.AddFinalizer(name):
                self.finalizers = (*self.finalizers, name)
            case actions.RemoveFinalizer(name):
                self.finalizers = tuple(one for one in self.finalizers if one != name)
            case actions.CreatePod():
                self._create(action)
            case actions.PatchPod():
                self._patch(action)
            case actions.PatchPodStatus(name, uid):
                pod = self.pods.get(name)
                if pod is not None and pod.uid == uid:
                    pod.conditions |= {one.type: one for one in action.set}
                    for kind in action.remove:
                        pod.conditions.pop(kind, None)
                    self.touch(pod)
            case actions.DeletePod():
                self._delete(action)
            case actions.DrainNodes(reason, some):
                self._write({name: Drain(reason) for name in some}, state=True)
            case actions.UndrainNodes(some):
                self._write({name: Undrain() for name in some}, state=True)
            case actions.WriteNodes(wishes):
                self._write(wishes, state=False)
            case actions.DeleteRecord(name):
                assert not self.slurm.records[name].persons, "a person's drain was forgotten"
                if self.slurm.answers:
                    self.slurm.records.pop(name, None)
            case _:
                raise AssertionError(f"nobody asked for {action}")

    def _write(self, wishes: Mapping[str, Wish], *, state: bool) -> None:
        for name, wish in wishes.items():
            if self.slurm.answers:
                self.slurm.write(name, wish)
            if state:
                self.operator.written[name] = self.now

    def _create(self, action: actions.CreatePod) -> None:
        if action.name in self.pods:
            return
        self.uids += 1
        nodeset = self.nodeset()
        pod = SimPod(
            name=action.name,
            uid=f"uid-{self.uids}",
            mode=self.mode,
            index="" if action.ordinal is None else nodeset.padded(action.ordinal),
            hostname=action.node if action.ordinal is None else nodeset.pod_hostname(action.ordinal),
            revision=f"r{self.revision}",
            created=self.now,
            target=action.node,
        )
        operator = self.operator
        operator.expectations.expect_creations(KEY, [pod.name], self.now)
        self.pods[pod.name] = pod
        operator.expectations.created(KEY, pod.name, pod.uid)
        self.touch(pod)

    def _patch(self, action: actions.PatchPod) -> None:
        pod = self.pods.get(action.name)
        if pod is None or pod.uid != action.uid or (action.version and action.version != str(pod.version)):
            return
        if wellknown.ANNOTATION_POD_CORDON in action.annotations:
            assert not pod.persons_cordon, f"a person's cordon of {pod.name} was touched"
        for target, changes in ((pod.labels, action.labels), (pod.annotations, action.annotations)):
            for key, value in changes.items():
                if value is None:
                    target.pop(key, None)
                else:
                    target[key] = value
        self.touch(pod)

    def _delete(self, action: actions.DeletePod) -> None:
        if not action.version:
            self.poll()
            if not self.slurm.answers or not confirm(self.observe(), (action,)):
                return
        pod = self.pods.get(action.name)
        self.operator.expectations.expect_deletions(KEY, [action.uid], self.now)
        if pod is None or pod.uid != action.uid or (action.version and action.version != str(pod.version)):
            self.operator.expectations.deletion_failed(KEY, action.uid)
            return
        killed = [job.job_id for job in self.slurm.work.values() if job.pod == pod.uid]
        assert not killed, f"jobs {killed} were killed with pod {pod.name} ({action.because})"
        pod.deleting = True
        self.touch(pod)

    # --- peace

    def heal(self) -> None:
        """Let all faults end, and all jobs."""
        self.slurm.up = self.slurm.reachable = self.connected = True
        self.slurm.lie, self.lagging = "", False
        self.catch_up()
        for job_id in list(self.slurm.work):
            self.slurm.end(job_id)
        self.slurm.jobs.clear()

    def settle(self, rounds: int = 150) -> None:
        """Let time pass until nothing has happened for a while; fail if something always happens."""
        quiet = 0
        decided = Plan()
        for _ in range(rounds):
            before = {name: pod.version for name, pod in self.pods.items()}
            self.pass_time(12.0)
            decided = self.reconcile()
            for held in decided.holds:
                # Lost with jobs of which nobody knows the end: a person has to say that they are over.
                if held.hold.reason is Wait.LOST_WHILE_BUSY and held.hold.message.endswith("deletes the pod"):
                    self.pods[held.pod].deleting = True
                    self.touch(self.pods[held.pod])
            same = before == {name: pod.version for name, pod in self.pods.items()}
            waits = decided.requeue is not None or any(held.cause for held in decided.holds)
            waits = waits or self.operator.belief.doubtful
            quiet = quiet + 1 if not decided.actions and same and not waits else 0
            if quiet >= 2:
                return
        raise AssertionError(f"no end: {decided.actions} {decided.holds} {decided.waits}")
