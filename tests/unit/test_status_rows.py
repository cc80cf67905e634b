"""The wire format of the status API: what may differ between a manager and a command, and what may not."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from slurm_operator import status_api, status_rows
from slurm_operator.status_rows import AgeRow, ClusterRow, Overview, StatusRow, WorkerRow

STRUCTS = [
    one
    for one in vars(status_rows).values()
    if isinstance(one, type) and issubclass(one, StatusRow) and one is not StatusRow
]
# What WorkerRow has of a Slurm node is filled in only where Slurm lists it.
OF_THE_NODE = {
    *("state", "state_reason", "state_reason_by", "state_reason_at", "drained_by"),
    *("reservation", "partitions", "features"),
}
# Replies are written list by list, so that a long one does not hold up the event loop.
WRITTEN_IN_SLICES = {name for name in vars(status_rows) if name.endswith("Reply")} | {"Overview"}


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_commands_and_operators_of_other_versions(struct: type[StatusRow]) -> None:
    """Fields of a newer operator are skipped, and those that an older one does not send have defaults."""
    assert msgspec.json.decode(b'{"brandNew":{"a":1}}', type=struct) == struct()


def test_what_is_not_sent_is_not_claimed() -> None:
    """A worker without a state is unknown, and a list without an age is stale."""
    assert WorkerRow().summary == "unknown"
    assert not WorkerRow().jobs_end_known
    assert AgeRow().stale
    assert not ClusterRow().connected


def test_times_are_sent_in_utc_to_the_second() -> None:
    """The page and other clients read RFC 3339 with a Z."""
    sent = msgspec.json.encode(Overview(at=datetime(2026, 11, 16, 12, tzinfo=UTC)))
    assert b'"at":"2026-11-16T12:00:00Z"' in sent


def test_the_manager_fills_in_every_field() -> None:
    """A field that the manager forgets would be sent as unknown: defaults are for other versions."""
    built: dict[str, set[str]] = {}
    for path in Path(status_api.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.keywords:
                built.setdefault(call.func.id, set()).update(one.arg for one in call.keywords if one.arg)
    for struct in STRUCTS:
        if struct.__name__ in WRITTEN_IN_SLICES:
            continue
        left = {*struct.__struct_fields__} - built.get(struct.__name__, set())
        assert left == (OF_THE_NODE if struct is WorkerRow else set()), struct.__name__
