"""Where the files of a Slurm box are, on the machine and inside, and the order its supervisor gets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox.procs import ProcessId
from kubebox.slurm.spec import SlurmSpec
from kubebox.state import state_root

if TYPE_CHECKING:
    from collections.abc import Mapping


def slurm_root() -> Path:
    """Return the folder of all Slurm boxes of this user; its name hides them from Kubernetes boxes."""
    root = state_root() / ".slurm"
    root.mkdir(mode=0o700, exist_ok=True)
    return root


@dataclass(frozen=True)
class Places:
    """Name the folders of one Slurm box."""

    folder: Path

    @property
    def root(self) -> Path:
        """An empty folder on which each compartment sees its root file system."""
        return self.folder / "root"

    @property
    def etc(self) -> Path:
        """/etc/slurm as the central daemons and the caller's commands see it."""
        return self.folder / "etc"

    @property
    def node_etc(self) -> Path:
        """/etc/slurm as nodes see it: only the key, the rest they fetch from slurmctld."""
        return self.folder / "node-etc"

    @property
    def hosts(self) -> Path:
        """/etc/hosts everywhere in the box."""
        return self.folder / "hosts"

    @property
    def saved_state(self) -> Path:
        """StateSaveLocation of slurmctld."""
        return self.folder / "var" / "spool" / "slurmctld"

    @property
    def home(self) -> Path:
        """/home everywhere in the box: job output of alice is in `alice`."""
        return self.folder / "home"

    @property
    def database(self) -> Path:
        """The data folder of MariaDB."""
        return self.folder / "var" / "lib" / "mysql"

    def node_run(self, node: str) -> Path:
        """Return what a node sees as /run."""
        return self.folder / "nodes" / node

    def binds(self) -> Mapping[str, Path]:
        """Return what is mounted into the compartments of central daemons, by place inside."""
        folders = {name: self.folder / name for name in ("home", "run", "tmp", "var")}
        return {**folders, "etc/slurm": self.etc, "etc/hosts": self.hosts}

    def node_binds(self, node: str) -> Mapping[str, Path]:
        """Return what is mounted into a node's compartment: everything the same, but for what is its own."""
        return {**self.binds(), "etc/slurm": self.node_etc, "run": self.node_run(node)}


@dataclass(frozen=True)
class SlurmLaunch:
    """What the caller tells a new supervisor on its standard input."""

    folder: Path
    spec: SlurmSpec
    rootfs: Path
    owner: ProcessId | None

    def to_json(self) -> str:
        """Render the launch order."""
        owner = None if self.owner is None else [self.owner.pid, self.owner.started]
        folders = {"folder": str(self.folder), "rootfs": str(self.rootfs)}
        return json.dumps({**folders, "spec": self.spec.to_json(), "owner": owner})

    @classmethod
    def from_json(cls, text: str) -> SlurmLaunch:
        """Read a launch order."""
        data = json.loads(text)
        return cls(
            folder=Path(data["folder"]),
            spec=SlurmSpec.from_json(data["spec"]),
            rootfs=Path(data["rootfs"]),
            owner=None if data["owner"] is None else ProcessId(*data["owner"]),
        )
