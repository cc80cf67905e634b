"""What the commands for every kind of box print, and how boxes are found and ended by name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

from kubebox import state
from kubebox.errors import BoxError
from kubebox.state import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox.handle import Handle
    from kubebox.state import Layout

    Attach = Callable[[str], Handle]

DEFAULT_NAME = "default"


class Stopwatch:
    """Print each line with the seconds since the start."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._began = time.monotonic()
        self._stream = stream

    def __call__(self, line: str) -> None:
        """Print one line."""
        print(f"[{time.monotonic() - self._began:6.1f} s] {line}", file=self._stream, flush=True)


def take_down(root: Path, name: str | None, attach: Attach) -> None:
    """End one box, or every box when no name is given, and say so."""
    for left in state.sweep(root):
        print(f"removed what was left of box {left}")
    live = [layout for layout in state.layouts(root) if name in {None, layout.name}]
    still_up = []
    for layout in live:
        try:
            attach(layout.name).down()
        except BoxError as error:
            # One that ended while we took another down is down; one that just starts cannot be asked yet.
            if state.is_live(layout):
                still_up.append(f"box {layout.name} is still up: {error}")
                continue
        print(f"box {layout.name} is down")
    if not live:
        print("no box is up" if name is None else f"no box {name!r} is up")
    if still_up:
        raise BoxError("; ".join(still_up))


def show_status(root: Path, attach: Attach) -> None:
    """List the boxes with their components, and clear away what dead ones left."""
    for left in state.sweep(root):
        print(f"removed what was left of box {left}: its supervisor had died")
    found = state.layouts(root)
    for layout in found:
        _show_box(layout, attach)
    if not found:
        print("no box is up")


def _show_box(layout: Layout, attach: Attach) -> None:
    try:
        record = Record.read(layout.record)
        owner = "detached" if record.owner is None else f"owned by process {record.owner.pid}"
        print(
            f"{layout.name}: {record.version or 'starting'} at {record.server}, {owner}, in {layout.folder}"
        )
        if not record.ready:
            return
        for name, component in attach(layout.name).status().items():
            port = component["port"] or "-"
            print(f"  {name:<25} pid {component['pid']:<8} port {port:<6} {component['health']}")
    except BoxError as error:
        # It may be starting, or ending while we look.
        print(f"{layout.name}: {error}")
