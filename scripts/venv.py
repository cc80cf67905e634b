"""Make the development environment once, outside the tree, and print where it is.

The environment is named after a digest of the pinned requirements and of the interpreter: a change of either
makes a new one, an unchanged checkout starts at once without a network. Only the standard library is needed.

    python3 scripts/venv.py            make it if it is missing; its path is the last line on standard output
    python3 scripts/venv.py --path     print the path and make nothing
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements" / "dev.txt"
MINIMUM = (3, 11)


def cache_folder() -> Path:
    """Return the user's cache folder for this project."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say to ignore a relative path, which would be another folder from each place of calling.
    parent = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return parent / "slurm-operator"


def environment_path() -> Path:
    """Return where the environment for these requirements and this interpreter belongs."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes())
    digest.update(f"{sys.implementation.cache_tag} {sys.executable} {sys.version}".encode())
    return cache_folder() / f"venv-{digest.hexdigest()[:16]}"


def say(text: str) -> None:
    """Print progress where it does not mix with the path on standard output."""
    print(text, file=sys.stderr, flush=True)


def make(path: Path) -> None:
    """Make the environment at its final place; a half-made one is recognised by its missing mark."""
    started = time.monotonic()
    say(f"==> python environment: installing pinned requirements into {path}")
    shutil.rmtree(path, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(path)], check=True)
    pip = [str(path / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(REQUIREMENTS)], check=True)
    (path / ".complete").touch()
    say(f"    python environment ready in {time.monotonic() - started:.0f} s")


def ensure(path: Path) -> None:
    """Make the environment unless it is whole already; one process at a time makes it."""
    mark = path / ".complete"
    # Looked at before anything is written: a warm cache may be read-only.
    if mark.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists():
            make(path)


def main() -> int:
    """Run the command."""
    if sys.version_info[:2] < MINIMUM:
        say(
            f"Python {MINIMUM[0]}.{MINIMUM[1]} or newer is needed, not {sys.version.split()[0]}: set PYTHON=…"
        )
        return 1
    path = environment_path()
    if "--path" not in sys.argv[1:]:
        try:
            ensure(path)
        except subprocess.CalledProcessError as error:
            say(f"making the python environment failed: {error}")
            say("needed: the venv module (Debian: python3-venv) and a package index pip can reach")
            return 1
        except OSError as error:
            say(f"making the python environment failed: {error}: set XDG_CACHE_HOME to a writable folder")
            return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
