"""Which functions really run on behalf of a package."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PRODUCT = "slurm_operator."


@contextmanager
def traced(package: str) -> Iterator[set[tuple[str, str]]]:
    """Collect the functions of the product, each with its module, that are called below one of a package.

    A function of the package must be on the stack, so what other controllers do at the same time does not
    count. Imports do not count either.
    """
    found: set[tuple[str, str]] = set()

    def called(frame: FrameType, event: str, _: Any) -> None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
        if event != "call" or (module, function) in found or not module.startswith(PRODUCT):
            return
        if function == "<module>":
            return
        below: FrameType | None = frame
        while below is not None:
            if f"{below.f_globals.get('__name__', '')}.".startswith(f"{package}."):
                found.add((module, function))
                return
            below = below.f_back

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
