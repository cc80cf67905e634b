"""What the hostile slurmrestd knows: its lists, and how a write changes a node."""

from __future__ import annotations

import json
from collections import UserDict
from typing import TYPE_CHECKING, Any

from ClusterShell.NodeSet import NodeSet  # type: ignore[import-untyped]

from tests.support.slurm.hostile_replies import Json

if TYPE_CHECKING:
    from collections.abc import Callable


class Table(UserDict[Any, Json]):
    """What one list shows, and when it last changed; entries are replaced, not altered in place."""

    def __init__(self, what: str, clock: Callable[[], int]) -> None:
        self.what = what
        self._clock = clock
        self._encoded: bytes | None = None
        self.changed = clock()
        super().__init__()

    def __setitem__(self, key: Any, item: Json) -> None:
        super().__setitem__(key, item)
        self.touch()

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self.touch()

    def change(self, key: Any, **fields: Any) -> None:
        """Give an entry other values in some fields."""
        self[key] = {**self[key], **fields}

    def touch(self) -> None:
        """Let the list be newer than all that was sent before."""
        self.changed = self._clock()
        self._encoded = None

    def encoded(self) -> bytes:
        """Return the list as JSON, made once per change."""
        if self._encoded is None:
            self._encoded = json.dumps([*self.data.values()]).encode()
        return self._encoded


def expand(hostlist: str) -> list[str]:
    """Return the names in a hostlist."""
    return [*map(str, NodeSet(hostlist))]


def after(state: list[str], wanted: list[str]) -> list[str]:
    """Return a node's state, its base state first, after an update of it."""
    for word in wanted:
        if word in ("UNDRAIN", "RESUME"):
            state = [old for old in state if old != "DRAIN"]
        elif word == "DRAIN":
            state = [*state, *({"DRAIN"} - {*state})]
        else:
            state = [word, *state[1:]]
    return state
