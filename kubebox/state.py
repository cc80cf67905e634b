"""Where boxes live on disk, and how to tell a living one from what a crash left.

Every box has a folder under one root, on tmpfs when the machine has one: etcd writes a lot and nothing in a
box is worth keeping. The supervisor holds a file lock in the folder for as long as it lives, and the kernel
drops the lock with the process, however it dies. So a folder whose lock can be taken is a leftover, and
whoever meets one may remove it; no pid has to be trusted for that. The lock is taken before the supervisor
starts and handed to it, so there is no moment in which a new box looks dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubebox import cgroups
from kubebox.errors import BoxError
from kubebox.procs import ProcessId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROOT_LOCK = ".lock"
_TRASH = ".trash-"
_DEATH_SECONDS = 10.0
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - our folder in it is private and its owner is checked
# etcd alone takes 64 MB for its first log segment, which is all that many containers have there.
_SHARED_MEMORY_NEEDED = 1 << 30


@dataclass(frozen=True)
class Layout:
    """Name the files of one box."""

    folder: Path

    @property
    def name(self) -> str:
        """The box's name."""
        return self.folder.name

    @property
    def lock(self) -> Path:
        """The file the supervisor keeps locked."""
        return self.folder / "lock"

    @property
    def record(self) -> Path:
        """The box's description, see `Record`."""
        return self.folder / "box.json"

    @property
    def socket(self) -> Path:
        """The supervisor's control socket."""
        return self.folder / "control.sock"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.folder / "pki"

    @property
    def etcd_data(self) -> Path:
        """The data folder of etcd."""
        return self.folder / "etcd"

    @property
    def bin(self) -> Path:
        """Links to the programs of this box, fit for PATH."""
        return self.folder / "bin"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, when asked for."""
        return self.folder / "log" / "audit.log"

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of one of the box's identities."""
        return self.folder / f"{user}.kubeconfig"

    def log(self, component: str) -> Path:
        """Return the log file of one component."""
        return self.folder / "log" / f"{component}.log"


@dataclass(frozen=True)
class Record:
    """What a box says about itself in box.json."""

    name: str
    server: str
    etcd: str
    version: str
    ready: bool
    created: float
    spec: Mapping[str, Any]
    supervisor: ProcessId
    owner: ProcessId | None
    processes: Mapping[str, ProcessId]
    ports: Mapping[str, int]

    def write(self, path: Path) -> None:
        """Replace the record file in one step."""
        data = {**self.__dict__, "supervisor": _pid_json(self.supervisor), "owner": None}
        if self.owner is not None:
            data["owner"] = _pid_json(self.owner)
        data["processes"] = {name: _pid_json(process) for name, process in self.processes.items()}
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        scratch.replace(path)

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read a record file; BoxError names it when it cannot be used."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                name=str(data["name"]),
                server=str(data["server"]),
                etcd=str(data["etcd"]),
                version=str(data["version"]),
                ready=bool(data["ready"]),
                created=float(data["created"]),
                spec=dict(data["spec"]),
                supervisor=_pid(data["supervisor"]),
                owner=None if data["owner"] is None else _pid(data["owner"]),
                processes={str(name): _pid(value) for name, value in data["processes"].items()},
                ports={str(name): int(value) for name, value in data["ports"].items()},
            )
        except FileNotFoundError:
            raise BoxError(f"{path} does not exist: the box is starting or was removed") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BoxError(f"{path} is no box record ({error!r}): remove the folder {path.parent}") from None


def _pid_json(process: ProcessId) -> dict[str, int]:
    return {"pid": process.pid, "started": process.started}


def _pid(data: Mapping[str, Any]) -> ProcessId:
    return ProcessId(int(data["pid"]), int(data["started"]))


def state_root(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of all boxes of this user, made and checked."""
    environ = os.environ if environ is None else environ
    name = f"kubebox-{os.getuid()}"
    try:
        if chosen := environ.get("KUBEBOX_STATE_HOME"):
            # The supervisor works in another folder than its caller: a relative path would mean two places.
            parent = Path(chosen).absolute()
            parent.mkdir(parents=True, exist_ok=True)
        else:
            parent = _SHARED_MEMORY if _roomy(_SHARED_MEMORY) else Path(tempfile.gettempdir())
        root = parent / name
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=0o700)
        status = root.lstat()
    except OSError as error:
        raise BoxError(
            f"cannot make the folder {name} for boxes ({error}): set KUBEBOX_STATE_HOME to a folder that "
            "you may write to"
        ) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise BoxError(
            f"{root} is no private folder of this user: remove it, or set KUBEBOX_STATE_HOME elsewhere"
        )
    return root


def _roomy(folder: Path) -> bool:
    # The size and not the free space: every process of this user must come to the same answer.
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).total >= _SHARED_MEMORY_NEEDED


def layouts(root: Path) -> list[Layout]:
    """Return every box folder, living or not, sorted by name."""
    folders = (path for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith("."))
    return [Layout(folder) for folder in folders]


def claim(root: Path, name: str | None) -> tuple[Layout, int]:
    """Make a new box folder and return it with its locked file descriptor."""
    with _locked(root / _ROOT_LOCK):
        _sweep(root)
        layout = Layout(root / (name or f"box-{os.getpid()}-{secrets.token_hex(3)}"))
        try:
            layout.folder.mkdir(mode=0o700)
        except FileExistsError:
            raise BoxError(
                f"box {layout.name!r} is up already: choose another name, or take it down with "
                f"`python -m kubebox down {layout.name}`"
            ) from None
        return layout, _lock(layout.lock)


def sweep(root: Path) -> list[str]:
    """Remove what dead boxes left behind and return their names."""
    with _locked(root / _ROOT_LOCK):
        return _sweep(root)


def is_live(layout: Layout) -> bool:
    """Say whether a supervisor holds the box."""
    try:
        fd = os.open(layout.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two who look at the same time do not take each other for the supervisor.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def discard(folder: Path) -> None:
    """Remove a box folder; its name is free at once."""
    trash = folder.with_name(f"{_TRASH}{secrets.token_hex(6)}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def _sweep(root: Path) -> list[str]:
    for folder in root.glob(f"{_TRASH}*"):
        shutil.rmtree(folder, ignore_errors=True)
    dead = [layout for layout in layouts(root) if not is_live(layout)]
    for layout in dead:
        _kill_leftovers(layout)
        cgroups.remove(layout.folder)
        discard(layout.folder)
    return [layout.name for layout in dead]


def _kill_leftovers(layout: Layout) -> None:
    """End what runs of a box whose supervisor is gone; the kernel has done so, unless it could not."""
    try:
        record = Record.read(layout.record)
    except BoxError:
        return
    for process in record.processes.values():
        process.signal(signal.SIGKILL)
    deadline = time.monotonic() + _DEATH_SECONDS
    while any(process.alive() for process in record.processes.values()) and time.monotonic() < deadline:
        time.sleep(0.02)


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = _lock(path)
    try:
        yield
    finally:
        os.close(fd)
