"""Identity of a ControllerRevision: its bytes, its hash, its name, and when two of them mean the same.

The hash must be the one that Go code computes, because it stands in the labels of running pods: another
hash for the same content would replace every pod of a set that is migrated to this operator. Kubernetes
hashes the JSON bytes that Go's encoder produces from the decoded data (keys sorted, numbers through float64,
`<`, `>` and `&` escaped), followed by the collision count in decimal, with FNV-1 in 32 bits, and writes the
decimal hash in an alphabet without vowels.

Bytes are not meaning, though: Go writes `"resources": {}` or `"containers": null` where nothing was set,
and `1000m` as `1`. `same_data` compares what the data say, in the form that `semantics` gives them.
"""

from __future__ import annotations

import hashlib
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.kube.manifests.semantics import canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from slurm_operator.kube.models.kinds import ControllerRevision

HASH_LABEL = "controller.kubernetes.io/hash"

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619
_MASK = 0xFFFFFFFF
_SAFE_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"

# A name has at most 253 characters and ends in a dash and a hash of at most 10; Kubernetes leaves some room.
_MAX_PREFIX = 223

# Above this, float64 no longer holds every integer.
_EXACT_INTEGERS = 2**53
_POSITIONAL_BELOW = 1e21
_POSITIONAL_FROM = 1e-6

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_ESCAPED = re.compile(r'["\\\x00-\x1f<>&\u2028\u2029]')
_SURROGATES = re.compile("[\ud800-\udfff]")


# ------------------------------------------------------------------------------------------------------- hash


def hash_revision(data: bytes, collision_count: int | None) -> str:
    """Return the hash label of a revision with these JSON bytes."""
    value = _FNV_OFFSET
    probe = b"" if collision_count is None else str(collision_count).encode()
    for byte in (*data, *probe):
        value = ((value * _FNV_PRIME) & _MASK) ^ byte
    return "".join(_SAFE_ALPHABET[ord(digit) % len(_SAFE_ALPHABET)] for digit in str(value))


def revision_name(parent: str, revision_hash: str) -> str:
    """Return the name of a revision."""
    return f"{parent[:_MAX_PREFIX]}-{revision_hash}"


def hash_of(revision: ControllerRevision) -> str:
    """Return the hash of a revision: its label, or the end of its name where the label is missing."""
    return revision.metadata.labels.get(HASH_LABEL) or revision.metadata.name.rpartition("-")[2]


def go_json(data: Any) -> bytes:
    """Encode decoded JSON as Go's encoding/json does."""
    return _encode(data).encode()


def _encode(value: Any) -> str:
    if isinstance(value, dict):
        items = sorted(((_valid(key), item) for key, item in value.items()), key=lambda pair: pair[0])
        return "{" + ",".join(f"{_encode(key)}:{_encode(item)}" for key, item in items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_encode, value)) + "]"
    if isinstance(value, str):
        return f'"{_ESCAPED.sub(_escape, _valid(value))}"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _encode_number(value)


def _valid(text: str) -> str:
    """Replace halves of surrogate pairs, as Go's decoder does."""
    return _SURROGATES.sub("\ufffd", text)


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return _ESCAPES.get(char) or f"\\u{ord(char):04x}"


def _encode_number(value: float) -> str:
    if isinstance(value, int) and abs(value) <= _EXACT_INTEGERS:
        return str(value)
    number = float(value)
    if number != 0 and not _POSITIONAL_FROM <= abs(number) < _POSITIONAL_BELOW:
        return _exponential(number)
    return format(Decimal(repr(number)), "f").removesuffix(".0")


def _exponential(number: float) -> str:
    # Python and Go agree on the digits (the shortest that read back equal); Go drops the zero of e-07.
    return repr(number).replace("e-0", "e-")


# --------------------------------------------------------------------------------------------------- equality


def revision_data(revision: ControllerRevision) -> Any:
    """Return the decoded data of a revision, also where the read model keeps it as raw bytes."""
    data: Any = revision.data
    return msgspec.json.decode(data) if isinstance(data, msgspec.Raw | bytes) else data


def same_data(left: Any, right: Any, *, zero_fields: Collection[str] = ()) -> bool:
    """Return whether two revisions' data mean the same; zero in `zero_fields` equals an absent value."""
    return _meaning(left, zero_fields) == _meaning(right, zero_fields)


def data_digest(data: Any, *, zero_fields: Collection[str] = ()) -> str:
    """Return a digest of what the data mean: equal for all spellings, and for nothing else."""
    return hashlib.sha256(_meaning(data, zero_fields)).hexdigest()


def _meaning(data: Any, zero_fields: Collection[str]) -> bytes:
    # Encoded, because Python takes 1 and True for equal.
    return go_json(canonical(data, zero_fields=zero_fields))


# ------------------------------------------------------------------------------------------------------ order


def sorted_revisions(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Return revisions oldest first: by number, then age, then name."""
    return sorted(revisions, key=_age)


def next_revision(revisions: Iterable[ControllerRevision]) -> int:
    """Return the number after the highest one in use."""
    return max((revision.revision for revision in revisions), default=0) + 1


def _age(revision: ControllerRevision) -> tuple[int, float, str]:
    created = revision.metadata.creation_timestamp
    return (revision.revision, created.timestamp() if created else 0.0, revision.metadata.name)
