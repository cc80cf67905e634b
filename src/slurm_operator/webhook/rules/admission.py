"""Whether a write is admitted: the rules of the kind, and what is special about updates.

A new object is validated by the rules of its kind. An update has three more questions. Does it change an
immutable field (`api.immutable`)? Did a mistake exist before? Then it is no reason to reject the rest of the
change: an object that an older version accepted can be fixed field by field, and the mistake becomes a
warning. And does the update change the spec at all? A client that adds a label, a finalizer or a status, or
removes a finalizer from an object that is being deleted, must never be rejected, even if the spec is invalid:
an object can always be deleted.

What cannot be decoded is refused like any other mistake, by the path of the field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from slurm_operator.api.immutable import immutable_values
from slurm_operator.api.markers import Immutable
from slurm_operator.kube.models.meta import Part
from slurm_operator.webhook.rules import CHECKS, check_change
from slurm_operator.webhook.rules.findings import CauseType, Finding, Findings
from slurm_operator.webhook.rules.wording import explain
from slurm_operator.webhook.rules.world import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.api.shared import Kind
    from slurm_operator.webhook.rules.world import World

K = TypeVar("K", bound=msgspec.Struct)

# The API server cuts warnings beyond this length, and drops those beyond 4096 characters in all.
_LONGEST_WARNING: Final = 240
_MOST_WARNINGS: Final = 3800
_OLD: Final = "not changed by this update, so only a warning: "
_INDEX: Final = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: refused if there is an error."""

    errors: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Return whether the write is admitted."""
        return not self.errors


ALLOWED = Verdict()


def validate(
    new: Kind, old: Kind | None = None, world: World = NOTHING
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Validate an object, or the change from an old one to it: return errors and warnings."""
    findings = _check(new, world)
    errors = list(findings.errors.values())
    warnings = list(findings.warnings)
    if old is not None:
        before = {_mark(finding) for finding in _check(old, world).errors.values()}
        known = [finding for finding in errors if _mark(finding) in before]
        errors = [finding for finding in errors if _mark(finding) not in before]
        warnings = [f"{finding.path}: {_OLD}{finding.message}" for finding in known] + warnings
        errors += changed(new, old)
        step = Findings()
        check_change(new, old, world, step)
        errors += step.errors.values()
    return tuple(errors), _fit(warnings)


def changed(new: Kind, old: Kind) -> Iterable[Finding]:
    """Yield an error for each value that an update changes and may not."""
    before = immutable_values(old)
    for path, value in immutable_values(new).items():
        if value != before[path]:
            was = _shown(before[path])
            keep = f"keep {was}: " if was else ""
            yield Finding(path, f"{keep}{_note(type(new), path)}", CauseType.FORBIDDEN)


def decode(kind: type[K], raw: bytes) -> K:
    """Return an object as a struct; raise `Undecodable`, which has a finding, if it is none."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        path, problem = explain(error)
        raise Undecodable(Finding(path or "object", problem)) from None
    except RecursionError:
        raise Undecodable(Finding("object", "cannot be read: it is nested too deeply")) from None


class Undecodable(Exception):  # noqa: N818 - it says what became of the object
    """An object that is not of the shape of its kind."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class _Shell(msgspec.Struct):
    """What decides whether the rules have a say at all, read whatever the spec may be."""

    metadata: dict[str, Any] = {}
    spec: Any = None


def harmless(new: bytes, old: bytes | None) -> bool:
    """Return whether a write must pass whatever the rules say: of a dying object, or of all but the spec."""
    try:
        after = msgspec.json.decode(new, type=_Shell)
        before = msgspec.json.decode(old, type=_Shell) if old is not None else None
    except (msgspec.MsgspecError, RecursionError):
        return False
    if before is None:
        return False
    return bool(after.metadata.get("deletionTimestamp")) or after.spec == before.spec


# ----------------------------------------------------------------------------------------------------- parts


def _check(item: Kind, world: World) -> Findings:
    findings = Findings()
    CHECKS[type(item)](item, world, findings)
    return findings


def _mark(finding: Finding) -> tuple[str, str]:
    """Return what makes two findings the same, although an item of a list may have moved."""
    return _INDEX.sub("[]", finding.path), _INDEX.sub("[]", finding.message)


def _shown(value: Any) -> str:
    """Return a former value as it is shown in a message; empty if it is not short."""
    if isinstance(value, Part):
        return ", ".join(f"{key} {item!r}" for key, item in msgspec.to_builtins(value).items())
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str) and value else ""


def _note(kind: type[Kind], path: str) -> str:
    """Return what the API's documentation says of an immutable field, to go on in a sentence."""
    struct: Any = kind
    marker: Immutable = Immutable()
    for name in path.split("."):
        field = next(item for item in msgspec.structs.fields(struct) if item.encode_name == name)
        hint = field.type
        for candidate in getattr(hint, "__metadata__", ()):
            if isinstance(candidate, Immutable):
                marker = candidate
        struct = getattr(hint, "__origin__", hint)
    return f"{marker.note[0].lower()}{marker.note[1:]}".removesuffix(".")


def _fit(warnings: list[str]) -> tuple[str, ...]:
    """Return warnings that the API server passes on whole."""
    fitting: list[str] = []
    room = _MOST_WARNINGS
    for text in warnings:
        short = text if len(text) <= _LONGEST_WARNING else f"{text[: _LONGEST_WARNING - 1]}…"
        room -= len(short)
        if room < 0:
            break
        fitting.append(short)
    return tuple(fitting)
