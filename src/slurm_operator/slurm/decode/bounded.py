"""What of an entry is kept: text that is only shown is cut, and what decides is refused if it is too long.

The reason of a node is cut, too: who drained it is told by how it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from slurm_operator.slurm.decode.pieces import OversizeError
from slurm_operator.slurm.model.records import Job, JobDetail, JobState, Node, Reservation, SlurmPartition
from slurm_operator.slurm.model.reply_limits import MAX_HOSTLIST, MAX_NAME, MAX_SHOWN, MAX_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_ITEM: Final = 64

# The most characters of each text, and whether it is cut or refused.
_CUT: Final[Mapping[type, tuple[str, ...]]] = {
    Node: ("reason", "reason_set_by_user", "comment", "topology", "reservation", "version"),
    Job: ("partition",),
    JobState: (),
    JobDetail: (
        *("name", "user_name", "account", "partition", "array_task_string", "state_reason", "nodes"),
        *("features", "resv_name", "dependency"),
    ),
    Reservation: (),
    SlurmPartition: (),
}
_REFUSED: Final[Mapping[type, Mapping[str, int]]] = {
    Node: {"name": MAX_NAME},
    Job: {"nodes": MAX_HOSTLIST},
    JobState: {"job_id": MAX_NAME},
    JobDetail: {},
    Reservation: {"name": MAX_NAME, "node_list": MAX_HOSTLIST, "users": MAX_HOSTLIST, "partition": MAX_NAME},
    SlurmPartition: {"name": MAX_NAME},
}
_STATES: Final[Mapping[type, str]] = {
    Node: "state",
    Job: "job_state",
    JobState: "state",
    JobDetail: "job_state",
    Reservation: "flags",
}
_LISTS: Final[Mapping[type, tuple[str, ...]]] = {Node: ("features", "active_features", "partitions")}


def bounded(entry: Any) -> tuple[Any, int]:
    """Return an entry within the limits, and how much its texts take; an OversizeError if it cannot be."""
    kind = type(entry)
    size, cut = 0, {}
    for field in _CUT[kind]:
        text = getattr(entry, field)
        if len(text) > MAX_SHOWN:
            text = cut[field] = f"{text[:MAX_SHOWN]}…"
        size += _weight(text)
    for field, limit in _REFUSED[kind].items():
        size += _weight(text := getattr(entry, field))
        if len(text) > limit:
            raise OversizeError(f"the {field} of an entry has more than {limit} characters")
    if (field := _STATES.get(kind, "")) and (words := getattr(entry, field)):
        size += sum(map(_weight, words)) + _ITEM * len(words)
        if len(words) > MAX_WORDS or max(map(len, words)) > MAX_WORDS:
            raise OversizeError(
                f"the {field} of an entry has more than {MAX_WORDS} words or a word of more characters"
            )
    for field in _LISTS.get(kind, ()):
        words = getattr(entry, field)
        size += sum(map(_weight, words)) + _ITEM * len(words)
    return (msgspec.structs.replace(entry, **cut) if cut else entry), size


def _weight(text: str) -> int:
    """Return how many bytes a text takes: one character outside of ASCII may make four of each."""
    return len(text) if text.isascii() else 4 * len(text)
