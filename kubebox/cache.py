"""Things built once and kept, each in a folder named by the hash of all that decides its content.

An artifact is built in a scratch folder beside its place and appears there by one rename, so it is whole or
absent, whatever interrupts the build. A file lock per artifact makes a second builder wait and then find the
result.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_KEY_LENGTH = 16


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """Return kubebox's folder in the user's cache."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say to ignore a relative path.
    parent = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return parent / "kubebox"


def content_key(parts: Iterable[bytes]) -> str:
    """Return a name for content: equal parts in equal order give an equal key."""
    digest = hashlib.sha256()
    for part in parts:
        # The length keeps ("ab", "c") apart from ("a", "bc").
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:_KEY_LENGTH]


def obtain(
    root: Path,
    name: str,
    key: str,
    make: Callable[[Path], None],
    waiting: Callable[[], None] = lambda: None,
) -> Path:
    """Return the artifact's folder, made by `make` in a scratch folder when it is not there yet."""
    place = root / f"{name}-{key}"
    if place.is_dir():
        return place
    with _writable(root), _locked(root / f".{name}-{key}.lock", waiting):
        if place.is_dir():
            return place
        prefix = f".{place.name}.part-"
        # We hold the lock: scratch folders of this artifact belong to builders that were killed.
        for stale in root.glob(f"{prefix}*"):
            shutil.rmtree(stale, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        try:
            _make(name, make, scratch)
            scratch.rename(place)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    return place


def _make(name: str, make: Callable[[Path], None], scratch: Path) -> None:
    try:
        make(scratch)
    except OSError as error:
        raise ToolError(f"making {name} failed: {error}") from error


@contextlib.contextmanager
def _writable(root: Path) -> Iterator[None]:
    """Make the cache folder; whatever of our own cannot be written there is an error with the way out."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ToolError(
            f"cannot write to the cache {root} ({error.strerror or error}): make room for it there, or set "
            "XDG_CACHE_HOME to a folder that you may write to"
        ) from error


@contextlib.contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
