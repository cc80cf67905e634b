"""How a process is told to end."""

from __future__ import annotations

import asyncio
import os
import signal

import structlog

_log = structlog.get_logger(__name__)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set the event on SIGTERM or SIGINT; a second signal ends the process at once."""

    def caught(number: int) -> None:
        if stop.is_set():
            os._exit(1)
        _log.info("signal received", signal=signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, caught, number)
