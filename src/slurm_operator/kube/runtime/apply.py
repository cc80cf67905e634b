"""Server-side apply that writes only when there is something to write.

The API server does the merging: fields that this operator applied before and no longer wants disappear,
fields of others stay. What is left to do here is to not ask at all when nothing can have changed. After each
apply the `Applier` remembers a hash of what it wanted and a fingerprint of what the server answered. The next
apply is skipped if it wants the same and the live object still has that fingerprint. So drift is corrected,
and at rest not one request is sent.

Objects created by Slinky slurm-operator have another owner of their fields: it wrote with plain updates under
the name `manager`, and what it set would stay for ever. The reply to the first apply shows such owners. Their
fields are then handed to a caretaker (`managed_fields`) in one patch guarded by the resourceVersion, and an
empty apply of the caretaker drops what is not wanted. Kubernetes' own controllers write statuses at any time,
so the guard may fail; then both are done again, beginning with the apply, lest an edit in between stays. If
the server refuses to drop something, because a field cannot be changed, the field stays, a warning says so,
and everything else is applied as ever. A crash between any two steps is harmless: the next first apply finds
the caretaker and finishes.

Some fields exclude each other (`_ALTERNATIVES`): where another program has set one of them, an apply of ours
would leave both and is rejected. Then the field is moved from all its owners to the caretaker, and the
caretaker applies the desired object, which replaces one field by the other in a single request.

An apply cannot require that the object does not exist yet: it would take over one that another client created
a moment ago. Where that matters, `create` uses a plain create, which does require it, and then turns the
ownership of its fields into that of an apply. A create owns also what the server filled in; an apply right
after it gives that back, lest the first one after a restart has something to write. A crash in between leaves
an update under our own name, which the next first apply treats like that of a predecessor.

Some of those objects have another controller too, and an object can have only one. The caller names the UIDs
of such `former_owners`; their references are removed before the first apply. The content of an immutable
Secret or ConfigMap can never be changed, but its owner can: there the references are replaced in one patch.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import structlog

from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.decide.applied import (
    Applied,
    AppliedObject,
    ApplyOutcome,
    fingerprint,
    hash_desired,
    is_current,
    outcome_of,
)
from slurm_operator.kube.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from slurm_operator.kube.manifests.managed_fields import (
    claim,
    hand_over,
    has_applied,
    managed_fields,
    with_managers,
    without_managers,
)
from slurm_operator.kube.models.kinds import PodDisruptionBudget, Secret
from slurm_operator.kube.models.meta import Key, Object, Resource
from slurm_operator.kube.process import metrics

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from slurm_operator.kube.client.client import Client

__all__ = ["PREDECESSORS", "Applied", "Applier", "ApplyOutcome", "fingerprint", "hash_desired"]

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Object)

# The field manager of Slinky slurm-operator: client-go takes the name of the binary.
PREDECESSORS = ("manager",)

# Fields of which the API server allows only one: an apply cannot set one while another program owns another.
_ALTERNATIVES: dict[Resource, tuple[tuple[str, ...], ...]] = {
    PodDisruptionBudget.RESOURCE: (("spec", "maxUnavailable"), ("spec", "minAvailable")),
}

# Each further attempt means that another client has written to the object since the previous one.
_ATTEMPTS = 5

# About 25 MiB when full; an evicted record costs one apply that changes nothing.
_MAX_RECORDS = 65_536


class Applier:
    """Applies objects under one field manager and remembers what it applied."""

    def __init__(
        self,
        client: Client,
        field_manager: str = "slurm-operator",
        *,
        predecessors: tuple[str, ...] = PREDECESSORS,
        max_records: int = _MAX_RECORDS,
    ) -> None:
        self._client = client
        self._field_manager = field_manager
        self._caretaker = f"{field_manager}-takeover"
        self._predecessors = frozenset((*predecessors, field_manager))
        self._max_records = max_records
        self._records: OrderedDict[tuple[str, Key], AppliedObject] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    async def apply(
        self,
        desired: Mapping[str, Any],
        live: T | None,
        kind: type[T],
        *,
        former_owners: Collection[str] = (),
        same: bool = False,
    ) -> Applied[T]:
        """Make the object what `desired` says, unless it is that already; `live` comes from the cache.

        `former_owners` are UIDs whose owner references the object must lose. With `same`, only the object
        that was observed is changed; Conflict if it is gone, or another one has its name by now.
        """
        _check(desired, kind)
        uid = live.metadata.uid if same and live is not None else ""
        try:
            outcome, answer = await self._apply(desired, live, kind, former_owners, uid)
        except Invalid as error:
            if not _is_of_another(error):
                raise
            raise Conflict(str(error), status=error.status, reason=error.reason) from None
        metrics.APPLY_TOTAL.labels(kind.RESOURCE.kind, outcome.value).inc()
        return Applied(outcome, answer)

    async def create(self, desired: Mapping[str, Any], kind: type[T]) -> Applied[T]:
        """Make an object that must not exist yet; AlreadyExists if it does."""
        _check(desired, kind)
        made = await self._client.create(with_managers(kind), desired, field_manager=self._field_manager)
        answer = None
        with contextlib.suppress(NotFound):
            answer = await self._own(desired, kind, made)
        if answer is None:
            # Nothing is remembered, so that the next apply is a first one.
            answer = without_managers(kind, made)
        else:
            self._remember((_slot(kind), _key(desired)), AppliedObject(hash_desired(desired), answer))
        metrics.APPLY_TOTAL.labels(kind.RESOURCE.kind, ApplyOutcome.CREATED.value).inc()
        return Applied(ApplyOutcome.CREATED, answer)

    def is_applied(self, desired: Mapping[str, Any], live: Object) -> bool:
        """Return whether an apply would send nothing: the object is that already, as far as is known."""
        record = self._records.get((_slot(type(live)), live.key))
        return record is not None and is_current(record, hash_desired(desired), live)

    async def delete(self, live: T) -> bool:
        """Delete exactly this object, not a later one of its name; return whether this call did it."""
        self.forget(type(live), live.key, live.metadata.uid)
        if live.deleting:
            return False
        try:
            await self._client.delete(type(live), live.key.name, live.key.namespace, uid=live.metadata.uid)
        except (NotFound, Conflict):
            return False
        return True

    def forget(self, kind: type[Object], key: Key, uid: str | None = None) -> None:
        """Drop the memory of an object that is gone; with `uid`, only if it is about that very object."""
        slot = (_slot(kind), key)
        record = self._records.get(slot)
        if record is not None and uid in (None, record.uid):
            del self._records[slot]

    async def _apply(
        self,
        desired: Mapping[str, Any],
        live: T | None,
        kind: type[T],
        former_owners: Collection[str],
        uid: str,
    ) -> tuple[ApplyOutcome, T | None]:
        if live is not None and live.deleting:
            return ApplyOutcome.TERMINATING, live
        key = _key(desired)
        wanted = hash_desired(desired)
        record = self._records.get((_slot(kind), key))
        if live is not None and record is not None and is_current(record, wanted, live):
            self._records.move_to_end((_slot(kind), key))
            return ApplyOutcome.UNCHANGED, live
        foreign = live is not None and not _owner_uids(live).isdisjoint(former_owners)
        if live is not None and getattr(live, "immutable", False):
            if foreign:
                live = await self._replace_owners(desired, live, former_owners)
            return ApplyOutcome.IMMUTABLE, live
        if foreign:
            await self._leave_owners(kind, key, former_owners)
        body = _insisting(desired, uid) if uid else desired
        first = foreign or record is None or (live is not None and live.metadata.uid != record.uid)
        try:
            answer = await self._send(body, kind, first=first)
        except Invalid:
            if not await self._drop_alternatives(body, kind):
                raise
            answer = await self._send(body, kind, first=True)
        self._remember((_slot(kind), key), AppliedObject(wanted, answer))
        return outcome_of(live, record, answer), answer

    async def _send(self, desired: Mapping[str, Any], kind: type[T], *, first: bool) -> T:
        if first:
            return await self._first_apply(desired, kind)
        return await self._client.apply(kind, desired, field_manager=self._field_manager)

    async def _drop_alternatives(self, desired: Mapping[str, Any], kind: type[T]) -> bool:
        """Set our one of several fields that exclude each other; return whether another one was set.

        The other field is moved from all its owners to the caretaker, which then applies the desired object:
        a single request removes one field and sets the other, so the object is never without either.
        """
        unwanted = [path for path in _ALTERNATIVES.get(kind.RESOURCE, ()) if not _has(desired, path)]
        if not unwanted:
            return False
        key = _key(desired)
        try:
            managed = await self._client.get(with_managers(kind), key.name, key.namespace)
        except NotFound:
            return False
        handed = claim(managed_fields(managed), unwanted, self._caretaker)
        if handed is None:
            return False
        log.info("replacing a field that excludes ours", kind=kind.RESOURCE.kind, key=str(key))
        await self._patch(managed, [_replace("managedFields", handed)])
        body = _insisting(desired, managed.metadata.uid)
        await self._client.apply(kind, body, field_manager=self._caretaker)
        return True

    async def _own(self, desired: Mapping[str, Any], kind: type[T], made: T) -> T | None:
        """Turn our create into an apply, as if the object had been made by one; None if that cannot be done.

        Controllers write to a new object at once, and the order of the entries changes with that, so this
        insists on the entry that was seen, and looks again if it has moved.
        """
        namespace, name = made.key
        for _ in range(_ATTEMPTS):
            entries = [(entry.manager, entry.operation) for entry in managed_fields(made)]
            mine = (self._field_manager, "Update")
            if mine not in entries:
                return None
            entry = f"/metadata/managedFields/{entries.index(mine)}"
            operations = [
                {"op": "test", "path": "/metadata/uid", "value": made.metadata.uid},
                {"op": "test", "path": f"{entry}/manager", "value": self._field_manager},
                {"op": "test", "path": f"{entry}/operation", "value": "Update"},
                {"op": "replace", "path": f"{entry}/operation", "value": "Apply"},
            ]
            with contextlib.suppress(Conflict, Invalid):
                await self._client.patch(
                    kind, name, namespace, operations, type=PatchType.JSON, field_manager=self._field_manager
                )
                body = _insisting(desired, made.metadata.uid)
                return await self._client.apply(kind, body, field_manager=self._field_manager)
            made = await self._client.get(with_managers(kind), name, namespace)
        return None

    async def _first_apply(self, desired: Mapping[str, Any], kind: type[T]) -> T:
        """Apply, and where a predecessor made the object, drop what only the predecessor wanted."""
        managed, left = await self._take_over(desired, kind)
        if not left:
            return without_managers(kind, managed)
        metadata = managed.metadata
        # The UID keeps this apply from creating an empty object in place of one that was just deleted.
        nothing = {"metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}}
        try:
            return await self._client.apply(kind, nothing, field_manager=self._caretaker)
        except (BadRequest, Forbidden, Invalid) as error:
            log.warning(
                "cannot remove fields that a previous operator set; they are kept",
                kind=kind.RESOURCE.kind,
                key=str(managed.key),
                error=str(error),
            )
            return without_managers(kind, managed)

    async def _take_over(self, desired: Mapping[str, Any], kind: type[T]) -> tuple[T, bool]:
        """Apply, and give the caretaker what a predecessor set; return whether the caretaker has anything."""
        attempt = 0
        while True:
            attempt += 1
            managed = await self._client.apply(
                with_managers(kind), desired, field_manager=self._field_manager
            )
            entries = managed_fields(managed)
            owners = _desired_owner_uids(desired)
            handed = hand_over(entries, self._predecessors, self._caretaker, owners=owners)
            if handed is None:
                return managed, has_applied(entries, self._caretaker)
            if attempt == 1:
                log.info("adopting the fields of an object", kind=kind.RESOURCE.kind, key=str(managed.key))
            try:
                return await self._patch(managed, [_replace("managedFields", handed)]), True
            except Conflict:
                if attempt == _ATTEMPTS:
                    raise  # the key is retried, and it starts anew because nothing is remembered yet
            desired = _insisting(desired, managed.metadata.uid)

    async def _leave_owners(self, kind: type[Object], key: Key, former: Collection[str]) -> None:
        """Remove the references to former owners, and hand over the fields of the program that set them."""
        managed = await self._client.get(with_managers(kind), key.name, key.namespace)
        references = managed.metadata.owner_references
        kept = [reference for reference in references if reference.uid not in former]
        if len(kept) == len(references):
            return
        operations = [_replace("ownerReferences", kept)]
        # In the same patch: without the reference, nothing shows any more who made the object.
        handed = hand_over(managed_fields(managed), self._predecessors, self._caretaker, owners=former)
        if handed is not None:
            operations.append(_replace("managedFields", handed))
        log.info("replacing the owner of an object", kind=kind.RESOURCE.kind, key=str(key))
        await self._patch(managed, operations)

    async def _replace_owners(self, desired: Mapping[str, Any], live: T, former: Collection[str]) -> T:
        """Exchange the references to former owners for the desired ones, and change nothing else."""
        wanted = _desired_owners(desired)
        gone = {*former, *_desired_owner_uids(desired)}
        kept = [reference for reference in live.metadata.owner_references if reference.uid not in gone]
        log.info("replacing the owner of an object", kind=live.RESOURCE.kind, key=str(live.key))
        return await self._patch(live, [_replace("ownerReferences", [*kept, *wanted])])

    async def _patch(self, target: T, operations: list[dict[str, Any]]) -> T:
        """Patch the metadata of an object if it is still the version at hand; else raise Conflict."""
        guard = _replace("resourceVersion", target.metadata.resource_version)
        return await self._client.patch(
            type(target),
            target.key.name,
            target.key.namespace,
            [*operations, guard],
            type=PatchType.JSON,
            field_manager=self._field_manager,
        )

    def _remember(self, slot: tuple[str, Key], record: AppliedObject) -> None:
        self._records[slot] = record
        self._records.move_to_end(slot)
        if len(self._records) > self._max_records:
            self._records.popitem(last=False)


def _is_of_another(error: Invalid) -> bool:
    """Return whether the server refused a UID: the object of the name is another one."""
    return any(cause.get("field") == "metadata.uid" for cause in error.details.get("causes") or ())


def _key(desired: Mapping[str, Any]) -> Key:
    metadata = desired.get("metadata") or {}
    return Key(metadata.get("namespace", ""), metadata.get("name", ""))


def _has(desired: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    value: Any = desired
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value is not None


def _insisting(desired: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """Return what is desired of this one object: the server refuses to create it or to change another."""
    return {**desired, "metadata": {**desired["metadata"], "uid": uid}}


def _check(desired: Mapping[str, Any], kind: type[Object]) -> None:
    if kind.RESOURCE == Secret.RESOURCE and "stringData" in desired:
        raise ValueError(
            f"Secret {_key(desired)}: stringData cannot be applied, since a key that is left out of it later "
            "stays in the Secret for ever; put the values into data, encoded in base64"
        )


def _desired_owners(desired: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    metadata = desired.get("metadata") or {}
    return metadata.get("ownerReferences") or ()


def _desired_owner_uids(desired: Mapping[str, Any]) -> set[str]:
    return {owner.get("uid", "") for owner in _desired_owners(desired)}


def _owner_uids(live: Object) -> set[str]:
    return {reference.uid for reference in live.metadata.owner_references}


def _replace(field: str, value: object) -> dict[str, Any]:
    """Return the JSON patch operation that replaces a field of the metadata."""
    return {"op": "replace", "path": f"/metadata/{field}", "value": msgspec.to_builtins(value)}


def _slot(kind: type[Object]) -> str:
    return f"{kind.RESOURCE.group}/{kind.RESOURCE.plural}"
