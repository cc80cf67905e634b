"""Write pods: make them, change their labels, annotations and conditions, delete them.

Before each create and each delete an expectation is raised. That of a create is withdrawn if the create
fails, also where its outcome is unknown: the name is fixed, so it is repeated. That of a delete is withdrawn
if it certainly had no effect, and expires early if its outcome is unknown. If the name is in use, that pod is
read: our own pod, of a create whose response was lost, is waited for unless the cache shows it by then; any
other is left alone and reported in the condition `Degraded`, unless it is being deleted.

A pod is deleted by its UID and never otherwise. Where a deletion depends on Slurm's data, these must be
recent enough (`deletion`); else Slurm is queried again, in the background, and this reconcile deletes no such
pod. Right before the deletions everything is observed and decided once more, and only pods that may still be
deleted are, while the data are valid: no such deletion is sent later, however long the API server delayed it.
If the response does not arrive soon after that, the outcome of the deletion is unknown until the cache shows
it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import PatchPod, Proof, ReleasePod
from slurm_operator.controllers.nodeset.decide.deletion import ahead_seconds, confirm, in_time, weigh
from slurm_operator.controllers.nodeset.decide.pod_status import metadata_patch, status_patch
from slurm_operator.controllers.nodeset.decide.scale import LONGEST_SECONDS
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.controllers.nodeset.run.background import each, run_decision, slowly
from slurm_operator.controllers.nodeset.run.ownership import matches
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.decide.own_writes import OwnWrites
from slurm_operator.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    KubeError,
    NotFound,
    Overdue,
    ServerError,
)
from slurm_operator.kube.models.kinds import Pod, metadata_only
from slurm_operator.kube.runtime.failures import describe
from slurm_operator.objects import slurmd, slurmd_identity
from slurm_operator.objects.desired import Unbuildable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.actions import (
        CreatePod,
        DeletePod,
        PatchPodStatus,
        Removal,
    )
    from slurm_operator.controllers.nodeset.run.background import SlurmQuestions
    from slurm_operator.controllers.nodeset.run.claim_writes import ClaimWriter
    from slurm_operator.controllers.nodeset.run.reconcile_state import PlannedWork
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.decide.expectations import Expectations
    from slurm_operator.kube.models.meta import Key
    from slurm_operator.kube.runtime.events import EventRecorder
    from slurm_operator.objects.desired import Manifest

# Thousands of labels and conditions must not hold up a drain or a deletion for which the time has come: what
# is left is planned again.
_UPKEEP_SECONDS: Final = 1.0
_CONDITIONS_SECONDS: Final = 0.3
_HURRY_SECONDS: Final = 0.1
_SOON: Final = 0.05
# How long a reconcile deletes at most, and how many pods it decides on at a time.
_DELETING_SECONDS: Final = 10.0
_CONFIRMED_AT_ONCE: Final = 1000
# A few pods are deleted in that time, and need no other list.
_BEFORE_ASKING_SECONDS: Final = 0.1
# For the answer to a deletion that was sent in time; the API server is told to end it in half of that.
_ANSWER_SECONDS: Final = 5.0
# Of a pod that was just created only the UID is needed: the rest comes by the watch.
_CREATED: Final = metadata_only(Pod)
# A pod of another owner may be in none of our caches, so its deletion may cause no event.
_REQUEUE_SECONDS: Final = 10.0


@dataclass(slots=True)
class PodWrites:
    """What was last done to pods.

    Without it, until the cache shows the last writes, a reconcile does not know which worker the one before
    has begun to drain, and may choose another; and pods that keep failing are recreated without a delay.
    """

    answers: OwnWrites[Pod] = field(default_factory=OwnWrites)
    failures: dict[str, tuple[int, float]] = field(default_factory=dict)
    """How many pods of a name have ended in a row, and when the last one was deleted for that."""

    def failed(self, name: str, times: int, now: float) -> None:
        """Note that a pod is deleted because it has ended."""
        self.failures[name] = (times, now)

    def created(self, name: str) -> None:
        """Note that a pod was created, which carries the number of failures itself."""
        self.failures.pop(name, None)

    def tidy(self, now: float) -> None:
        """Forget failures that delay no pod any more."""
        horizon = now - LONGEST_SECONDS
        self.failures = {name: one for name, one in self.failures.items() if one[1] > horizon}


@dataclass(frozen=True, slots=True)
class ConfirmedRemovals:
    """Removals that one list of nodes allows."""

    removals: Sequence[Removal]
    until: float
    """When the list stops counting."""
    ask_at: float
    """When to ask for another list if not all will be done in time; earlier if these are done by then."""
    more: int = 0
    """How many removals follow that need a list, too."""


class Pods:
    """Writes the pods of NodeSets."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        expectations: Expectations[Key],
        claims: ClaimWriter,
        asking: SlurmQuestions,
        cached: Callable[[Key], Pod | None],
    ) -> None:
        self._client = client
        self._events = events
        self._expectations = expectations
        self._claims = claims
        self._asking = asking
        # Returns a pod as the cache has it.
        self._cached = cached

    # ------------------------------------------------------------------------------------------------- create
    async def create(self, work: PlannedWork, actions: Sequence[CreatePod]) -> None:
        """Make workers, slowly at first."""
        if work.template is None:
            return  # why is known, and told already
        made: list[str] = []
        await slowly(actions, lambda action: self._create(work, action, made))
        if made:
            note = write_messages.created(made)
            self._events.event(work.nodeset, "Normal", Reason.SUCCESSFUL_CREATE, "Create", note)

    async def _create(self, work: PlannedWork, action: CreatePod, made: list[str]) -> bool:
        """Make one worker; return whether others should be tried."""
        try:
            worker = _identity(work, action)
            manifest = slurmd.pod(
                _template(work), worker, work.inputs.revision.hash, failures=action.failures
            )
        except Unbuildable as error:
            work.outcome.unbuildable(error)
            return True
        if not await self._claims.prepare(work, worker):
            return not work.outcome.errors
        key, name = work.nodeset.key, action.name
        self._expectations.expect_creations(key, (name,), _now())
        try:
            pod = await self._client.create(_CREATED, manifest)
        except AlreadyExists:
            return await self._taken(work, name)
        except KubeError as error:
            # It may exist now; the name is fixed, so that the next attempt finds it.
            self._expectations.creation_failed(key, name)
            what = f"pod {name!r}"
            work.outcome.failed("create", what, error)
            note = write_messages.failed("create", what, describe(error))
            self._events.event(work.nodeset, "Warning", Reason.FAILED_CREATE, "Create", note)
            return False
        self._expectations.created(key, name, pod.metadata.uid)
        work.state.pods.created(name)
        made.append(name)
        return True

    async def _taken(self, work: PlannedWork, name: str) -> bool:
        """See to a name under which there is a pod that the cache does not show as ours."""
        key = work.nodeset.key
        try:
            live = await self._client.get(Pod, name, key.namespace)
        except KubeError as error:
            self._expectations.creation_failed(key, name)
            work.outcome.failed("read", f"pod {name!r}", error)
            return isinstance(error, NotFound)
        owner = live.controller_owner
        ours = owner is not None and owner.uid == work.nodeset.metadata.uid
        if ours and matches(work.nodeset, live):
            self._expectations.created(key, name, live.metadata.uid)
            shown = self._cached(live.key)
            if shown is not None and shown.metadata.uid == live.metadata.uid:
                # It came into the cache after the plan was made: no other event may follow.
                self._expectations.creation_observed(key, name, live.metadata.uid)
            return True
        self._expectations.creation_failed(key, name)
        work.outcome.requeue_after(_REQUEUE_SECONDS)
        if not live.deleting:
            whose = f"{owner.kind} {owner.name!r}" if owner and not ours else ""
            work.outcome.trouble(Reason.NAME_TAKEN, write_messages.name_taken(name, whose))
        return True

    # ------------------------------------------------------------------------------------------------- change
    async def patch(self, work: PlannedWork, actions: Iterable[PatchPod]) -> None:
        """Change labels and annotations: cordons at once, the rest as far as the time of a reconcile goes."""
        ordered = sorted(actions, key=lambda action: not _is_cordon(action))
        cordons = sum(map(_is_cordon, ordered))

        def patch(action: PatchPod) -> Awaitable[None]:
            return self._patch(work, action.name, metadata_patch(action))

        await each(ordered[:cordons], patch)
        if await each(ordered[cordons:], patch, self._spare(work, _UPKEEP_SECONDS)):
            work.outcome.requeue_after(_SOON)

    async def patch_status(self, work: PlannedWork, actions: Iterable[PatchPodStatus], pause: float) -> None:
        """Change conditions of ours; those of the kubelet are in the same list and stay.

        `pause`: for how many seconds nothing else is to be done, unless the NodeSet is changed.
        """
        generation = work.nodeset.metadata.generation

        async def patch(action: PatchPodStatus) -> None:
            if work.generation() == generation:
                await self._patch(work, action.name, status_patch(action), subresource="status")

        left = await each(actions, patch, self._spare(work, max(_CONDITIONS_SECONDS, pause)))
        if left:
            work.outcome.requeue_after(_SOON)

    def _spare(self, work: PlannedWork, seconds: float) -> float:
        """Return the time for what can wait: hardly any while deletions wait for an answer of Slurm."""
        return min(seconds, _HURRY_SECONDS) if self._asking.under_way(work) else seconds

    async def _patch(
        self, work: PlannedWork, name: str, body: Manifest, subresource: str | None = None
    ) -> None:
        namespace = work.nodeset.metadata.namespace
        # By strategic merge, lists of conditions are merged by type.
        try:
            live = await self._client.patch(
                Pod, name, namespace, body, type=PatchType.STRATEGIC, subresource=subresource
            )
        except NotFound:
            return
        except KubeError as error:
            work.outcome.failed("change", f"pod {name!r}", error)
        else:
            work.state.pods.answers.changed(live)

    # ------------------------------------------------------------------------------------------------- delete
    async def remove(self, work: PlannedWork, actions: Sequence[Removal]) -> None:
        """Delete or release pods, those on Slurm's word only while that is new enough; else it is asked."""
        certain = [action for action in actions if action.proof is Proof.NONE]
        doubtful = tuple(action for action in actions if action.proof is not Proof.NONE)
        gone: defaultdict[str, list[str]] = defaultdict(list)
        await each(certain, lambda action: self._remove(work, action, gone))
        if doubtful:
            await self._delete_confirmed(work, doubtful, gone)
        for cause, some in sorted(gone.items()):
            note = write_messages.deleted(cause, some)
            self._events.event(work.nodeset, "Normal", Reason.SUCCESSFUL_DELETE, "Delete", note)

    async def _delete_confirmed(
        self, work: PlannedWork, removals: Sequence[Removal], gone: defaultdict[str, list[str]]
    ) -> None:
        """Delete and release while what Slurm said counts; have it asked again for what is left then."""
        left, end = removals, _now() + _DELETING_SECONDS
        while left:
            # Much may have been written since the plan was made, and that takes time.
            seen = await work.observe_again()
            if _another(seen.nodeset, work.nodeset) or _now() > end:
                work.outcome.requeue_after(_SOON)
                return
            weighed = weigh(seen, work.state.evidence.confirmed, left)
            if not weighed.ready:
                self._asking.order(work, [one.slurm_name for one in left if one.proof is Proof.NAME])
                return
            ready, more = weighed.ready[:_CONFIRMED_AT_ONCE], weighed.ready[_CONFIRMED_AT_ONCE:]
            allowed = await run_decision(seen, partial(confirm, seen, ready))
            if len(allowed) < len(ready):
                work.outcome.requeue_after(2.0)
            batch = ConfirmedRemovals(allowed, weighed.until, weighed.until - ahead_seconds(seen), len(more))
            late = await self._delete_batch(work, batch, gone)
            left = [*late, *more, *weighed.open]

    async def _delete_batch(
        self, work: PlannedWork, batch: ConfirmedRemovals, gone: defaultdict[str, list[str]]
    ) -> list[Removal]:
        """Delete and release pods while their list counts; return those that are left."""

        def delete(action: Removal) -> Awaitable[None]:
            return self._remove(work, action, gone, batch.until, unsent)

        unsent: list[Removal] = []
        begun = _now()
        late = await each(batch.removals, delete, max(batch.ask_at - begun, _BEFORE_ASKING_SECONDS))
        if left := len(late) + batch.more:
            now = _now()
            if not in_time(len(batch.removals) - len(late), now - begun, left, batch.until - now):
                # So that there is another list when this one counts no more; the watch may just have asked.
                self._asking.order(work)
            late = await each(late, delete, batch.until - now)
        return [*unsent, *late]

    async def _remove(
        self,
        work: PlannedWork,
        action: Removal,
        gone: defaultdict[str, list[str]],
        end: float | None = None,
        unsent: list[Removal] | None = None,
    ) -> None:
        """Delete or release a pod, but send nothing after a moment; what comes later is noted as `unsent`."""
        if isinstance(action, ReleasePod):
            await self._release(work, action, end, unsent)
        else:
            await self._delete(work, action, gone, end, unsent)

    async def _release(
        self, work: PlannedWork, action: ReleasePod, end: float | None, unsent: list[Removal] | None
    ) -> None:
        """Take the label of protection from a pod that has not changed."""
        try:
            live = await self._client.patch(
                Pod,
                action.name,
                work.nodeset.metadata.namespace,
                metadata_patch(
                    PatchPod(
                        action.name, action.uid, {wellknown.LABEL_POD_PROTECT: None}, version=action.version
                    )
                ),
                type=PatchType.STRATEGIC,
                timeout=None if end is None else max(0.0, end - _now()) + _ANSWER_SECONDS,
                not_after=end,
            )
        except (NotFound, Conflict):
            work.outcome.requeue_after(1.0)
        except KubeError as error:
            if isinstance(error, Overdue) and unsent is not None:
                unsent.append(action)
                return
            work.outcome.failed("remove", f"the protection of pod {action.name!r}", error)
        else:
            work.state.pods.answers.changed(live)

    async def _delete(
        self,
        work: PlannedWork,
        action: DeletePod,
        gone: defaultdict[str, list[str]],
        end: float | None = None,
        unsent: list[Removal] | None = None,
    ) -> None:
        """Delete a pod, but send nothing after a moment; what gets its turn later is noted as `unsent`."""
        key, now = work.nodeset.key, _now()
        if action.failures:
            work.state.pods.failed(action.name, action.failures, now)
        self._expectations.expect_deletions(key, (action.uid,), now)
        try:
            await self._client.delete(
                Pod,
                action.name,
                key.namespace,
                uid=action.uid,
                resource_version=action.version or None,
                timeout=None if end is None else max(0.0, end - now) + _ANSWER_SECONDS,
                not_after=end,
            )
        except (NotFound, Conflict):
            self._expectations.deletion_failed(key, action.uid)
            work.outcome.requeue_after(1.0)
        except KubeError as error:
            if _without_effect(error):
                self._expectations.deletion_failed(key, action.uid)
            else:
                self._expectations.deletion_unknown(key, action.uid, _now())
            if isinstance(error, Overdue) and unsent is not None:
                unsent.append(action)
                return
            what = f"pod {action.name!r}"
            work.outcome.failed("delete", what, error)
            note = write_messages.failed("delete", what, describe(error))
            self._events.event(work.nodeset, "Warning", Reason.FAILED_DELETE, "Delete", note)
        else:
            gone[action.cause.value].append(action.name)


def _identity(work: PlannedWork, action: CreatePod) -> slurmd_identity.WorkerIdentity:
    nodes = work.seen.nodes
    if action.ordinal is None:
        return slurmd_identity.of_node(nodes[action.node], action.name)
    return slurmd_identity.numbered(work.nodeset, action.ordinal, nodes.get(action.pin))


def _template(work: PlannedWork) -> slurmd.WorkerTemplate:
    assert work.template is not None  # noqa: S101 - narrows: without a template nothing is created
    return work.template


def _another(now: NodeSet, then: NodeSet) -> bool:
    """Return whether something else is asked of a NodeSet by now."""
    return now.metadata.generation != then.metadata.generation or now.deleting != then.deleting


def _is_cordon(action: PatchPod) -> bool:
    return wellknown.ANNOTATION_POD_CORDON in action.annotations


def _without_effect(error: KubeError) -> bool:
    """Return whether a write that failed certainly changed nothing."""
    refused = isinstance(error, ApiError) and not isinstance(error, ServerError)
    return refused or not getattr(error, "sent", True)


def _now() -> float:
    return asyncio.get_running_loop().time()
