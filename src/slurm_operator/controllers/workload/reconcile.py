"""One reconcile of a custom resource: read what it refers to, decide, apply, and say how it is.

A subclass says what should be (`plan`), what runs its daemon (`workload`), and what else to watch. The order
here is what keeps the promises of all four. Nothing is decided on what is not known. The workload comes last
among the children, so that the files it mounts are there before its pods. The status is written after every
reconcile, also after one in which something failed, and only then does the error go up. An object that is
being deleted is not touched: its children go with it.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import ConditionStatus, find_condition
from slurm_operator.controllers.shared import pod_problems
from slurm_operator.controllers.shared.conditions import (
    K,
    condition,
    condition_changed,
    conditions_of,
    observed_generation,
)
from slurm_operator.controllers.shared.contents import Contents
from slurm_operator.controllers.shared.owners import OwnerGoneError
from slurm_operator.controllers.shared.problems import WorkloadProblem
from slurm_operator.controllers.shared.status_writer import StatusWriter
from slurm_operator.controllers.workload.children import SELECTOR
from slurm_operator.controllers.workload.decide import effects, rollout, verdict
from slurm_operator.controllers.workload.decide.effects import Effect, Inputs
from slurm_operator.controllers.workload.decide.read_models import (
    DeploymentDetails,
    StatefulSetDetails,
    Workload,
)
from slurm_operator.controllers.workload.decide.rollout import Phase
from slurm_operator.kube.cache.referenced_objects import enqueue_owners
from slurm_operator.kube.errors import Conflict, KubeError
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.runtime import controller as runtime
from slurm_operator.kube.runtime.controller import Requeue
from slurm_operator.kube.runtime.failures import describe
from slurm_operator.kube.runtime.sources import any_of, ignore_status
from slurm_operator.objects.content_references import Found

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_operator.api.shared import Condition
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.controllers.workload.children import ChildKey, Children, ChildrenResult
    from slurm_operator.controllers.workload.decide.rollout import Rollout
    from slurm_operator.kube.cache.informer import Informer
    from slurm_operator.kube.models.meta import Key, Object, T
    from slurm_operator.objects.desired import Desired, Manifest


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """What should be, and what it was decided on."""

    desired: Desired
    found: Found = field(default_factory=Found)
    troubles: tuple[WorkloadProblem, ...] = ()
    reconfigures: bool = False
    """Whether a running daemon is told of changed files."""
    waiting: tuple[str, ...] = ()
    """What waits for the next change, or for the user's consent (`objects.corrections`)."""


class WorkloadController(ABC, Generic[K]):
    """Keeps the children of the custom resources of one kind."""

    NAME: ClassVar[str]
    WORKERS: ClassVar[str]
    DAEMON: ClassVar[str]
    """The name of the daemon in messages."""
    APP: ClassVar[str]
    """What its pods are called in their labels."""
    PATIENCE: ClassVar = 30.0
    """For how many seconds a pod may stay unscheduled before a condition reports it."""

    def __init__(self, wiring: Wiring, kind: type[K], children: Children) -> None:
        self._kind = kind
        self._client = wiring.client
        self._events = wiring.events
        self._children = children
        self._contents = Contents(wiring, self.NAME)
        self._status = StatusWriter(wiring.client, f"{wellknown.FIELD_MANAGER}-{self.WORKERS}")
        self._objects = wiring.manager.informer(kind)
        self._pods = wiring.manager.informer(Pod, labels=SELECTOR)
        # What each daemon read last, to name what is different now.
        self._inputs: dict[Key, Inputs] = {}
        moved = [condition_changed(type_) for type_ in (*verdict.TYPES, wellknown.CONDITION_CONFIGURED)]
        self.controller = (
            runtime.Controller(self.NAME, self.reconcile, workers=wiring.workers[self.WORKERS])
            .watch(self._objects, predicate=any_of(ignore_status, *moved))
            .watch_channel(wiring.secrets.changes, enqueue_owners(self.NAME))
            .watch_channel(wiring.config_maps.changes, enqueue_owners(self.NAME))
        )
        self.controller.watch(self._pods, pod_problems.instances(self.APP))
        children.watch(self.controller, kind)

    # ---------------------------------------------------------------------------------------- for subclasses
    @abstractmethod
    def workload(self, live: K) -> ChildKey | None:
        """Return the workload that runs the daemon, None when the daemon is external."""

    @abstractmethod
    async def plan(self, live: K) -> WorkloadPlan:
        """Decide what should be; raise KubeError when something that matters cannot be known."""

    async def act(self, live: K, plan: WorkloadPlan, done: ChildrenResult) -> list[WorkloadProblem]:
        """Do what is to be done beyond the children; return what went wrong."""
        del live, plan, done
        return []

    def fields(self, live: K, workload: Workload | None) -> dict[str, Any]:
        """Return what the status of this kind has beyond conditions, by its names on the wire."""
        del workload
        return {"observedGeneration": live.metadata.generation}

    def forget(self, key: Key) -> None:
        """Drop what is remembered of an object that is gone."""

    # --------------------------------------------------------------------------------------------- reconcile
    async def reconcile(self, key: Key) -> Requeue | None:
        """Make the children of an object what they should be, and say how it is."""
        live = self._objects.store.get(key)
        if key in self._objects.store.unreadable:
            return None  # its current version is unknown; the next readable one comes as a change
        if live is None or live.deleting:
            self._contents.release(key)
            self._status.forget(self._kind, key)
            self._inputs.pop(key, None)
            self.forget(key)
            return None
        try:
            plan = await self._planned(live)
            done = await self._children.bring_about(live, plan.desired, partial(self._announce, live, plan))
        except OwnerGoneError:
            return None  # its deletion comes as a change
        more = await self.act(live, plan, done)
        found = [*plan.troubles, *verdict.troubles(plan.desired.problems), *done.troubles, *more]
        if not any(isinstance(error, Conflict) for error in done.errors):
            # On a conflict another client has changed one of the children: the retry reads its new state.
            await self._say(live, plan, done, found)
        if done.errors:
            raise done.errors[0] if len(done.errors) == 1 else ExceptionGroup("children", done.errors)
        return None if done.requeue_after is None else Requeue(done.requeue_after)

    async def _planned(self, live: K) -> WorkloadPlan:
        """Decide what should be; say so if that cannot be known."""
        try:
            return await self.plan(live)
        except OwnerGoneError:
            raise
        except KubeError as error:
            with contextlib.suppress(KubeError):
                await self._report_unreadable(live, error)
            raise

    # --------------------------------------------------------------------------------------------------- say
    async def _report_unreadable(self, live: K, error: KubeError) -> None:
        """Report that a reference cannot be read, and leave the other conditions as they are."""
        workload = self._cached(live)
        trouble = WorkloadProblem(Reason.REFERENCE_UNREADABLE, describe(error))
        await self._write(live, self._rollout(live, workload), [trouble], workload, self._previous(live))

    async def _say(
        self, live: K, plan: WorkloadPlan, done: ChildrenResult, found: list[WorkloadProblem]
    ) -> None:
        slot = self.workload(live)
        workload = None if slot is None else _workload(done.after.get(slot)) or self._cached(live)
        seen = self._rollout(live, workload)
        if seen is not None and seen.phase is Phase.ROLLING:
            found += [WorkloadProblem(Reason.PODS_FAILING, one) for one in self._complaints(live)]
            # That time has passed is no event.
            done.requeue_after = min(done.requeue_after or self.PATIENCE, self.PATIENCE)
        await self._write(live, seen, found, workload, self._configured(live, plan, done))

    def _rollout(self, live: K, workload: Workload | None) -> Rollout | None:
        return None if self.workload(live) is None else rollout.assess(workload, self.DAEMON)

    def _complaints(self, live: K) -> list[str]:
        mine = self._pods.store.list(live.metadata.namespace)
        placed_by = datetime.now(UTC) - timedelta(seconds=self.PATIENCE)
        return pod_problems.complaints(mine, self.APP, live.metadata.name, placed_by)

    async def _write(
        self,
        live: K,
        seen: Rollout | None,
        found: list[WorkloadProblem],
        workload: Workload | None,
        configured: Condition | None,
    ) -> None:
        said = [*verdict.conditions(live, seen, found, self.DAEMON)]
        if configured is not None:
            said.append(configured)
        await self._publish(live, said, self.fields(live, workload))

    async def _publish(self, live: K, said: Sequence[Condition], fields: Mapping[str, Any]) -> None:
        """Write conditions, then record Events for those that have changed."""
        old = {one.type: one for one in conditions_of(self._status.newest(live))}
        if not await self._status.write(live, *said, **fields):
            return
        for new in said:
            if _same(old.get(new.type), new):
                continue
            if new.type == wellknown.CONDITION_DEGRADED and new.status == ConditionStatus.TRUE:
                self._events.event(live, "Warning", self.event_reason(new), "Sync", new.message)
            elif new.type == wellknown.CONDITION_CONFIGURED and new.reason in (
                Effect.RESTART,
                Effect.RECONFIGURE,
            ):
                self._events.event(live, "Normal", "ConfigurationChanged", new.reason, new.message)
            elif new.type == wellknown.CONDITION_CONFIGURED and new.reason == Effect.PENDING:
                self._events.event(live, "Warning", Effect.PENDING, "Sync", new.message)

    def event_reason(self, degraded: Condition) -> str:
        """Return under which reason an Event tells of what is wrong."""
        del degraded
        return "SyncFailed"

    async def _announce(
        self, live: K, plan: WorkloadPlan, slot: ChildKey, sent: Manifest, running: Workload
    ) -> None:
        """Say that pods will be replaced for what they read, and leave alone all else that was said."""
        if slot != self.workload(live):
            return
        inputs = Inputs(plan.found, plan.desired.objects)
        configured = self._effect(live, plan, inputs, sent, running, applied=True)
        known = self._status.newest(live)
        kept = [one for one in conditions_of(known) if one.type in verdict.TYPES]
        # These are not of the new version of the spec, and must not seem to be.
        fields = {**self.fields(live, running), "observedGeneration": observed_generation(known)}
        # Who may not write a status may still restart pods.
        with contextlib.suppress(KubeError):
            await self._publish(live, [*kept, configured], fields)

    def _configured(self, live: K, plan: WorkloadPlan, done: ChildrenResult) -> Condition | None:
        """Say what became of the configuration; what was said before if nothing can be said now."""
        slot = self.workload(live)
        if slot is None:
            return None
        sent, previous = done.sent.get(slot), self._previous(live)
        if sent is None or slot in done.failed:
            return previous
        inputs = Inputs(plan.found, plan.desired.objects)
        running = _workload(done.before.get(slot))
        said = self._effect(live, plan, inputs, sent, running, applied=slot in done.changed)
        self._inputs[live.key] = inputs
        return said

    def _effect(
        self,
        live: K,
        plan: WorkloadPlan,
        inputs: Inputs,
        sent: Manifest,
        running: Workload | None,
        *,
        applied: bool,
    ) -> Condition:
        if plan.waiting:
            reason, message = effects.pending(live, self.DAEMON, inputs, plan.waiting)
        else:
            reason, message = effects.effect(
                self.DAEMON,
                inputs,
                sent=sent,
                live=running,
                applied=applied,
                reconfigures=plan.reconfigures,
                changed=inputs.changed(self._inputs.get(live.key)),
                previous=self._previous(live),
            )
        return condition(
            wellknown.CONDITION_CONFIGURED, status=True, reason=reason, message=message, live=live
        )

    def _previous(self, live: K) -> Condition | None:
        return find_condition(conditions_of(self._status.newest(live)), wellknown.CONDITION_CONFIGURED)

    def _cached(self, live: K) -> Workload | None:
        slot = self.workload(live)
        return None if slot is None else _workload(self._children.cached(slot, live.metadata.namespace))


def hold_unreadable(informer: Informer[T], *keys: Key) -> None:
    """Raise KubeError if the present version of one of these objects is unknown."""
    unreadable = informer.store.unreadable
    for key in keys:
        if key in unreadable:
            raise KubeError(f"{informer.kind.RESOURCE.kind} {key} cannot be read: {unreadable[key]}")


def _workload(found: Object | None) -> Workload | None:
    return found if isinstance(found, StatefulSetDetails | DeploymentDetails) else None


def _same(before: Condition | None, new: Condition) -> bool:
    return before is not None and (before.status, before.reason, before.message) == (
        new.status,
        new.reason,
        new.message,
    )
