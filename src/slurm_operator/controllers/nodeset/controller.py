"""One pass over a NodeSet: look, decide, act, say.

Nothing here is clever. What must be known before a plan can be made is settled first: the Controller, the
template, the objects beside the pods, whose the pods are, which revision they should have. If one of these
fails, the rest continues with what is certain: while the pods of the NodeSet are uncertain, workers are not
counted, so none is created or deleted, and without a template no worker is created.

A pass that finds everything as it should be sends nothing and asks for no other look. While pods come and go
by the hundred, each of them an event, passes keep a distance that grows with what a pass costs, so that they
take up a part of the processor and not all of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.conditions import condition_changed
from slurm_operator.controllers.nodeset.decide import finalizer
from slurm_operator.controllers.nodeset.decide.memo import Memo
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.run.background import Asking, Errands
from slurm_operator.controllers.nodeset.run.claim_writes import Claims
from slurm_operator.controllers.nodeset.run.execute import Actor
from slurm_operator.controllers.nodeset.run.observe import Ground, Observer
from slurm_operator.controllers.nodeset.run.one_pass import Outcome, Work, aside
from slurm_operator.controllers.nodeset.run.ownership import Adoption
from slurm_operator.controllers.nodeset.run.pod_writes import Pods
from slurm_operator.controllers.nodeset.run.report import Reporter
from slurm_operator.controllers.nodeset.run.shared_objects import Children, Former
from slurm_operator.controllers.nodeset.run.slurm_nodes import Slurm
from slurm_operator.controllers.nodeset.run.slurm_records import Records
from slurm_operator.controllers.nodeset.run.state import Memories
from slurm_operator.controllers.nodeset.run.template import Revisions, Templates
from slurm_operator.controllers.nodeset.run.watches import Caches, concerns_all
from slurm_operator.kube import controller as runtime
from slurm_operator.kube.backoff import Backoff
from slurm_operator.kube.controller import Requeue
from slurm_operator.kube.meta import Key
from slurm_operator.kube.references import enqueue_owners
from slurm_operator.kube.sources import Channel, any_of, ignore_status

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from slurm_operator.controllers.nodeset.run.state import Memory
    from slurm_operator.controllers.wiring import Wiring
    from slurm_operator.slurm.clients import ConnectionKey
    from slurm_operator.slurm.view import ViewUpdate

NAME: Final = "nodeset-controller"
# A thousand creates take seconds; what takes longer is cut off and goes on with the next pass.
_DEADLINE: Final = 300.0
# What stands in the way of a pod (a quota, a webhook) often goes without an event.
_LONGEST_BACKOFF: Final = 60.0
# A pass may keep a processor busy for about a quarter of the time; thousands of workers also mean thousands
# of events, so with their number the distance grows to a tenth of a second at least.
_DISTANCE: Final = 3.0
_LONGEST_DISTANCE: Final = 1.0
_DISTANCE_PER_WORKER: Final = 0.0002
_LONGEST_LEAST: Final = 0.1


def build(wiring: Wiring) -> runtime.Controller:
    """Wire the controller."""
    return NodeSetController(wiring).controller


class NodeSetController:
    """Keeps the workers of every NodeSet."""

    def __init__(self, wiring: Wiring) -> None:
        self._caches = caches = Caches(wiring)
        self._memories = Memories()
        self._views: Channel[Key] = Channel()
        again: Channel[Key] = Channel()
        self._observer = Observer(wiring, caches)
        self._templates = Templates(wiring, caches, NAME)
        self._children = Children(wiring, caches, NAME)
        self._former = Former(wiring.client, caches)
        self._adoption = Adoption(wiring.client, caches)
        self._revisions = Revisions(wiring.client, caches, self._adoption)
        self._reporter = Reporter(wiring.client, wiring.events)
        self._errands = errands = Errands(again)
        claims, asking = Claims(wiring.client, wiring.events), Asking(errands)
        pods = Pods(wiring.client, wiring.events, caches.expectations, claims, asking)
        slurm, records = Slurm(errands), Records(errands, asking)
        self._actor = Actor(wiring.client, pods, claims, slurm, records, self._reporter.answered)
        reachable = condition_changed(wellknown.CONDITION_SLURM_API_READY)
        self.controller = (
            runtime.Controller(
                NAME,
                self.reconcile,
                workers=wiring.workers["nodeset"],
                deadline=_DEADLINE,
                stuck_after=_DEADLINE,
                backoff=Backoff(cap=_LONGEST_BACKOFF),
            )
            .watch(caches.nodesets, predicate=ignore_status)
            .watch(caches.pods, caches.of_pod)
            .watch(caches.pods, self._observer.neighbourhood.heirs)
            .watch(caches.claims, caches.of_claim)
            .watch(caches.revisions, caches.of_child)
            .watch(caches.config_maps, caches.of_child)
            .watch(caches.budgets, caches.of_budget, ignore_status)
            .watch(caches.nodes, caches.of_node, caches.node_matters)
            .watch(caches.controllers, caches.of_controller, any_of(ignore_status, reachable))
            .watch_channel(caches.services.changes, enqueue_owners(NAME))
            .watch_channel(wiring.secrets.changes, enqueue_owners(NAME))
            .watch_channel(wiring.node_events, caches.of_slurm_node)
            .watch_channel(self._views, caches.of_slurm_cluster)
            .watch_channel(again, lambda key: (key,))
        )
        wiring.connections.subscribe(self._updated)
        for name, run in (
            ("NodeSet observer", self._observer.run),
            ("Services of workers", caches.services.run),
            ("errands of NodeSets", errands.run),
        ):
            wiring.manager.add_runnable(run, name=name, leader_only=True)

    def _updated(self, key: ConnectionKey, update: ViewUpdate) -> None:
        if key.kind == "Controller" and concerns_all(update):
            self._views.send(Key(key.namespace, key.name))

    # --------------------------------------------------------------------------------------------- reconcile
    async def reconcile(self, key: Key) -> Requeue | None:
        """Bring a NodeSet closer to what it should be, and say how it is."""
        live = self._caches.nodesets.store.get(key)
        if key in self._caches.nodesets.store.unreadable:
            return None  # its current version is unknown; the next readable one comes as a change
        if live is None:
            self._forget(key)
            return None
        memory = self._memories.of(key, live.metadata.uid)
        if memory.new:
            # One of the same name may have gone without a pass that saw it.
            self._errands.drop(key)
            memory.new = False
        await _keep_distance(memory)
        live = self._caches.nodesets.store.get(key)
        if live is None or live.metadata.uid != memory.uid:
            return None  # it went in the meantime, and that has put its key into the queue again
        outcome = Outcome()
        try:
            await self._pass(self._reporter.newest(live), memory, outcome)
        except asyncio.CancelledError:
            # A thread that decides may go on for a moment, and must not share its notes with the next pass.
            memory.memo = Memo()
            raise
        finally:
            memory.ended = _now()
        again = outcome.again()
        if outcome.errors:
            if again is not None:
                self.controller.queue.add_after(key, again)
            raise outcome.errors[0] if len(outcome.errors) == 1 else ExceptionGroup(str(key), outcome.errors)
        return None if again is None else Requeue(again)

    async def _pass(self, nodeset: NodeSet, memory: Memory, outcome: Outcome) -> None:
        master = self._templates.master(nodeset, outcome)
        template = None
        if not nodeset.deleting:
            template = await self._templates.build(nodeset, master.controller, memory, outcome)
            await self._children.settle(nodeset, outcome)
            await self._former.leave(nodeset, outcome)
            await self._adoption.settle(nodeset, memory, outcome)
        revision = await self._revisions.settle(nodeset, memory, outcome)
        fit = self._templates.fit(nodeset, memory, outcome)
        # While none can be made, the last one counts: that a Secret cannot be read makes no worker newer.
        last = template or (memory.template and memory.template[1])
        hashes = last.hashes if last else {}
        ground = Ground(nodeset, master, revision, fit, hashes, outcome.certain, outcome.budget)

        seen = await self._observer.look(ground, memory)
        if finalizer.keeps_shared(seen):
            await self._children.keep_shared(nodeset, outcome)
        decided, memory.busy = await aside(seen, lambda: _costed(seen))
        work = Work(
            ground=ground,
            seen=seen,
            plan=decided,
            template=template,
            connection=self._observer.connection(ground),
            memory=memory,
            outcome=outcome,
            look=lambda: self._look_again(ground, memory),
        )
        await self._actor.act(work)
        if seen.settled and not nodeset.deleting:
            await self._revisions.truncate(nodeset, memory, outcome)
        outcome.troubles |= memory.unsaid
        await self._reporter.say(work)
        memory.unsaid = await self._actor.tell_pods(work)
        memory.tidy(frozenset(worker.slurm_name for worker in seen.workers), seen.now)
        self._plan_looks(work)

    async def _look_again(self, ground: Ground, memory: Memory) -> Observation:
        """Look at what is known by now, also of the NodeSet itself."""
        live = self._caches.nodesets.store.get(ground.nodeset.key)
        if live is None or live.metadata.uid != ground.nodeset.metadata.uid:
            # What it left behind, perhaps on purpose, is not its any more.
            return dataclasses.replace(await self._observer.look(ground, memory), workers=(), settled=False)
        again = dataclasses.replace(ground, nodeset=self._reporter.newest(live))
        return await self._observer.look(again, memory)

    def _plan_looks(self, work: Work) -> None:
        """Ask for another look where no event would bring one."""
        if work.plan.requeue is not None:
            work.outcome.look(max(0.05, work.plan.requeue))
        if (expiry := self._caches.expectations.expires_in(work.nodeset.key, _now())) is not None:
            work.outcome.look(expiry + 0.1)

    def _forget(self, key: Key) -> None:
        self._templates.release(key)
        self._children.release(key)
        self._reporter.forget(key)
        self._errands.drop(key)
        self._memories.forget(key)
        self._caches.expectations.forget(key)


def _costed(seen: Observation) -> tuple[Plan, float]:
    """Plan, and return what that took of a processor: on a busy machine much more time has passed."""
    started = time.thread_time()
    return plan(seen), time.thread_time() - started


async def _keep_distance(memory: Memory) -> None:
    least = min(_LONGEST_LEAST, _DISTANCE_PER_WORKER * len(memory.workers))
    distance = min(_LONGEST_DISTANCE, max(least, _DISTANCE * memory.busy))
    wait = memory.ended + distance - _now()
    if wait > 0:
        await asyncio.sleep(wait)


def _now() -> float:
    return asyncio.get_running_loop().time()
