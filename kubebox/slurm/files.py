"""The files of a new Slurm box: folders with the owners that the daemons insist on, keys, configuration."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from kubebox.keeper import write_private
from kubebox.ports import LOOPBACK
from kubebox.slurm import daemons
from kubebox.slurm.rootfs import USERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kubebox.slurm.layout import Places
    from kubebox.slurm.spec import SlurmSpec

KEY_BYTES = 32
_FOLDERS = {
    "root": "root", "nodes": "root", "etc": "slurm", "node-etc": "slurm",
    "home": "root", "home/alice": "alice", "home/bob": "bob",
    "run": "root", "run/slurmctld": "slurm", "run/slurmdbd": "slurm", "run/mysqld": "mysql",
    "var": "root", "var/lib": "root", "var/lib/mysql": "mysql", "var/log": "root", "var/log/slurm": "slurm",
    "var/spool": "root", "var/spool/slurmctld": "slurm", "var/spool/slurmd": "root",
}  # fmt: skip


def lay_out(places: Places, spec: SlurmSpec, ports: Mapping[str, int]) -> None:
    """Write everything that must be there before the first daemon starts."""
    for name, user in _FOLDERS.items():
        _folder(places.folder / name, user)
    for name in ("tmp", "var/tmp"):
        _folder(places.folder / name, "root", 0o1777)
    key = secrets.token_bytes(KEY_BYTES)
    for path, content in (
        (places.etc / "slurm.key", key),
        (places.node_etc / "slurm.key", key),
        (places.etc / "jwt.key", secrets.token_bytes(KEY_BYTES)),
    ):
        _file(path, content, 0o600)
    _file(places.etc / "slurm.conf", daemons.slurm_conf(spec, ports, spec.extra_conf).encode())
    _file(places.etc / "cgroup.conf", daemons.cgroup_conf().encode())
    if spec.accounting:
        # slurmdbd refuses a configuration that others can read: it may hold the database's password.
        _file(places.etc / "slurmdbd.conf", daemons.slurmdbd_conf(ports).encode(), 0o600)
    places.hosts.write_text(daemons.hosts(spec, ()), encoding="utf-8")


def add_node(places: Places, node: str) -> None:
    """Write what a node needs before its slurmd starts."""
    run = places.node_run(node)
    for folder in (run, places.folder / "var" / "spool" / "slurmd" / node):
        _folder(folder, "root")
    _folder(run / "slurmd", "root")
    # Added in place: the file itself is mounted in compartments that exist.
    names = places.hosts.read_text(encoding="utf-8").split()
    if node not in names:
        with places.hosts.open("a", encoding="utf-8") as file:
            file.write(f"{LOOPBACK} {node}\n")


def add_run(places: Places, name: str) -> None:
    """Write what a standby needs before it starts: a /run of its own."""
    _folder(places.node_run(name), "root")
    _folder(places.node_run(name) / daemons.SLURMCTLD, "slurm")


def add_database(places: Places) -> None:
    """Make slurmdbd's database, empty.

    slurmdbd would make a missing one by itself, but 26.05.5 with MariaDB's client library 11.8.9 dies of it
    at its first start, with a complaint about the number of columns in a result.
    """
    _folder(places.database / daemons.DATABASE, "mysql")


def _folder(path: Path, user: str, mode: int = 0o755) -> None:
    path.mkdir(exist_ok=True)
    os.chown(path, USERS[user], USERS[user])
    path.chmod(mode)


def _file(path: Path, content: bytes, mode: int = 0o644) -> None:
    write_private(path, content)
    os.chown(path, USERS["slurm"], USERS["slurm"])
    path.chmod(mode)
