from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubebox.state import state_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Eventually = Callable[[Callable[[], bool], str], None]

_DEADLINE = 120.0


def _eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not so after {_DEADLINE:g} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def eventually() -> Eventually:
    """Wait for a condition, with a deadline."""
    return _eventually


@pytest.fixture
def state_home() -> Iterator[Path]:
    """Keep a test's boxes apart from those of others, at a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="kb-", dir=state_root().parent))
    yield folder
    shutil.rmtree(folder)


def _running(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                folder = str((entry / "cwd").readlink())
            except OSError:
                continue
            if marker in command or marker in folder:
                found.append(f"{entry.name} {command.replace(chr(0), ' ')}")
    return found


@pytest.fixture
def processes_in() -> Callable[[Path], list[str]]:
    """List every process that runs in a box's folder or names it in its command line."""
    return lambda folder: _running(str(folder))
