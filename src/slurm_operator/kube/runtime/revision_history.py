"""The revisions of one object: which to use, create, adopt, renumber and delete.

`plan_history` decides, from what the cache shows, and does no I/O. It works on the revisions that belong to
the owner (by controller UID) and on orphans that are its own: they carry its labels, or its name and the
wanted content. It leaves the others alone. Belonging is by UID and not by label, because revisions made by
Slinky slurm-operator lack the labels its own listing looks for; the plan adds them.

An existing revision that stands for the wanted data is used, whatever its hash, so that migrating a set
does not replace its pods. Where there are several, one that pods already carry is preferred, and
`current_hashes` names all of them: a pod with any of these is up to date. A revision stands for the data in
one of three ways:

- Its own data mean the same.
- The owner's status says so. Go's types drop what a user wrote out without need (`hostNetwork: false`, an
  empty `value`, a field they do not know), so a revision of Slinky slurm-operator can say less than the spec
  it was made from, and nothing in it tells that from a real change. But a status that names a hash for the
  generation at hand says which revision this very spec became. This holds for a status of our own no less:
  hash and observed generation are written together, from one reading of the spec.
- It said so before. The next edit raises the generation even if it only scales the set, and the status is
  silent then. So what the status said is kept in an annotation of the revision: a digest of the data that it
  stands for besides its own.

`sync_history` carries out everything but the deletions and settles name collisions; `truncate_history`
deletes. Between the two the caller moves pods, so that a revision is not deleted while it might still be
wanted.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import AlreadyExists, Conflict, NotFound
from slurm_operator.kube.manifests.revisions import (
    HASH_LABEL,
    data_digest,
    go_json,
    hash_of,
    hash_revision,
    next_revision,
    revision_data,
    revision_name,
    same_data,
    sorted_revisions,
)
from slurm_operator.kube.models.kinds import ControllerRevision

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from slurm_operator.kube.client.client import Client

log = structlog.get_logger(__name__)

# Each attempt has a new hash; that many collisions in a row mean that something else is wrong.
_MAX_COLLISIONS = 16


@dataclasses.dataclass(frozen=True)
class HistoryOwner:
    """The object whose history it is; `labels` are those by which its revisions can be listed."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]

    def reference(self) -> dict[str, Any]:
        """Return the controller reference that its revisions carry."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    @property
    def digest_annotation(self) -> str:
        """Return the annotation of a revision with the digest of the data that it stands for."""
        return f"{self.api_version.partition('/')[0]}/stands-for"


@dataclasses.dataclass(frozen=True)
class RevisionPatch:
    """A JSON merge patch of one revision: adopt, label or renumber it."""

    name: str
    body: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class HistoryPlan:
    """What to do; either `current` is the existing revision to use or `create` the one to make."""

    owner: HistoryOwner
    data: Any
    collision_count: int
    current: ControllerRevision | None
    create: dict[str, Any] | None
    current_hashes: frozenset[str]
    patches: tuple[RevisionPatch, ...]
    delete: tuple[ControllerRevision, ...]
    zero_fields: frozenset[str]

    @property
    def settled(self) -> bool:
        """Return whether there is nothing to write."""
        return self.create is None and not self.patches and not self.delete


@dataclasses.dataclass(frozen=True)
class History:
    """Outcome: the revision in use, all hashes that mean the same, and the collision count to remember.

    `written` are the revisions as the API server answered our writes; a cache may show them later.
    """

    current: ControllerRevision
    current_hashes: frozenset[str]
    collision_count: int
    written: tuple[ControllerRevision, ...] = ()


def new_controller_revision(
    owner: HistoryOwner, data: Any, revision: int, collision_count: int
) -> dict[str, Any]:
    """Return the object to create for a revision.

    Its data are Go's bytes: they are immutable, and each patch makes the server encode them anew and compare.
    """
    encoded = go_json(data)
    revision_hash = hash_revision(encoded, collision_count)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(owner.name, revision_hash),
            "namespace": owner.namespace,
            "labels": {**owner.labels, HASH_LABEL: revision_hash},
            "ownerReferences": [owner.reference()],
        },
        "data": msgspec.Raw(encoded),
        "revision": revision,
    }


def plan_history(
    owner: HistoryOwner,
    revisions: Iterable[ControllerRevision],
    data: Any,
    *,
    live: Collection[str],
    limit: int,
    collision_count: int = 0,
    zero_fields: Collection[str] = (),
    trusted: str = "",
) -> HistoryPlan:
    """Decide what happens to an owner's revisions; `live` holds the names or hashes that pods still need.

    `trusted` is the hash in the owner's status (`status.nodeSetHash` of a NodeSet) while its
    `observedGeneration` is the `metadata.generation` of the same reading, else empty. It may be passed
    regardless of which operator wrote the status, as long as `data` is derived from the spec alone: any other
    input can change without a new generation, and the status would hide that change.
    """
    digest = data_digest(data, zero_fields=zero_fields)
    ours: list[ControllerRevision] = []
    equal: list[ControllerRevision] = []
    stands_for: dict[str, str] = {}
    for revision in sorted_revisions(item for item in revisions if _is_candidate(item, owner)):
        same = data_digest(revision_data(revision), zero_fields=zero_fields) == digest
        if not _belongs(revision, owner) and not (same and _is_namesake(revision, owner)):
            continue
        ours.append(revision)
        said = revision.metadata.annotations.get(owner.digest_annotation)
        if same or said == digest or hash_of(revision) == trusted:
            equal.append(revision)
            if not same:
                stands_for[revision.metadata.name] = digest
    # The newest that pods carry; else the one that the status names; else the newest.
    current = max(
        reversed(equal), key=lambda item: (_is_live(item, live), hash_of(item) == trusted), default=None
    )
    number = next_revision(ours)
    create = None
    if current is None:
        create = new_controller_revision(owner, data, number, collision_count)
    elif any(item.revision > current.revision for item in ours if item not in equal):
        # A rollback: the revision in use is always the newest, as `kubectl rollout history` expects.
        number = next_revision(item for item in ours if item is not current)
    else:
        number = current.revision
    patches = [
        _patch(
            revision,
            owner,
            number=number if revision is current else None,
            digest=stands_for.get(revision.metadata.name),
        )
        for revision in ours
    ]
    keep = {hash_of(current)} if current else set()
    past = [item for item in ours if item is not current and not _is_live(item, {*live, *keep})]
    return HistoryPlan(
        owner=owner,
        data=data,
        collision_count=collision_count,
        current=current,
        create=create,
        current_hashes=frozenset(map(hash_of, equal)),
        patches=tuple(patch for patch in patches if patch is not None),
        delete=tuple(past[: max(0, len(past) - max(0, limit))]),
        zero_fields=frozenset(zero_fields),
    )


def _is_candidate(revision: ControllerRevision, owner: HistoryOwner) -> bool:
    """Return whether a revision is not being deleted and is controlled by the owner or has no controller."""
    controller = revision.controller_owner
    return not revision.deleting and (controller is None or controller.uid == owner.uid)


def _belongs(candidate: ControllerRevision, owner: HistoryOwner) -> bool:
    if candidate.controller_owner is not None:
        return True
    return bool(owner.labels) and owner.labels.items() <= candidate.metadata.labels.items()


def _is_namesake(candidate: ControllerRevision, owner: HistoryOwner) -> bool:
    """Return whether a revision has the name that it would have as the owner's."""
    return candidate.metadata.name == revision_name(owner.name, hash_of(candidate))


def _is_live(revision: ControllerRevision, live: Collection[str]) -> bool:
    return revision.metadata.name in live or hash_of(revision) in live


def _patch(
    revision: ControllerRevision, owner: HistoryOwner, *, number: int | None, digest: str | None = None
) -> RevisionPatch | None:
    labels = {**owner.labels, HASH_LABEL: hash_of(revision)}
    missing = {key: value for key, value in labels.items() if revision.metadata.labels.get(key) != value}
    # The UID makes the server refuse the patch if the name belongs to another object by now.
    metadata: dict[str, Any] = {"uid": revision.metadata.uid}
    if missing:
        metadata["labels"] = missing
    if digest is not None and revision.metadata.annotations.get(owner.digest_annotation) != digest:
        metadata["annotations"] = {owner.digest_annotation: digest}
    if revision.controller_owner is None:
        others = msgspec.to_builtins(revision.metadata.owner_references)
        metadata["ownerReferences"] = [*others, owner.reference()]
        metadata["resourceVersion"] = revision.metadata.resource_version
    body: dict[str, Any] = {"metadata": metadata}
    if number is not None and number != revision.revision:
        body["revision"] = number
    if body == {"metadata": {"uid": revision.metadata.uid}}:
        return None
    return RevisionPatch(revision.metadata.name, body)


async def sync_history(client: Client, plan: HistoryPlan) -> History:
    """Adopt, label, renumber and create as planned; return the revision in use."""
    current = plan.current
    written = []
    for patch in plan.patches:
        try:
            patched = await _send(client, plan.owner, patch)
        except NotFound:
            # Another client deleted the revision. Only the one in use matters: without it the plan is void.
            if current is not None and patch.name == current.metadata.name:
                raise
            continue
        written.append(patched)
        if current is not None and patch.name == current.metadata.name:
            current = patched
    if current is not None:
        return History(current, plan.current_hashes, plan.collision_count, tuple(written))
    made = await _create(client, plan)
    return dataclasses.replace(made, written=(*written, made.current))


async def truncate_history(client: Client, plan: HistoryPlan) -> int:
    """Delete the revisions beyond the limit; return how many went."""
    deleted = 0
    for revision in plan.delete:
        try:
            await client.delete(
                ControllerRevision,
                revision.metadata.name,
                revision.metadata.namespace,
                uid=revision.metadata.uid,
            )
        except (NotFound, Conflict):
            continue
        deleted += 1
    return deleted


async def _create(client: Client, plan: HistoryPlan) -> History:
    number = plan.create["revision"] if plan.create else 1
    for count in range(plan.collision_count, plan.collision_count + _MAX_COLLISIONS):
        body = new_controller_revision(plan.owner, plan.data, number, count)
        name = body["metadata"]["name"]
        try:
            # In Go's own bytes, so that a server that re-encodes the data finds them unchanged.
            revision = await client.create(
                ControllerRevision, {**body, "data": msgspec.Raw(go_json(plan.data))}
            )
        except AlreadyExists:
            # The cache lags behind our own create, or behind an orphan, or other content has the same hash.
            revision = await client.get(ControllerRevision, name, plan.owner.namespace)
            if not _is_candidate(revision, plan.owner) or not same_data(
                revision_data(revision), plan.data, zero_fields=plan.zero_fields
            ):
                log.info("revision name is taken", name=name, collision_count=count + 1)
                continue
            patch = _patch(revision, plan.owner, number=max(number, revision.revision))
            if patch is not None:
                revision = await _send(client, plan.owner, patch)
        return History(revision, frozenset({hash_of(revision)}), count)
    raise Conflict(
        f"no free name for a revision of {plan.owner.kind} {plan.owner.namespace}/{plan.owner.name} after "
        f"{_MAX_COLLISIONS} hash collisions; delete its stale ControllerRevisions",
        status=409,
        reason="AlreadyExists",
    )


async def _send(client: Client, owner: HistoryOwner, patch: RevisionPatch) -> ControllerRevision:
    return await client.patch(
        ControllerRevision, patch.name, owner.namespace, patch.body, type=PatchType.MERGE
    )
