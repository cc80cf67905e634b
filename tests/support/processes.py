"""Starts the programs under test as processes of their own and waits for what they do."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from kubebox.errors import BoxError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kubebox import Box

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "integration" / "programs"
MANAGER = ("-m", "slurm_operator", "manager")
LOOPBACK_FLAGS = (
    "--health-addr=127.0.0.1:0",
    "--metrics-addr=127.0.0.1:0",
    "--status-addr=127.0.0.1:0",
)
_PAUSE = 0.05
_DEADLINE = 120.0


async def eventually(question: Callable[[], object], what: str, deadline: float = 120.0) -> Any:
    """Ask until the answer, awaited if it can be, is truthy; fail with `what` when the deadline passes."""
    end = time.monotonic() + deadline
    while True:
        answer = question()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {deadline:g} s: {what}"
        await asyncio.sleep(_PAUSE)


class Process:
    """One Python program; its output goes to a file, and it does not outlive the test."""

    def __init__(self, box: Box | None, log: Path, arguments: Sequence[str], **env: str) -> None:
        self.log_file = log
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
        if box is not None:
            environment["KUBECONFIG"] = str(box.kubeconfig)
        environment |= {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **env}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments], stdout=output, stderr=output, env=environment, cwd=log.parent
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def text(self) -> str:
        """Return all it has written."""
        return self.log_file.read_text(encoding="utf-8")

    def entries(self) -> list[dict[str, Any]]:
        """Return the lines that are JSON, that is, its log."""
        return [
            json.loads(line)
            for line in self.text().splitlines()
            if line.startswith("{") and line.endswith("}")
        ]

    def logged(self, message: str, **values: object) -> dict[str, Any] | None:
        """Return the first log entry with this message and these values."""
        return next(
            (
                entry
                for entry in self.entries()
                if entry["msg"] == message and values.items() <= entry.items()
            ),
            None,
        )

    async def ended(self, deadline: float = 60.0) -> int:
        """Wait for the end and return the exit code."""
        await eventually(
            lambda: self._process.poll() is not None, f"the process ends; it wrote:\n{self.text()}", deadline
        )
        return int(self._process.returncode)

    async def port(self, server: str) -> int:
        """Return the port on which one of its servers listens."""
        await eventually(
            lambda: self.logged("listening", server=server) or self._process.poll() is not None,
            f"{server} listens",
        )
        entry = self.logged("listening", server=server)
        assert entry is not None, self.text()
        return int(entry["port"])

    async def get(self, server: str, path: str) -> tuple[int, str]:
        """Ask one of its plain HTTP servers."""
        url = f"http://127.0.0.1:{await self.port(server)}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def ready(self) -> bool:
        """Return whether it says that it is ready."""
        return (await self.get("health", "/readyz"))[0] == 200


def await_kinds(box: Box, *names: str) -> None:
    """Wait until custom resource definitions, by default all there are, can be used."""
    end = time.monotonic() + _DEADLINE
    while True:
        try:
            box.kubectl("wait", "--for=condition=Established", "--timeout=60s", *(names or ("crd", "--all")))
        except BoxError as error:
            # kubectl gives up on a definition that has no condition at all yet.
            if "accessor error" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
        else:
            return


def install_crds(box: Box) -> None:
    """Install the CRDs the way the documentation tells a user to."""
    crds = subprocess.run(
        [sys.executable, "-m", "slurm_operator", "crds"],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    box.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=crds)
