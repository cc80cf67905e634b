"""What a caller wants in a box, as data.

A spec is checked when it is made, so that nothing is started for a request that cannot work. It travels to
the supervisor as JSON, therefore it holds plain values only.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubebox.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

# The control socket lives in a folder of this name, and a Unix socket's path has room for 107 bytes.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_MAX_FAKE_NODES = 10_000
_MAX_NODES = 100


def check_name(name: str) -> str:
    """Return a box name that can be used, or say what is wrong with it."""
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"name: {name!r} is no box name: use 1 to 40 of a-z, 0-9 and '-', starting and ending with a "
            "letter or digit"
        )
    return name


@dataclass(frozen=True, kw_only=True)
class BoxSpec:
    """Describe one control plane: etcd and kube-apiserver always, the rest when asked for.

    `name` None gives the box a name of its own. `apiserver_args` come last on the command line and so win
    over kubebox's own. `audit` writes one line per answered request to `Box.audit_log`.

    `nodes` are real ones, with kubelet and containers; they need root. `images` are files with container
    images for them, `gpus` is how many each of them pretends to have. With `pulls` they can also pull images,
    from registries that `Box.trust_registry` names. `node_grace` is how long a node may be
    silent before it counts as failed; by default that is half a minute for real nodes, which tests kill, and
    ten minutes for fake ones, which only a busy machine silences.
    """

    controller_manager: bool = False
    scheduler: bool = False
    fake_nodes: int = 0
    nodes: int = 0
    images: tuple[str, ...] = ()
    gpus: int = 0
    pulls: bool = False
    node_grace: float | None = None
    apiserver_args: tuple[str, ...] = ()
    name: str | None = None
    audit: bool = False
    ready_timeout: float = 120.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "apiserver_args", tuple(self.apiserver_args))
        object.__setattr__(self, "images", tuple(str(Path(image).absolute()) for image in self.images))
        if self.name is not None:
            check_name(self.name)
        if not 0 <= self.fake_nodes <= _MAX_FAKE_NODES:
            raise SpecError(f"fake_nodes: {self.fake_nodes} is not between 0 and {_MAX_FAKE_NODES}")
        self._check_nodes()
        if self.ready_timeout <= 0:
            raise SpecError(f"ready_timeout: {self.ready_timeout} is not a positive number of seconds")
        for argument in self.apiserver_args:
            if not argument.startswith("--"):
                raise SpecError(f"apiserver_args: {argument!r} is no flag: write it as '--flag=value'")

    def _check_nodes(self) -> None:
        if not 0 <= self.nodes <= _MAX_NODES:
            raise SpecError(f"nodes: {self.nodes} is not between 0 and {_MAX_NODES}")
        if self.nodes and not (self.controller_manager and self.scheduler):
            raise SpecError("nodes: real nodes need controller_manager=True and scheduler=True")
        for name in ("images", "gpus", "pulls"):
            if getattr(self, name) and not self.nodes:
                raise SpecError(f"{name}: only real nodes have use for it: set nodes, too")
        if self.gpus < 0:
            raise SpecError(f"gpus: {self.gpus} is less than 0")
        if self.node_grace is not None and self.node_grace <= 0:
            raise SpecError(f"node_grace: {self.node_grace} is not a positive number of seconds")

    def to_json(self) -> dict[str, Any]:
        """Return the spec as plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BoxSpec:
        """Read back what `to_json` wrote."""
        unknown = set(data) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise SpecError(f"unknown field in a box spec: {', '.join(sorted(unknown))}")
        return cls(**data)
