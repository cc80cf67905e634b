"""A small world in which a NodeSet lives, with everything that can go wrong in it.

The operator in it is the real deciding code: `plan`, `confirm` and `report`, the real beliefs about Slurm's
lists, the real expectations. Kubernetes and Slurm are `clustermodel` and `slurmmodel`; `acting` does what was
decided. Whatever the operator sends is checked against what really runs, not against what it could know.

The operator reconciles when something calls it, as outside: a pod or a node that the caches show, an edit,
a node that changed in Slurm, or the time that its last plan asked for. Whoever relies on more than that never
gets done here.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import Defer, PatchPodStatus, RemovalCause
from slurm_operator.controllers.nodeset.decide.autoscale import failed_resumes
from slurm_operator.controllers.nodeset.decide.memo import Memo
from slurm_operator.controllers.nodeset.decide.observation import (
    ControllerState,
    FailedResume,
    Observation,
    Revision,
    read_worker,
)
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.controllers.nodeset.decide.pod_status import JUST_NOW_SECONDS
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.controllers.nodeset.decide.update import max_unavailable
from tests.support.simulation import action_effects
from tests.support.simulation.explained import check_explained
from tests.support.simulation.kubernetes import FIT, LABELS, UID, SimClaim, SimPod, make_node, moment
from tests.support.simulation.operator_process import KEY, Operator
from tests.support.simulation.slurm_cluster import SHAPE, Slurm
from tests.support.simulation.user_requests import Spec

if TYPE_CHECKING:
    from slurm_operator.api.nodeset import NodeSet
    from slurm_operator.controllers.nodeset.decide.status import Report
    from slurm_operator.kube.models.kinds import Node, Pod

NO_BUDGET = Defer(Reason.BUDGET_MISSING, "the budget is not in place")
NODES = tuple(f"node-{index}" for index in range(8))


class World(Spec):
    """Everything there is."""

    def __init__(self, replicas: int = 3) -> None:
        super().__init__(replicas)
        self.now = 1000.0
        self.skew = 0.0
        self.slurm = Slurm()
        self.pods: dict[str, SimPod] = {}
        self.claims: dict[str, SimClaim] = {}
        self.nodes: dict[str, Node] = {name: make_node(name, labels=LABELS) for name in NODES}
        self.controller = ControllerState.STAYS
        self.connected = True
        self.lagging = False
        self.partial = False
        self.budget = True
        """The PodDisruptionBudget is in place."""
        self.lied = 0.0
        self.gone = False
        self.waived = False
        """The finalizer was taken away because somebody asked for it."""
        self.excused: set[str] = set()
        """Pods that lost their protection, or got work without it, because a person asked for it."""
        self.uids = 0
        self.reconciles = 0
        self.writes = 0
        self.fuse: int | None = None
        self.awake = True
        self.operator = Operator((), (), self.now)

    def clone(self) -> World:
        """Return a world like this one, with a life of its own."""
        twin = copy.copy(self)
        twin.pods = {name: pod.clone() for name, pod in self.pods.items()}
        twin.claims = {name: copy.copy(claim) for name, claim in self.claims.items()}
        twin.excused = set(self.excused)
        twin.nodes, twin.slurm, twin.operator = dict(self.nodes), self.slurm.clone(), self.operator.clone()
        return twin

    # --- time

    def advance(self, seconds: float) -> None:
        """Move the clock; jobs and windows end, also those that slurmctld has forgotten."""
        self.now += seconds
        self.slurm.pass_time(self.now)

    def pass_time(self, seconds: float) -> None:
        """Move the clock, and let everybody but the operator do what is due."""
        self.advance(seconds)
        for pod in list(self.pods.values()):
            self._live(pod)
        if self.deleting and not self.finalizers and not self.gone:
            self._collect_nodeset()
        self.poll()

    def _live(self, pod: SimPod) -> None:
        """Let scheduler, kubelet and slurmd do one step each."""
        if pod.deleting:
            self._remove(pod)
        elif pod.node and pod.node not in self.nodes:
            self.delete(pod)
        elif pod.phase == "Pending" and any(name not in self.claims for name in pod.mounts):
            pass  # neither the scheduler nor the kubelet goes on without its volumes
        elif not pod.node:
            pod.node = self._schedule(pod)
            if pod.node:
                self.touch(pod)
        elif pod.phase == "Pending":
            pod.phase, pod.started, pod.booted = "Running", True, self.now
            self.touch(pod)
            self._register(pod)
        elif pod.phase == "Running" and not pod.registered:
            self._register(pod)
        elif pod.phase == "Running" and pod.ready_since is None:
            pod.ready_since = self.now
            self.touch(pod)

    def _schedule(self, pod: SimPod) -> str:
        used = {other.node for other in self.pods.values()}
        for name, node in self.nodes.items():
            fits = FIT.keeps(node) if pod.mode == "DaemonSet" else FIT.admits(node)
            if name not in used and fits and pod.target in ("", name):
                return name
        return ""

    def _register(self, pod: SimPod) -> None:
        # slurmd tries to register until it is heard; after that, never again.
        if self.slurm.up:
            pod.registered = self.slurm.register(pod.hostname, pod.uid, pod.booted)

    def _remove(self, pod: SimPod) -> None:
        self.slurm.unregister(pod.hostname, pod.uid)
        del self.pods[pod.name]
        self._tell(pod.name, None)
        for claim in [one for one in self.claims.values() if one.owned_by(pod.uid)]:
            assert pod.cause in ("", RemovalCause.SCALE_IN), f"claim {claim.name} was lost: {pod.cause}"
            self._drop(claim)

    def _collect_nodeset(self) -> None:
        """The last finalizer is gone: Kubernetes removes the NodeSet and what it owns."""
        self.gone = True
        assert self.waived or not self.pods, "the NodeSet left before its pods"
        left = [pod.name for pod in self.pods.values() if pod.protected and not pod.deleting]
        assert not left, f"Kubernetes cannot delete {left} with the NodeSet"
        kept = self.controller is ControllerState.STAYS and self.slurm.windows
        assert not kept, "a reservation was left behind"
        for claim in [one for one in self.claims.values() if one.owned_by(UID)]:
            self._drop(claim)
        for pod in self.pods.values():
            self.delete(pod)

    def _drop(self, claim: SimClaim) -> None:
        del self.claims[claim.name]
        self.operator.claims.pop(claim.name, None)
        self.awake = True

    def poll(self) -> None:
        """Let the watch of Slurm look; the operator hears of nodes that changed, if it is connected."""
        if self.slurm.answers and self.slurm.lie != "empty":
            self.lied = 0.0
        changed = self.operator.poll(self.slurm, self.now)
        self.awake |= changed and self.connected

    def check_protected(self) -> None:
        """Fail if Kubernetes could remove a worker that runs a job, or may get one at any moment."""
        self.excused -= {pod.uid for pod in self.pods.values() if pod.protected}
        for pod in self.pods.values():
            if pod.protected or pod.deleting or pod.uid in self.excused:
                continue
            assert not self.slurm.takes_work(pod.hostname, pod.uid), f"{pod.name} takes work unprotected"
            jobs = [job.job_id for job in self.slurm.work.values() if job.pod == pod.uid]
            assert not jobs, f"{pod.name} runs {jobs} unprotected"

    # --- the cache

    def touch(self, pod: SimPod) -> None:
        pod.version += 1
        self._tell(pod.name, pod.show())

    def delete(self, pod: SimPod) -> None:
        """Mark a pod as terminating."""
        if not pod.deleting:
            pod.deleting = True
            self.touch(pod)

    def _tell(self, name: str, pod: Pod | None) -> None:
        self.operator.behind.append((name, pod))
        if not self.lagging:
            self.catch_up()

    def catch_up(self, events: float = math.inf) -> None:
        """Deliver what the watch of pods has held back."""
        self.awake |= self.operator.catch_up(events)

    def relist(self) -> None:
        """Let the watch of pods start over."""
        self.operator.relist(self.pods.values())
        self.catch_up()

    # --- the operator

    def observe(self) -> Observation:
        operator, nodeset = self.operator, self.nodeset()
        current = f"r{self.revision}"
        return Observation(
            nodeset=nodeset,
            workers=tuple(read_worker(nodeset, pod) for pod in operator.cache.values()),
            revision=Revision(current, frozenset({current})),
            wall=moment(self.now + self.skew),
            now=self.now,
            view=operator.view if self.connected else None,
            nodes=self.nodes,
            fit=FIT,
            claims=operator.claims,
            settled=operator.expectations.satisfied(KEY, self.now),
            since=operator.since,
            written=MappingProxyType(operator.written),
            asked=MappingProxyType(operator.asked),
            budget=None if self.budget else NO_BUDGET,
            failures=MappingProxyType(operator.failures),
            record=SHAPE if nodeset.autoscaled else None,
            resumes=self._failed_resumes(nodeset),
            controller=self.controller,
            memo=operator.memo,
        )

    def _failed_resumes(self, nodeset: NodeSet) -> dict[str, FailedResume]:
        operator = self.operator
        if nodeset.autoscaled and self.connected:
            names = map(nodeset.pod_hostname, range(nodeset.most_replicas))
            operator.resumes = failed_resumes(operator.resumes, operator.view, names, self.now)
        return operator.resumes

    def reconcile(self, crash_after: int | None = None) -> Plan:
        """Look, decide, and do what was decided; die after so many writes if told to."""
        if self.gone:
            return Plan()
        self.awake = False
        seen = self.observe()
        decided = plan(seen)
        self.reconciles += 1
        if self.reconciles % 4 == 0:
            again = plan(replace(seen, memo=Memo()))
            # Whether to put off what would be written is not asked where it is known that nothing would be.
            assert again.requeue in (decided.requeue, JUST_NOW_SECONDS)
            again = replace(again, requeue=decided.requeue)
            assert _timeless(decided) == _timeless(again), "what was remembered changed the plan"
        self._check(seen, decided)
        check_explained(seen, decided)
        expiry = self.operator.expectations.expires_in(KEY, self.now)
        requeue_after = [
            one for one in (decided.requeue, None if seen.settled else expiry) if one is not None
        ]
        self.operator.due = self.now + min(requeue_after, default=math.inf)
        if crash_after is not None:
            self.fuse = crash_after
        try:
            for action in decided.actions:
                action_effects.do(self, action)
            self._tell_status(report(seen, decided))
        except action_effects.Crashed:
            self.crash()
        if crash_after is not None:
            self.fuse = None
        return decided

    def reconcile_if_called(self) -> Plan | None:
        """Reconcile if something calls for it."""
        return self.reconcile() if self.awake or self.now >= self.operator.due else None

    def crash(self) -> None:
        self.operator = Operator(self.pods.values(), self.claims.values(), self.now)
        self.awake = True
        self.fuse = None

    def spend(self) -> None:
        """Count a write, and die before it if it was to be the last."""
        if self.fuse is not None:
            if self.fuse <= 0:
                raise action_effects.Crashed
            self.fuse -= 1
        self.writes += 1

    def _check(self, seen: Observation, decided: Plan) -> None:
        """Fail if more healthy workers are taken out of service than may be."""
        if self.strategy == "ScheduledUpdate" or self.deleting or self.most is not None:
            return
        listed_at = [
            worker.name
            for worker in seen.workers
            if worker.healthy
            and decided.going.get(worker.uid) in (RemovalCause.UPDATE, RemovalCause.REGISTRATION)
        ]
        assert len(listed_at) <= max_unavailable(seen, decided.desired), f"{listed_at} are taken out at once"

    def _tell_status(self, told: Report) -> None:
        kept = [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in told.conditions
        ]
        status: dict[str, Any] = {**told.fields, "conditions": kept}
        if status != self.status:
            self.spend()
            self.status = status

    # --- peace

    def heal(self) -> None:
        """Let all faults end, and all jobs."""
        self.slurm.up = self.slurm.reachable = self.connected = True
        self.slurm.lie, self.lagging, self.partial = "", False, False
        self.awake |= not self.budget
        self.budget = True
        # That a clock is set right is no news, but news come all the time.
        self.awake |= bool(self.skew)
        self.skew, self.fuse = 0.0, None
        self.relist()
        for job_id in list(self.slurm.work):
            self.slurm.end(job_id)
        self.slurm.jobs.clear()

    def settle(self, rounds: int = 150) -> None:
        """Let time pass until nothing has happened for a while; fail if something always happens."""
        quiet = 0
        decided = Plan()
        for _ in range(rounds):
            before, writes = {name: pod.version for name, pod in self.pods.items()}, self.writes
            self.pass_time(12.0)
            decided = self.reconcile_if_called() or decided
            for one in decided.blocked:
                # Lost with jobs of which nobody knows the end: a person has to say that they are over.
                endless = Defer(Reason.LOST_WHILE_BUSY, messages.lost_while_busy(one.slurm_name, None))
                if one.wait == endless:
                    self.delete(self.pods[one.pod])
                # Registered with a slurmctld that lost its state before anybody listed its nodes.
                if one.wait.reason is Reason.NEVER_REGISTERED and one.pod in self.pods:
                    self.delete(self.pods[one.pod])
            same = before == {name: pod.version for name, pod in self.pods.items()}
            # A worker that waits for its cordoned node is out of service, and others wait for it.
            pending = any(not pod.node for pod in self.pods.values())
            waiting = [
                one
                for one in decided.blocked
                if one.cause and not (pending and one.wait.reason is Reason.MAX_UNAVAILABLE)
            ]
            operator = self.operator
            behind = operator.expectations.expires_in(KEY, self.now) is not None and not self.gone
            # The longest pause of a worker that keeps failing is longer than any quiet.
            pausing = any(pod.finished_at is not None for pod in self.pods.values())
            waits = waiting or behind or pausing or operator.node_trust.doubtful
            quiet = quiet + 1 if same and writes == self.writes and not waits else 0
            if quiet >= 6:
                return
        raise AssertionError(f"no end: {decided.actions} {decided.blocked} {decided.waits}")


def _timeless(decided: Plan) -> Plan:
    """Return a plan without the moments at which conditions changed: with a memory they are earlier."""
    actions = tuple(
        replace(one, set=tuple(msgspec.structs.replace(some, last_transition_time=None) for some in one.set))
        if isinstance(one, PatchPodStatus)
        else one
        for one in decided.actions
    )
    return replace(decided, actions=actions)
