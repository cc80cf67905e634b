"""A real Prometheus on loopback, for as long as a test needs it."""

from __future__ import annotations

import asyncio
import re
import subprocess
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
import yaml

from kubebox.procs import die_with_parent, tail
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kubebox.prometheus import PrometheusPrograms

_LISTENS = re.compile(r'msg="Listening on" address=(\S+)')
_SECONDS = aiohttp.ClientTimeout(total=30)


class PrometheusServer:
    """Answers questions about targets and series."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def ready(self) -> bool:
        """Return whether it takes queries."""
        async with self._session.get(f"{self._url}/-/ready") as response:
            return response.status == HTTPStatus.OK

    async def targets(self) -> list[dict[str, Any]]:
        """Return the targets that are scraped."""
        found: list[dict[str, Any]] = (await self._get("targets", state="active"))["activeTargets"]
        return found

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression gives now."""
        found: list[dict[str, Any]] = (await self._get("query", query=expression))["result"]
        return found

    async def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        async with self._session.get(f"{self._url}/api/v1/{path}", params=parameters) as response:
            answer = await response.json()
        assert answer["status"] == "success", f"{path} {parameters}: {answer}"
        data: dict[str, Any] = answer["data"]
        return data


@asynccontextmanager
async def prometheus_server(
    programs: PrometheusPrograms, folder: Path, config: dict[str, Any]
) -> AsyncIterator[PrometheusServer]:
    """Run Prometheus with a configuration until the block ends."""
    file, log = folder / "prometheus.yml", folder / "prometheus.log"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [
        *programs.prometheus,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        # By default new targets wait for up to 5 seconds.
        "--scrape.discovery-reload-interval=1s",
    ]
    process = _start(command, log)
    try:
        await eventually(
            lambda: process.poll() is not None or _LISTENS.search(log.read_text(encoding="utf-8")),
            "Prometheus listens",
        )
        found = _LISTENS.search(log.read_text(encoding="utf-8"))
        assert found is not None, f"Prometheus ended: {tail(log)}"
        async with aiohttp.ClientSession(timeout=_SECONDS) as session:
            server = PrometheusServer(f"http://{found[1]}", session)
            await eventually(server.ready, "Prometheus is ready")
            yield server
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            # The test that started it waits for its end, in the same thread.
            preexec_fn=die_with_parent(),  # noqa: PLW1509
        )
