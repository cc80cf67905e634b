"""What a process of the operator remembers, and loses when it ends: beliefs about Slurm, a cache of pods."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_operator.controllers.nodeset.decide.memo import Memo
from slurm_operator.kube.decide.expectations import Expectations
from slurm_operator.kube.models.meta import Key
from slurm_operator.slurm.decide.node_list_trust import NodeListTrust
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.model.jobs import JobBook
from slurm_operator.slurm.model.view import ClusterView, deltas
from tests.support.simulation.kubernetes import EPOCH, NAME, NAMESPACE
from tests.support.slurm.views import take_list

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeset.decide.observation import FailedResume, NodeAnswer
    from slurm_operator.kube.models.kinds import PersistentVolumeClaim, Pod
    from tests.support.simulation.kubernetes import SimClaim, SimPod
    from tests.support.simulation.slurm_cluster import Slurm

KEY = Key(NAMESPACE, NAME)


class Operator:
    """One process, from its start on."""

    def __init__(self, pods: Iterable[SimPod], claims: Iterable[SimClaim], now: float) -> None:
        self.node_trust = NodeListTrust()
        self.book = JobBook()
        self.view = ClusterView()
        self.since = now
        self.written: dict[str, float] = {}
        self.asked: dict[str, NodeAnswer] = {}
        self.failures: dict[str, int] = {}
        self.resumes: dict[str, FailedResume] = {}
        self.expectations: Expectations[Key] = Expectations()
        self.cache: dict[str, Pod] = {pod.name: pod.show() for pod in pods}
        self.claims: dict[str, PersistentVolumeClaim] = {one.name: one.show() for one in claims}
        self.behind: list[tuple[str, Pod | None]] = []
        self.memo = Memo()
        self.due = now

    def clone(self) -> Operator:
        """Return the same process once more; nothing may be expected of it."""
        twin = copy.copy(self)
        twin.node_trust, twin.book = copy.copy(self.node_trust), copy.copy(self.book)
        twin.node_trust._lately, twin.node_trust._expected = (
            dict(self.node_trust._lately),
            dict(self.node_trust._expected),
        )
        twin.written, twin.asked = dict(self.written), dict(self.asked)
        twin.failures = dict(self.failures)
        twin.cache, twin.claims, twin.behind = dict(self.cache), dict(self.claims), list(self.behind)
        twin.expectations, twin.memo = Expectations(), Memo()
        return twin

    def poll(self, slurm: Slurm, now: float) -> bool:
        """List nodes, jobs and reservations, if Slurm answers; return whether a node has changed."""
        before = self.view
        if not slurm.answers:
            self.view = replace(before, failure=RestUnreachable("down"))
            return False
        take_list(self.node_trust, slurm.listed(), now)
        self.node_trust.uptime(now - slurm.started, now)
        snapshot = self.node_trust.snapshot
        self.view = ClusterView(
            nodes=snapshot.nodes,
            listed_at=snapshot.listed_at,
            complete=snapshot.complete,
            suspicion=snapshot.suspicion,
            doubts=snapshot.doubts,
            absent=snapshot.absent,
            others=snapshot.others,
            jobs=self.book.listed(slurm.listed_jobs(), now),
            jobs_listed_at=now,
            reservations={} if slurm.lie else {one.name: one.show() for one in slurm.windows.values()},
            reservations_listed_at=now,
            up_since=self.node_trust.started,
            started=EPOCH.timestamp() + slurm.started,
            just_started=self.node_trust.just_started(now),
        )
        return any(one.old or one.new for one in deltas(before, self.view))

    def catch_up(self, events: float = math.inf) -> bool:
        """Take in what the watch of pods has held back; return whether there was anything."""
        news = bool(self.behind) and events > 0
        while self.behind and events > 0:
            events -= 1
            name, pod = self.behind.pop(0)
            old = self.cache.pop(name, None)
            if old is not None and (pod is None or pod.metadata.uid != old.metadata.uid):
                self.expectations.deletion_observed(KEY, old.metadata.uid)
            if pod is None:
                continue
            self.cache[name] = pod
            self.expectations.creation_observed(KEY, name, pod.metadata.uid)
            if pod.deleting:
                self.expectations.deletion_observed(KEY, pod.metadata.uid)
        return news

    def relist(self, pods: Iterable[SimPod]) -> None:
        """Let the watch of pods start over: what it lost comes as the difference to what is there."""
        shown = {pod.name: pod.show() for pod in pods}
        self.behind = [(name, None) for name in self.cache if name not in shown]
        self.behind += [(name, pod) for name, pod in shown.items() if self.cache.get(name) != pod]
