"""Things built once and kept, each in a folder named by the hash of all that decides its content.

An artifact is built in a scratch folder beside its place and appears there by one rename, so it is whole or
absent, whatever interrupts the build. A file lock per artifact makes a second builder wait and then find the
result.

What depends on the sources of the day is built again and again. Each use leaves its time on the folder, and
`prune` removes what was not used for a day, but for the newest few. Whoever needs an artifact for longer
holds its lock, shared (`hold`), so that no pruner gets it; the kernel gives it back with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_KEY_LENGTH = 16
_KEEP = 4
_UNUSED_SECONDS = 24 * 3600.0


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
    if _is_there(place):
        return place
    with _writable(root), _locked(_lock_of(place), waiting):
        if place.is_dir():
            os.utime(place)
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


def hold(place: Path) -> int:
    """Keep an artifact from being removed for as long as the returned file stays open."""
    fd = os.open(_lock_of(place), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def prune(root: Path, name: str) -> list[str]:
    """Remove the artifacts of a name that nobody used for a day, but for the newest few; return which."""
    for trash in root.glob(f".{name}-*.gone-*"):
        shutil.rmtree(trash, ignore_errors=True)
    own = re.compile(rf"{re.escape(name)}-[0-9a-f]{{{_KEY_LENGTH}}}")
    found = [place for place in root.glob(f"{name}-*") if own.fullmatch(place.name)]
    by_use = sorted(found, key=_last_use, reverse=True)
    return [place.name for place in by_use[_KEEP:] if _is_old(place) and _discarded(place)]


def _discarded(place: Path) -> bool:
    """Remove an artifact, unless somebody holds it or has used it since."""
    trash = place.with_name(f".{place.name}.gone-{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        fd = os.open(_lock_of(place), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_old(place):
                return False
            # By one rename, as it came: nobody ever sees half of it.
            place.rename(trash)
        finally:
            os.close(fd)
        shutil.rmtree(trash, ignore_errors=True)
        return True
    return False


def _is_old(place: Path) -> bool:
    return time.time() - _last_use(place) > _UNUSED_SECONDS


def _last_use(place: Path) -> float:
    try:
        return place.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _is_there(place: Path) -> bool:
    """Return whether an artifact is there and nobody is about to remove it; leave a note of its use."""
    if not place.is_dir():
        return False
    try:
        fd = os.open(_lock_of(place), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # Somebody else's cache, or made by other means: then there is nothing to prune for us either.
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(place)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        os.close(fd)
    return place.is_dir()


def _lock_of(place: Path) -> Path:
    return place.with_name(f".{place.name}.lock")


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
