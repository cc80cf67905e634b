"""The key of the daemons: it may not be replaced in one step while workers have it.

Daemons authenticate each other with one key. A worker that runs a job keeps the key it started with until the
job ends, while slurmctld is restarted with another one at once: from then on the two reject each other's
messages, and after `SlurmdTimeout` slurmctld gives the job up. Once the Secret is written it is too late:
even if the operator delayed its own changes, any pod that starts for another reason would have the new key.
So the write is rejected, while nothing is lost yet.

A set of keys (`….jwks`) is the way to rotate keys, since old and new are both accepted: it may be replaced by
another set with which workers and slurmctld can still communicate (`keysets`). It may not be removed, and
neither a Controller nor its Accounting may switch from it, or from one key, to a single key that the webhook
cannot compare with the key of the workers. Helm goes on with the rest of a release when one object is
rejected: so the Secret, the Controller and the Accounting are all checked, or half a cluster would have the
other key. Where there are no workers, every change is allowed.

Contents are neither kept nor repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from slurm_operator.objects.pod_parts import is_key_set
from slurm_operator.webhook.rules import keysets
from slurm_operator.webhook.rules.findings import CauseType
from slurm_operator.webhook.rules.keysets import Loss
from slurm_operator.webhook.rules.world import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_operator.api import Accounting, Controller
    from slurm_operator.api.shared import SecretKeySelector
    from slurm_operator.webhook.rules.findings import Findings
    from slurm_operator.webhook.rules.world import World

_REF: Final = "spec.slurmKeyRef.key"
_STEPS: Final = "Rotate the key in three steps with slurm.jwks (docs/guides/keys.md)"
REPLACED: Final = Loss(_STEPS)
GONE: Final = Loss("Keep it")


class Content(msgspec.Struct, frozen=True):
    """What decides about a Secret, and nothing else of it; never printed."""

    metadata: dict[str, Any] = {}
    data: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"Content(keys={sorted(self.data or ())})"

    @property
    def dying(self) -> bool:
        """Return whether the Secret is being deleted."""
        return bool(self.metadata.get("deletionTimestamp"))


def lost(old: Content, new: Content, now: float) -> Mapping[str, Loss]:
    """Return the keys whose content workers would miss, and of each what is wrong with that.

    No daemon starts with an empty key, so an empty one is no loss.
    """
    after = new.data or {}
    losses = {
        key: _loss(key, text, after.get(key), now)
        for key, text in (old.data or {}).items()
        if text and after.get(key) != text
    }
    return {key: loss for key, loss in losses.items() if loss is not None}


def _loss(key: str, before: str, after: str | None, now: float) -> Loss | None:
    if not is_key_set(key):
        return REPLACED
    return GONE if after is None else keysets.lost(before, after, now)


def check_loss(secret: str, losses: Mapping[str, Loss], world: World, findings: Findings) -> None:
    """Refuse changes of a Secret by which a cluster with workers would lose its key."""

    def complaint(controller: Controller) -> tuple[str, str, str] | None:
        ref = controller.spec.slurm_key_ref
        if ref is None or ref.name != secret or ref.key not in losses:
            return None
        what = "set of keys" if is_key_set(ref.key) else "key"
        problem, loss = f"is the {what} of Controller {controller.metadata.name!r}", losses[ref.key]
        if loss.fault:
            problem = f"{problem}, and the daemons cannot use this value: {loss.fault}"
        return f"data[{ref.key}]", problem, loss.way

    _check_clusters("data", complaint, world, findings)


def switches(after: SecretKeySelector | None, before: SecretKeySelector | None) -> bool:
    """Return whether the reference changes to another single key, which the workers may not have."""
    return before is not None and after is not None and after.key != before.key and not is_key_set(after.key)


def check_controller(controller: Controller, world: World, findings: Findings) -> None:
    """Refuse that a Controller with workers names another single key."""

    def complaint(other: Controller) -> tuple[str, str, str] | None:
        if other.metadata.name != controller.metadata.name:
            return None
        return _REF, "names a single key, which may differ from the current one", _STEPS

    _check_clusters(_REF, complaint, world, findings)


def check_accounting(accounting: Accounting, world: World, findings: Findings) -> None:
    """Refuse that the Accounting of a Controller with workers names another single key than that has."""

    def complaint(controller: Controller) -> tuple[str, str, str] | None:
        ref = controller.spec.accounting_ref
        if ref is None or ref.name != accounting.metadata.name:
            return None
        mine, theirs = accounting.spec.slurm_key_ref, controller.spec.slurm_key_ref
        if mine and theirs and (mine.name, mine.key) == (theirs.name, theirs.key):
            return None  # it had another one, and this is the cure
        whose = f"that of Controller {controller.metadata.name!r}"
        return _REF, f"names a single key, which may differ from {whose}", _STEPS

    _check_clusters(_REF, complaint, world, findings)


def _check_clusters(
    path: str,
    complaint: Callable[[Controller], tuple[str, str, str] | None],
    world: World,
    findings: Findings,
) -> None:
    """Reject a change if a cluster that it affects has workers, or if that cannot be determined.

    A complaint is the field, the problem, and the way to do it in more steps; none if there is no way.
    """
    if isinstance(world.clusters, Unreadable):
        reason = world.clusters.reason
        findings.deny(path, f"cannot determine which Controllers use this key: {reason}")
        return
    for cluster in world.clusters:
        # Where slurmctld runs elsewhere, its key is not rotated from here either.
        told = None if cluster.controller.spec.external else complaint(cluster.controller)
        if told is None or cluster.worker is None:
            continue
        path, problem, way = told
        if isinstance(cluster.worker, Unreadable):
            reason = cluster.worker.reason
            findings.deny(path, f"{problem}, and its workers cannot be listed: {reason}")
            continue
        if not way:
            findings.deny(path, f"{problem}. docs/guides/keys.md shows the format")
            continue
        example = f" (such as pod {cluster.worker!r})" if cluster.worker else ""
        findings.deny(
            path,
            f"{problem}, and cannot be replaced in one step: its workers{example} keep the old key while "
            f"their jobs run, so slurmctld would lose contact with them and fail the jobs. {way}, or scale "
            "its NodeSets to 0 first, which waits for the jobs",
            CauseType.FORBIDDEN,
        )
