"""What a caller wants in a Slurm box, as data.

Checked when it is made, so that nothing is started for a request that cannot work. It travels to the
supervisor as JSON, therefore it holds plain values only.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubebox.errors import SpecError
from kubebox.slurm.rootfs import RELEASES
from kubebox.spec import check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_MAX_NODES = 500
_MAX_CLOUD_NODES = 20_000
# Slurm's own default is 0; the operator's cluster has 2, which lets a node come back by itself.
_RETURN_TO_SERVICE = (0, 1, 2)


def check_node_name(name: str) -> str:
    """Return a node name that can be used, or say what is wrong with it."""
    if not _NODE_NAME.fullmatch(name):
        raise SpecError(f"node name: {name!r} cannot be used: take up to 63 of a-z, 0-9, '-' and '.'")
    return name


@dataclass(frozen=True, kw_only=True)
class SlurmSpec:
    """Describe one Slurm cluster: slurmctld and slurmrestd always, the rest when asked for.

    `nodes` real slurmd named n0, n1, … register by themselves, as the operator's do; `node_conf` is the line
    each brings along. `cloud_nodes` are records named c0000, c0001, … with nothing behind them. `extra_conf`
    comes last in slurm.conf and so wins over kubebox's own lines. `accounting` adds slurmdbd and MariaDB.
    `controllers` are the host names of several slurmctlds that share their state: the first is in charge, and
    the others are its standbys. Their daemons are called slurmctld, slurmctld-1, slurmctld-2, …
    """

    release: str = "26.05"
    nodes: int = 3
    cloud_nodes: int = 0
    accounting: bool = False
    extra_conf: str = ""
    node_conf: str = "CPUs=4 RealMemory=4000"
    return_to_service: int = 2
    controllers: tuple[str, ...] = ("slurmctld",)
    name: str | None = None
    ready_timeout: float = 120.0

    def __post_init__(self) -> None:
        if self.release not in RELEASES:
            raise SpecError(f"release: {self.release!r} is not one of {', '.join(RELEASES)}")
        if self.name is not None:
            check_name(self.name)
        if not 0 <= self.nodes <= _MAX_NODES:
            raise SpecError(f"nodes: {self.nodes} is not between 0 and {_MAX_NODES}")
        if not 0 <= self.cloud_nodes <= _MAX_CLOUD_NODES:
            raise SpecError(f"cloud_nodes: {self.cloud_nodes} is not between 0 and {_MAX_CLOUD_NODES}")
        if "\n" in self.node_conf:
            raise SpecError("node_conf: holds a line break: write all settings on one line")
        if self.return_to_service not in _RETURN_TO_SERVICE:
            raise SpecError(f"return_to_service: {self.return_to_service} is not 0, 1 or 2")
        object.__setattr__(self, "controllers", tuple(self.controllers))  # JSON knows lists only
        if not 1 <= len({check_node_name(host) for host in self.controllers}) == len(self.controllers):
            raise SpecError(f"controllers: {self.controllers} are not one or more different host names")
        if self.ready_timeout <= 0:
            raise SpecError(f"ready_timeout: {self.ready_timeout} is not a positive number of seconds")

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes that the box starts with."""
        return [f"n{number}" for number in range(self.nodes)]

    def to_json(self) -> dict[str, Any]:
        """Return the spec as plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SlurmSpec:
        """Read back what `to_json` wrote."""
        return cls(**data)
