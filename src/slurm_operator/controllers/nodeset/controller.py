"""One reconcile of a NodeSet: observe, decide, act, report.

Nothing here is clever. What must be known before a plan can be made is settled first: the Controller, the
template, the objects that pods share, whose the pods are, which revision they should have. If one of these
fails, the rest continues with what is certain: while the pods of the NodeSet are uncertain, workers are not
counted, so none is created or deleted, and without a template no worker is created.

A reconcile that finds everything as it should be sends nothing and asks for no other one. While pods come and
go by the hundred, each of them an event, reconciles keep a distance that grows with what one costs, so that
they take up a part of the processor and not all of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide import finalizer
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.run.background import (
    BackgroundTasks,
    SlurmQuestions,
    costed,
    run_decision,
)
from slurm_operator.controllers.nodeset.run.claim_writes import ClaimWriter
from slurm_operator.controllers.nodeset.run.execute import Actor
from slurm_operator.controllers.nodeset.run.nodeset_metrics import NodeSetCollector
from slurm_operator.controllers.nodeset.run.observe import Observer, ReconcileInputs
from slurm_operator.controllers.nodeset.run.ownership import Adoption
from slurm_operator.controllers.nodeset.run.pod_writes import Pods
from slurm_operator.controllers.nodeset.run.reconcile_state import (
    NodeSetStates,
    PlannedWork,
    ReconcileOutcome,
)
from slurm_operator.controllers.nodeset.run.report import NodeSetReporter
from slurm_operator.controllers.nodeset.run.shared_objects import PreviousOwner, SharedObjects
from slurm_operator.controllers.nodeset.run.slurm_nodes import Slurm
from slurm_operator.controllers.nodeset.run.slurm_records import Records
from slurm_operator.controllers.nodeset.run.template import Revisions, Templates
from slurm_operator.controllers.nodeset.run.watches import Caches, concerns_all
from slurm_operator.controllers.shared.conditions import condition_changed
from slurm_operator.kube.cache.referenced_objects import enqueue_owners
from slurm_operator.kube.decide.backoff import Backoff
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime import controller as runtime
from slurm_operator.kube.runtime.controller import Requeue
from slurm_operator.kube.runtime.sources import Channel, any_of, ignore_status

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.run.reconcile_state import NodeSetState
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.slurm.model.view import ViewUpdate
    from slurm_operator.slurm.rest.connections import ConnectionKey

NAME: Final = "nodeset-controller"
# A thousand creates take seconds; what takes longer is cut off and goes on with the next reconcile.
_DEADLINE: Final = 300.0
# What stands in the way of a pod (a quota, a webhook) often goes without an event.
_LONGEST_BACKOFF: Final = 60.0


def build(wiring: Wiring) -> runtime.Controller:
    """Wire the controller."""
    return NodeSetController(wiring).controller


class NodeSetController:
    """Keeps the workers of every NodeSet."""

    def __init__(self, wiring: Wiring) -> None:
        self._caches = caches = Caches(wiring)
        self._plans = wiring.plans
        self._states = NodeSetStates()
        self._views: Channel[Key] = Channel()
        again: Channel[Key] = Channel()
        self._observer = Observer(wiring, caches)
        self._templates = Templates(wiring, caches, NAME)
        self._children = SharedObjects(wiring, caches, NAME)
        self._previous_owner = PreviousOwner(wiring.client, caches)
        self._adoption = Adoption(wiring.client, caches)
        self._revisions = Revisions(wiring.client, caches, self._adoption)
        self._reporter = NodeSetReporter(wiring.client, wiring.events)
        self._metrics = NodeSetCollector()
        wiring.registry.register(self._metrics)
        self._background = background = BackgroundTasks(again)
        claims, asking = ClaimWriter(wiring.client, wiring.events), SlurmQuestions(background)
        cached = caches.pods.store.get
        pods = Pods(wiring.client, wiring.events, caches.expectations, claims, asking, cached)
        slurm, records = Slurm(background), Records(background, asking, self._reporter.read)
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
            .watch(caches.pods, self._observer.slurm_names.claimants)
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
            ("background tasks of NodeSets", background.run),
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
        if not self._states.knows(key, live.metadata.uid):
            # One of the same name may have gone without a reconcile that saw it.
            self._background.drop(key)
        state = self._states.of(key, live.metadata.uid)
        answered_at = partial(self._observer.answered_at, live)
        await state.pace.wait(len(state.read.workers), lambda: self._generation(key), answered_at)
        live = self._caches.nodesets.store.get(key)
        if live is None or live.metadata.uid != state.uid:
            return None  # it went in the meantime, and that has put its key into the queue again
        outcome = ReconcileOutcome()
        try:
            await self._reconcile(self._reporter.newest(live), state, outcome)
        except asyncio.CancelledError:
            state.read.drop_memo()
            raise
        finally:
            state.pace.end()
        again = outcome.requeue()
        if outcome.errors:
            if again is not None:
                self.controller.queue.add_after(key, again)
            raise outcome.errors[0] if len(outcome.errors) == 1 else ExceptionGroup(str(key), outcome.errors)
        return None if again is None else Requeue(again)

    async def _reconcile(self, nodeset: NodeSet, state: NodeSetState, outcome: ReconcileOutcome) -> None:
        reference = self._templates.controller_ref(nodeset, outcome)
        template = None
        if not nodeset.deleting:
            template = await self._templates.build(nodeset, reference.controller, state.template, outcome)
            await self._children.settle(nodeset, outcome)
            await self._previous_owner.leave(nodeset, outcome)
            await self._adoption.settle(nodeset, state.owned, outcome)
        revision = await self._revisions.settle(nodeset, state.revisions, outcome)
        fit = self._templates.fit(nodeset, state.template, outcome)
        hashes = state.template.hashes
        inputs = ReconcileInputs(nodeset, reference, revision, fit, hashes, outcome.certain, outcome.budget)

        await asyncio.sleep(0)
        seen = await self._observer.observe(inputs, state)
        if finalizer.keeps_shared(seen):
            await self._children.keep_shared(nodeset, outcome)
        decided, cost = await run_decision(seen, lambda: costed(lambda: plan(seen)))
        state.pace.planned(cost, decided, nodeset.metadata.generation, seen.now)
        if self._plans is not None:
            self._plans.planned(seen, decided)
            # With thousands of workers each of these steps, and those below, is a turn of the event loop.
            await asyncio.sleep(0)
        work = PlannedWork(
            inputs=inputs,
            seen=seen,
            plan=decided,
            template=template,
            connection=self._observer.connection(inputs),
            state=state,
            outcome=outcome,
            observe_again=lambda: self._observe_again(inputs, state),
            generation=lambda: self._generation(nodeset.key),
        )
        await self._actor.act(work)
        if seen.settled and not nodeset.deleting:
            await self._revisions.truncate(nodeset, state.revisions, outcome)
        await self._reporter.say(work)
        await asyncio.sleep(0)
        self._metrics.record(nodeset.key, seen, decided)
        self._reporter.say_later(work, await self._actor.tell_pods(work))
        await asyncio.sleep(0)
        state.tidy(frozenset(worker.slurm_name for worker in seen.workers), seen.now)
        self._plan_requeues(work)

    def _generation(self, key: Key) -> int | None:
        live = self._caches.nodesets.store.get(key)
        return None if live is None else live.metadata.generation

    async def _observe_again(self, inputs: ReconcileInputs, state: NodeSetState) -> Observation:
        """Observe what is known by now, also of the NodeSet itself."""
        live = self._caches.nodesets.store.get(inputs.nodeset.key)
        if live is None or live.metadata.uid != inputs.nodeset.metadata.uid:
            # What it left behind, perhaps on purpose, is not its any more.
            return dataclasses.replace(await self._observer.observe(inputs, state), workers=(), settled=False)
        again = dataclasses.replace(inputs, nodeset=self._reporter.newest(live))
        return await self._observer.observe(again, state)

    def _plan_requeues(self, work: PlannedWork) -> None:
        """Ask for another reconcile where no event would bring one."""
        if work.plan.requeue is not None:
            work.outcome.requeue_after(max(0.05, work.plan.requeue))
        if (expiry := self._caches.expectations.expires_in(work.nodeset.key, _now())) is not None:
            work.outcome.requeue_after(expiry + 0.1)

    def _forget(self, key: Key) -> None:
        self._templates.release(key)
        self._children.release(key)
        self._reporter.forget(key)
        self._metrics.forget(key)
        self._background.drop(key)
        self._states.forget(key)
        self._caches.expectations.forget(key)
        if self._plans is not None:
            self._plans.forgotten(key)


def _now() -> float:
    return asyncio.get_running_loop().time()
