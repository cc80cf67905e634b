"""Programs that tests write or run beside the code under test."""

from __future__ import annotations

import shlex
import subprocess
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


def read_by_a_shell(argument: str, **environment: str) -> list[str]:
    """Return the words that a shell makes of the argument, as the entrypoint of the images does."""
    script = 'eval "set -- $0"; for word; do printf "%s\\0" "$word"; done'
    answer = subprocess.run(
        ["/bin/sh", "-c", script, argument], env=environment, capture_output=True, text=True, check=True
    )
    return answer.stdout.split("\0")[:-1]
