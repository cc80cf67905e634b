"""The operator's process: started, killed with SIGKILL, and started again, as its Deployment would do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from typing import TYPE_CHECKING, Final, Self

from faultlab.errors import FaultlabError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# A container that ends again and again is started with growing pauses; the first one is short.
_PAUSE: Final = 0.2
_TAIL: Final = 3000


class Operator:
    """The command under test; use it as an asynchronous context manager."""

    def __init__(self, command: str, environment: Mapping[str, str], log: Path) -> None:
        self._words = shlex.split(command)
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
        self._environment |= environment
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.lives = 0
        """How often it was started."""
        self.kills = 0
        """How often the lab killed it."""
        self.ends: list[int] = []
        """The exit codes with which it ended by itself."""

    async def __aenter__(self) -> Self:
        await self._start()
        self._keeper = asyncio.create_task(self._keep(), name="operator")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def kill(self) -> None:
        """Kill the process, which is then started again."""
        process = self._process
        if process is not None and process.returncode is None:
            self.kills += 1
            process.send_signal(signal.SIGKILL)

    def tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-_TAIL:]

    async def _start(self) -> None:
        with self._log.open("ab") as output:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environment,
                )
            except OSError as error:
                raise FaultlabError(f"the operator cannot be started: {error}") from None
        self.lives += 1

    async def _keep(self) -> None:
        while self._process is not None:
            kills = self.kills
            code = await self._process.wait()
            # A kill that came while it ran is ours; any other end is its own.
            if self.kills == kills and code != -signal.SIGKILL:
                self.ends.append(code)
            await asyncio.sleep(_PAUSE * (1 + min(len(self.ends), 20)))
            await self._start()
