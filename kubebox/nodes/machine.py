"""What a node is made of, as data: written by the provider, read by the process that is the node."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Machine:
    """What a node is made of; `daemons` maps names to command lines, in the order they are started."""

    name: str
    folder: str
    rootfs: str
    # Its control group, the same in every hierarchy.
    cgroup: str
    programs: Mapping[str, str]
    # What the node sees of the box: a place in the node, and the folder or file that is to be seen there.
    shows: Mapping[str, str]
    # The same, but nobody in the node may write to it: layers of images, as the nodes share them.
    shows_read_only: Mapping[str, str]
    logs: Mapping[str, str]
    daemons: Mapping[str, Sequence[str]]
    switch: str
    port: str
    address: str
    routes: Sequence[Sequence[str]]

    def to_json(self) -> str:
        """Render the description."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Machine:
        """Read a description."""
        return cls(**json.loads(text))
