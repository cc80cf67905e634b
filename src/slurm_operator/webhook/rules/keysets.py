"""A set of the daemons' keys (`slurm.jwks`), read as Slurm reads it, and the steps that a set may take.

All keys of a set are accepted, unless they have expired (`exp`). One signs: the one whose `use` is `default`,
or else the first. A message names its key by `kid`, so a key is the same only if its `kid` is.

During a change a busy worker has the old set and slurmctld the new one. They can communicate as long as each
has the key that the other signs with. That is the whole rule: the new set keeps the old signing key, and the
old set already has the new signing key.

Daemons do not start with a set that they cannot read, and with one whose signing key has expired they reject
each other's messages. A change to such a set is always rejected; a change from one to any usable set is
allowed.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from slurm_operator.webhook.rules.wording import explain

_BASE64: Final = str.maketrans("-_", "+/")
_DOCS: Final = "(docs/guides/keys.md)"


@dataclass(frozen=True, slots=True)
class Loss:
    """What is wrong with a change: what to do instead, or why nothing can work with what it makes."""

    way: str = ""
    fault: str = ""


# By whether the old signing key is still accepted, and whether the new signing key was accepted before.
STEPS: Final = {
    (True, True): None,
    (True, False): Loss(
        f"Add the new key first, and make it the default when all workers are updated {_DOCS}"
    ),
    (False, True): Loss(f"Keep the key that signs now in the set until all workers are updated {_DOCS}"),
    (False, False): Loss(f"Rotate the key in three steps {_DOCS}"),
}


def lost(old: str, new: str, now: float) -> Loss | None:
    """Return what is wrong with one set in the place of another; both as they are in a Secret."""
    try:
        after = _read(new, now)
    except _Unusable as error:
        return Loss(fault=str(error))
    try:
        before = _read(old, now)
    except _Unusable:
        return None
    return STEPS[before.signer in after.accepted, after.signer in before.accepted]


class _Unusable(Exception):  # noqa: N818 - it says what became of the set
    """Why the daemons could not work with a set, in words that repeat nothing of it."""


class _KeyEntry(msgspec.Struct, frozen=True):
    """A key as it is written."""

    kid: str
    k: str
    kty: str
    alg: str
    use: Any = None
    exp: int | None = None

    def __repr__(self) -> str:
        return "_Entry()"

    @property
    def is_default(self) -> bool:
        return isinstance(self.use, str) and self.use.lower() == "default"


class _KeySetFile(msgspec.Struct, frozen=True):
    keys: list[_KeyEntry]


@dataclass(frozen=True, slots=True, repr=False)
class _Key:
    kid: str
    secret: bytes


@dataclass(frozen=True, slots=True, repr=False)
class _Set:
    accepted: frozenset[_Key]
    signer: _Key


def _read(text: str, now: float) -> _Set:
    """Return the set that is written in base64."""
    try:
        entries = msgspec.json.decode(base64.b64decode(text, validate=True), type=_KeySetFile).keys
    except msgspec.MsgspecError as error:
        path, problem = explain(error)
        raise _Unusable(f"{path or 'it'} {problem}") from None
    except (ValueError, RecursionError):
        # Neither base64 nor UTF-8; or a nest of lists without an end.
        raise _Unusable("it is not JSON") from None
    if not entries:
        raise _Unusable("it contains no keys")
    keys = [_key(number, entry) for number, entry in enumerate(entries)]
    if len({key.kid for key in keys}) < len(keys):
        raise _Unusable("it has two keys with the same kid")
    defaults = [key for key, entry in zip(keys, entries, strict=True) if entry.is_default]
    if len(defaults) > 1:
        raise _Unusable('it has more than one key with "use": "default"')
    signer = (defaults or keys)[0]
    accepted = {key for key, entry in zip(keys, entries, strict=True) if not entry.exp or entry.exp >= now}
    if signer not in accepted:
        raise _Unusable("it has a signing key that has expired (exp)")
    return _Set(frozenset(accepted), signer)


def _key(number: int, entry: _KeyEntry) -> _Key:
    for name, value, needed in (("kty", entry.kty, "oct"), ("alg", entry.alg, "HS256")):
        if value.lower() != needed.lower():
            raise _Unusable(f"keys[{number}].{name} is not {needed}")
    # In either alphabet, padded or not: Slurm takes them all, so they are the same key.
    text = entry.k.translate(_BASE64)
    try:
        secret = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise _Unusable(f"keys[{number}].k is not base64") from None
    if not secret:
        raise _Unusable(f"keys[{number}].k is empty")
    return _Key(entry.kid, secret)
