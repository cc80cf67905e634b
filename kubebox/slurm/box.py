"""A running Slurm cluster, as its user sees it.

    with SlurmBox.up(SlurmSpec(nodes=3)) as box:
        job = box.submit(seconds=100, nodes=["n0", "n1"])
        box.stop("slurmd-n0")

Daemons are named slurmctld, slurmrestd, slurmdbd, mariadb and slurmd-<node>. All methods may be called from
any thread; they block, so asynchronous tests use `asyncio.to_thread`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from kubebox import state
from kubebox.errors import BoxError, ToolError
from kubebox.handle import Handle, Progress, launch, silent
from kubebox.procs import ProcessId
from kubebox.slurm import daemons, jwt
from kubebox.slurm.layout import Places, SlurmLaunch, slurm_root
from kubebox.slurm.rootfs import USERS, provide_root
from kubebox.slurm.sandbox import ENVIRONMENT
from kubebox.slurm.spec import SlurmSpec
from kubebox.spec import check_name
from kubebox.state import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_HOMES = {"root": "/tmp", "alice": "/home/alice", "bob": "/home/bob"}  # noqa: S108 - inside the box


class SlurmBox(Handle):
    """One Slurm cluster on this machine: use `SlurmBox.up` or `SlurmBox.attach` to get one."""

    def __init__(self, layout: Layout, supervisor: subprocess.Popen[str] | None = None) -> None:
        self._places = Places(layout.folder)
        record = state.Record.read(layout.record)
        self.spec = SlurmSpec.from_json(record.spec)
        super().__init__(layout, self.spec.ready_timeout, supervisor)
        self.url = record.server
        self.version = record.version

    @classmethod
    def up(
        cls, spec: SlurmSpec | None = None, *, detach: bool = False, progress: Progress | None = None
    ) -> SlurmBox:
        """Start a Slurm cluster and return it ready; it ends with this process, unless detached."""
        if sys.platform != "linux":
            raise ToolError(f"Slurm boxes need Linux: {sys.platform} has no namespaces")
        wanted, tell = spec or SlurmSpec(), progress or silent
        rootfs = provide_root(wanted.release, tell)
        owner = None if detach else ProcessId.of(os.getpid())

        def order(folder: Path) -> str:
            return SlurmLaunch(folder, wanted, rootfs, owner).to_json()

        layout, supervisor = launch(
            "kubebox.slurm.supervisor", slurm_root(), wanted.name or _fresh_name(), order, tell
        )
        return cls(layout, supervisor)

    @classmethod
    def attach(cls, name: str) -> SlurmBox:
        """Return a box that runs already."""
        layout = Layout(slurm_root() / check_name(name))
        if not state.is_live(layout):
            raise BoxError(
                f"no Slurm box {name!r} is up: `python -m kubebox slurm status` lists those that are"
            )
        return cls(layout)

    # ---------------------------------------------------------------------------------------- keys and tokens

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the running daemons, by name."""
        return {name: pid for name, pid in super().pids.items() if name != daemons.COMMANDS}

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that have a slurmd here, whether it runs or not."""
        names = [name for name in self.record().ports if name.startswith(daemons.SLURMD)]
        return [name.removeprefix(daemons.SLURMD) for name in names]

    @property
    def jwt_key(self) -> bytes:
        """The key with which tokens are signed, as slurmctld has it now."""
        return self._read(self._places.etc / "jwt.key")

    @property
    def slurm_key(self) -> bytes:
        """The key with which the daemons know each other."""
        return self._read(self._places.etc / "slurm.key")

    @property
    def home(self) -> Path:
        """The folder on this machine that is /home inside; jobs of alice write into `home / "alice"`."""
        return self._places.home

    def _read(self, path: Path) -> bytes:
        with self.present():
            return path.read_bytes()

    def token(self, user: str = "slurm", lifetime: float = 3600.0, key: bytes | None = None) -> str:
        """Sign a token for a user of the box; another `key` or a negative lifetime makes a refused one."""
        return jwt.mint(self.jwt_key if key is None else key, user, lifetime, time.time())

    # ----------------------------------------------------------------------------------------------- using it

    def command(
        self, argv: Sequence[str], user: str = "root", node: str | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command line and environment with which this machine runs a program inside."""
        if user not in USERS:
            raise BoxError(f"user {user!r} does not exist in a Slurm box: use one of {', '.join(USERS)}")
        place = daemons.COMMANDS if node is None else daemons.SLURMD + node
        holder = self.record().processes.get(place)
        if holder is None or not holder.alive():
            raise BoxError(f"box {self.name}: {place} has ended or was never there")
        home, number = _HOMES.get(user, "/"), str(USERS[user])
        enter = ["nsenter", "--target", str(holder.pid), "--mount", "--uts", "--pid", "--root", "--wd"]
        identity = ["--setuid", number, "--setgid", number, "--"]
        return [*enter, *identity, "env", "--chdir", home, *argv], {"USER": user, "HOME": home}

    def run(
        self,
        *argv: str,
        user: str = "root",
        node: str | None = None,
        stdin: str | None = None,
        timeout: float = 60.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside, such as sinfo; BoxError carries its complaint, unless `check` is off.

        It runs where slurm.conf is, or on a node whose slurmd runs, where it sees the jobs' processes.
        """
        # The limit holds inside, so that it also ends what we could not signal from here.
        command, environment = self.command(["timeout", "--signal=KILL", f"{timeout:g}", *argv], user, node)
        result = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            env={**ENVIRONMENT, **environment},
        )
        if check and result.returncode != 0:
            late = f"no end within {timeout:g} s; " if result.returncode == -signal.SIGKILL else ""
            raise BoxError(f"{' '.join(argv)}: {late}{result.stderr.strip() or result.stdout.strip()}")
        return result

    def submit(
        self,
        script: str | None = None,
        *,
        seconds: float = 100.0,
        nodes: Sequence[str] = (),
        options: Sequence[str] = (),
        user: str = "alice",
    ) -> int:
        """Submit a batch job, a sleep of so many seconds unless a script is given, and return its id."""
        where = [f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}"] if nodes else []
        text = f"#!/bin/sh\nexec sleep {seconds:g}\n" if script is None else script
        return int(
            self.run("sbatch", "--parsable", *where, *options, user=user, stdin=text).stdout.split(";")[0]
        )

    # ------------------------------------------------------------------------------------------- breaking it

    def stop(self, component: str, *, kill: bool = False, keep_steps: bool = False) -> None:
        """End a daemon and wait until it is gone, and a slurmd's jobs with it, unless they are to be kept."""
        if keep_steps:
            self.ask("stop-only", component=component)
        else:
            super().stop(component, kill=kill)

    def add_node(self, name: str, conf: str = "") -> None:
        """Start one more slurmd; `conf` is what it says about itself, such as "CPUs=2 Feature=gpu"."""
        self.ask("add-node", node=name, conf=conf)

    def remove_node(self, name: str) -> None:
        """End a slurmd for good; its record in slurmctld stays until somebody deletes it."""
        self.ask("remove-node", node=name)

    def lose_state(self) -> None:
        """Wipe what slurmctld has saved; it runs again afterwards if it ran before."""
        running = daemons.SLURMCTLD in self.pids
        if running:
            self.stop(daemons.SLURMCTLD, kill=True)
        with self.present():
            for path in self._places.saved_state.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if running:
            self.start(daemons.SLURMCTLD)

    def rotate_jwt_key(self, new: bytes | None = None) -> bytes:
        """Give the daemons another key for tokens, and return it: tokens of the old one are refused."""
        key = new or secrets.token_bytes(32)
        with self.present():
            # In place: owner and mode stay as the daemons want them.
            (self._places.etc / "jwt.key").write_bytes(key)
        if daemons.SLURMDBD in self.pids:
            self.restart(daemons.SLURMDBD)
        if daemons.SLURMCTLD in self.pids:
            self.run("scontrol", "reconfigure")
        return key

    def set_conf(self, lines: str) -> None:
        """Put these lines at the end of slurm.conf, in the place of the spec's, and have it read again."""
        text = daemons.slurm_conf(self.spec, self.record().ports, lines)
        with self.present():
            (self._places.etc / "slurm.conf").write_text(text, encoding="utf-8")
        self.run("scontrol", "reconfigure")


def _fresh_name() -> str:
    return f"slurm-{os.getpid()}-{secrets.token_hex(3)}"
