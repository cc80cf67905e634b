"""The order a caller gives to a new supervisor, apart from both so that neither has to import the other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox.procs import ProcessId
from kubebox.spec import BoxSpec

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Launch:
    """What the caller tells a new supervisor on its standard input."""

    folder: Path
    spec: BoxSpec
    tools: Mapping[str, Path]
    owner: ProcessId | None

    def to_json(self) -> str:
        """Render the launch order."""
        owner = None if self.owner is None else [self.owner.pid, self.owner.started]
        tools = {name: str(path) for name, path in self.tools.items()}
        return json.dumps(
            {"folder": str(self.folder), "spec": self.spec.to_json(), "tools": tools, "owner": owner}
        )

    @classmethod
    def from_json(cls, text: str) -> Launch:
        """Read a launch order."""
        data = json.loads(text)
        return cls(
            folder=Path(data["folder"]),
            spec=BoxSpec.from_json(data["spec"]),
            tools={name: Path(path) for name, path in data["tools"].items()},
            owner=None if data["owner"] is None else ProcessId(*data["owner"]),
        )
