"""How the demo tells what it does: steps with their times, and commands with their output."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def say(text: str) -> None:
    """Print one line at once, so that progress is seen as it happens."""
    print(text, flush=True)


def detail(text: str) -> None:
    """Print one line of what happens within a step."""
    say(f"    {text}")


@contextlib.contextmanager
def step(label: str) -> Iterator[None]:
    """Say what is done now and how long it took."""
    started = time.monotonic()
    say(f"==> {label}")
    yield
    detail(f"done in {time.monotonic() - started:.1f} s")


def shown(command: str, output: str) -> None:
    """Print a command as a person would type it, and its output."""
    say(f"\n$ {command}")
    say(output.rstrip())
