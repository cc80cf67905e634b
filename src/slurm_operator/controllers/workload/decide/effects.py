"""What a changed configuration led to: a restart, a reconfigure, or nothing; pure.

The condition `Configured` keeps the last result. Its message ends with a digest of the configuration files,
so that an operator that was down in the meantime also detects that they have changed. Keys and passwords are
not part of that digest: a user who may read the status must not be able to test guesses against it. They are
covered by the hashes in the pod template, which change with them and so always cause a restart.

A restart is reported before the template that causes it is written: otherwise an operator that dies in
between would leave a status without it, and the next one could not detect that the workload was restarted.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.api.shared import Condition, Kind
    from slurm_operator.controllers.workload.decide.read_models import Workload
    from slurm_operator.objects.content_references import Found
    from slurm_operator.objects.desired import Manifest

# What the hashes in a pod template stand for, as messages name it.
_HASHES: Final = {
    wellknown.ANNOTATION_SLURM_KEY_HASH: wellknown.FILE_SLURM_KEY,
    wellknown.ANNOTATION_JWT_KEY_HASH: wellknown.FILE_JWT_KEY,
    wellknown.ANNOTATION_SLURM_CONFIG_HASH: "the configuration",
    wellknown.ANNOTATION_REFERENCED_FILES_HASH: "the files that the configuration refers to",
    wellknown.ANNOTATION_SLURMDBD_CONF_HASH: wellknown.FILE_SLURMDBD_CONF,
    wellknown.ANNOTATION_SSHD_CONF_HASH: wellknown.FILE_SSHD_CONFIG,
    wellknown.ANNOTATION_SSSD_CONF_HASH: wellknown.FILE_SSSD_CONF,
    wellknown.ANNOTATION_SSH_HOST_KEYS_HASH: "the SSH host keys",
}
_DIGEST_LENGTH: Final = 12
# Far below what a condition may hold.
_LONGEST: Final = 4000


class Effect(StrEnum):
    """What became of a configuration."""

    STARTED = "Started"
    RESTART = "Restart"
    RECONFIGURE = "Reconfigure"
    NOTHING = "Nothing"
    PENDING = "CorrectionsPending"
    """Files of Slinky slurm-operator stay until a change or the user's consent (`objects.corrections`)."""


class Inputs:
    """The digest of each input that a daemon reads, by its name in messages."""

    def __init__(self, found: Found, manifests: Iterable[Manifest]) -> None:
        self.files: dict[str, str] = {}
        self.secrets: dict[str, str] = {}
        for name, config_map in sorted(found.config_maps.items()):
            data = {key: text.encode() for key, text in (config_map.data or {}).items()}
            self.files[f"ConfigMap {name!r}"] = _digest(data | (config_map.binary_data or {}))
        for manifest in manifests:
            if manifest["kind"] == "ConfigMap":
                for name, text in sorted(manifest["data"].items()):
                    self.files[name] = _digest({name: text.encode()})
        for name, secret in sorted(found.secrets.items()):
            self.secrets[f"Secret {name!r}"] = _digest(secret.data or {})

    @property
    def digest(self) -> str:
        """Return a short digest of all files that are no secrets."""
        whole = {name: digest.encode() for name, digest in self.files.items()}
        return _digest(whole)[:_DIGEST_LENGTH]

    def changed(self, before: Inputs | None) -> list[str]:
        """Return what has other content than before, is new or is gone; nothing if that cannot be told."""
        if before is None:
            return []
        old, new = before.files | before.secrets, self.files | self.secrets
        return [name for name in new | old if old.get(name) != new.get(name)]


def hashes(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return those annotations of a pod template that change with what the pod reads."""
    return {name: value for name, value in annotations.items() if name in _HASHES}


def effect(
    daemon: str,
    inputs: Inputs,
    *,
    sent: Manifest,
    live: Workload | None,
    applied: bool,
    reconfigures: bool,
    changed: Iterable[str],
    previous: Condition | None,
) -> tuple[str, str]:
    """Return reason and message of the condition.

    `sent` and `live` are the workload as it was to be applied and as it was before; `applied` tells whether
    it is written just now. `changed` is what is known to have other content, if that is known at all.
    """
    # A daemon that reads nothing but secrets has no digest, and then only its template can tell of a change.
    ending = f"; configuration {inputs.digest}" if inputs.files else ""
    if live is None:
        return Effect.STARTED, f"{daemon} starts with the current configuration{ending}"
    differing = differing_hashes(sent, live)
    if applied and differing:
        what = _join(changed) or _join(_HASHES[name] for name in differing)
        return Effect.RESTART, f"Restarting the pods of {daemon} because of changes in {what}{ending}"
    if previous is not None and previous.message.endswith(ending):
        if previous.reason != Effect.PENDING:
            return previous.reason, previous.message
        previous = None
    if previous is None:
        return Effect.STARTED, f"{daemon} already runs with the current configuration{ending}"
    what = _join(changed) or "its files"
    if reconfigures:
        return (
            Effect.RECONFIGURE,
            f"{daemon} is reconfigured without a restart because of changes in {what}{ending}",
        )
    return Effect.NOTHING, f"Changes in {what} affect no running pod of {daemon}{ending}"


def pending(live: Kind, daemon: str, inputs: Inputs, waiting: Iterable[str]) -> tuple[str, str]:
    """Return reason and message of the condition while corrections wait."""
    kind, name, namespace = live.RESOURCE.kind, live.metadata.name, live.metadata.namespace
    what = "; ".join(waiting)
    if len(what) > _LONGEST:
        what = what[: _LONGEST - 1] + "…"
    command = (
        f"kubectl -n {namespace} annotate {kind.lower()}s.slinky.slurm.net {name} "
        f"{wellknown.ANNOTATION_APPLY_CORRECTIONS}={wellknown.TRUE}"
    )
    ending = f"; configuration {inputs.digest}" if inputs.files else ""
    return Effect.PENDING, (
        f"{daemon} keeps the configuration of Slinky slurm-operator. The next change that restarts it also "
        f"applies these corrections: {what}. To apply them now, with a restart: {command}{ending}"
    )


def differing_hashes(sent: Manifest, live: Workload) -> list[str]:
    """Return the hashes in a template that are others than those of the running one, or are gone from it."""
    template: dict[str, Any] = sent["spec"]["template"]["metadata"]
    ours, theirs = hashes(template["annotations"]), hashes(live.spec.template_annotations)
    return [name for name in ours | theirs if ours.get(name) != theirs.get(name)]


def _join(words: Iterable[str]) -> str:
    *others, last = [*dict.fromkeys(words)] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _digest(parts: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(parts.items()):
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
