"""`drain` and `undrain`: the cordon annotation of a worker's pod, which the operator carries into Slurm.

The command needs no credentials of Slurm. It changes only a cordon of a user: what the operator cordoned, and
what was drained in Slurm, is undone where it was done. Whose cordon it is stands at the end of its reason.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import Conflict, NotFound
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.plugin.exits import CommandError, ExitCode
from slurm_operator.plugin.explanations import CAUSES
from slurm_operator.plugin.text_tables import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.kube.client.client import Client
    from slurm_operator.plugin.commands import CommandSession
    from slurm_operator.status_rows import WorkerRow

FIELD_MANAGER: Final = "kubectl-slurm"
_TRIES: Final = 3
_REVIEW: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass(frozen=True, slots=True)
class CordonChange:
    """Annotations to change, None removes, and what to print; no annotations: nothing is to be done."""

    annotations: dict[str, str | None]
    message: str


def drain_change(worker: WorkerRow, annotations: dict[str, str], reason: str, user: str) -> CordonChange:
    """Return what makes a worker take no new jobs."""
    node = f"Slurm node {worker.slurm_node} (pod {worker.namespace}/{worker.pod})"
    cordoned = annotations.get(wellknown.ANNOTATION_POD_CORDON) == wellknown.TRUE
    if cordoned and not annotations.get(wellknown.ANNOTATION_POD_CORDON_BY):
        told = annotations.get(wellknown.ANNOTATION_POD_CORDON_REASON) or "no reason given"
        return CordonChange({}, f"{node} is drained by a user already: {visible(told)}")
    change: dict[str, str | None] = {
        wellknown.ANNOTATION_POD_CORDON: wellknown.TRUE,
        wellknown.ANNOTATION_POD_CORDON_REASON: signed(reason, user),
    }
    message = f"{node} takes no new jobs; running jobs continue"
    if cordoned:
        # Without the mark the cordon is a user's, and stays when the operator has no cause for it any more.
        change[wellknown.ANNOTATION_POD_CORDON_BY] = None
        message += "; it stays drained also after the operator would have put it back into service"
    return CordonChange(change, message)


def undrain_change(worker: WorkerRow, annotations: dict[str, str], user: str, *, force: bool) -> CordonChange:
    """Return what takes a user's cordon back; CommandError if the drain is not one to undo here."""
    node = f"Slurm node {worker.slurm_node} (pod {worker.namespace}/{worker.pod})"
    by = annotations.get(wellknown.ANNOTATION_POD_CORDON_BY, "")
    by_whom = worker.state_reason_by or "a user or Slurm"
    in_slurm = (
        f"it was drained in Slurm by {by_whom}, reason {worker.state_reason!r}: "
        f"undo it there, with scontrol update nodename={worker.slurm_node} state=resume"
    )
    if by:
        fix = f": kubectl uncordon {worker.kubernetes_node}" if by == "NodeCordoned" else ""
        raise CommandError(f"{node} is drained by the operator ({by}): {CAUSES.get(by, by)}{fix}")
    if annotations.get(wellknown.ANNOTATION_POD_CORDON) != wellknown.TRUE:
        if worker.drained_by == "other":
            raise CommandError(f"{node} is not drained by this command: {in_slurm}")
        return CordonChange({}, f"{node} is not drained")
    reason = annotations.get(wellknown.ANNOTATION_POD_CORDON_REASON, "")
    if not force and not (user and reason.endswith(signature(user))):
        whose = f"another user ({visible(reason)})" if reason else "a user, by its annotation"
        raise CommandError(f"{node} was drained by {whose}: to undo that nevertheless, add --force")
    message = f"{node} takes jobs again when the operator has undrained it"
    if worker.drained_by == "other":
        message = f"the cordon of {node} is removed, but {in_slurm}"
    removed = {wellknown.ANNOTATION_POD_CORDON: None, wellknown.ANNOTATION_POD_CORDON_REASON: None}
    return CordonChange({**removed}, message)


def signature(user: str) -> str:
    """Return the end of a reason that says whose it is."""
    return f" (by {user})"


def signed(reason: str, user: str) -> str:
    """Return a reason with its author, cut so that the author stays readable."""
    end = signature(user) if user else ""
    return visible(reason)[: wellknown.MAX_NODE_REASON - len(end)].rstrip() + end


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _ReviewStatus(msgspec.Struct, rename="camel", frozen=True):
    user_info: _UserInfo = _UserInfo()


class _SelfReview(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


async def who_am_i(client: Client) -> str:
    """Return the user name that the API server sees; empty if it cannot say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        reply = await client.raw("POST", _REVIEW, body=body, fenced=False)
    except NotFound:
        return ""
    return msgspec.json.decode(reply, type=_SelfReview).status.user_info.username


async def drain(session: CommandSession, worker: WorkerRow) -> int:
    """Let a worker take no new jobs."""
    user = await who_am_i(session.client)
    reason = session.options.reason
    return await _change(session, worker, lambda found: drain_change(worker, found, reason, user))


async def undrain(session: CommandSession, worker: WorkerRow) -> int:
    """Take a user's cordon back."""
    user = await who_am_i(session.client)
    force = session.options.force
    return await _change(session, worker, lambda found: undrain_change(worker, found, user, force=force))


async def _change(
    session: CommandSession, worker: WorkerRow, decide: Callable[[dict[str, str]], CordonChange]
) -> int:
    """Change the annotations of the pod as it is now; if it changes meanwhile, decide again."""
    for attempt in range(1, _TRIES + 1):
        try:
            pod = await session.client.get(Pod, worker.pod, worker.namespace)
        except NotFound:
            raise CommandError(f"pod {worker.namespace}/{worker.pod} is gone", ExitCode.NOT_FOUND) from None
        change = decide(dict(pod.metadata.annotations))
        if change.annotations:
            version = {"resourceVersion": pod.metadata.resource_version, "uid": pod.metadata.uid}
            body = {"metadata": {**version, "annotations": change.annotations}}
            try:
                await session.client.patch(
                    Pod, worker.pod, worker.namespace, body, type=PatchType.MERGE, field_manager=FIELD_MANAGER
                )
            except Conflict:
                if attempt == _TRIES:
                    raise
                continue
        sys.stdout.write(f"{visible(change.message)}\n")
        return ExitCode.DONE
    raise AssertionError
