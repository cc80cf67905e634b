"""Programs that tests write for the code under test to run."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def shell_program(path: Path, text: str) -> Path:
    """Write a program for sh and return its path."""
    path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    path.chmod(0o755)
    return path


def python_program(path: Path, text: str) -> Path:
    """Write a program for this Python and return its path."""
    source = path.with_name(f"{path.name}.py")
    source.write_text(text, encoding="utf-8")
    # Not in the first line of the source: the kernel takes a space in it for the end of the path.
    return shell_program(path, f'exec {shlex.quote(sys.executable)} {shlex.quote(str(source))} "$@"\n')
