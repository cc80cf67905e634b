"""A container registry on one address of this machine, for as long as a `with` lasts."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

from kubebox.binaries import provide
from kubebox.errors import ToolError
from kubebox.ports import HeldPort
from kubebox.procs import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kubebox.slurm.packages import Progress

_READY_SECONDS = 60.0


@contextlib.contextmanager
def local_registry(host: str, folder: Path, say: Progress, *, users: str = "") -> Iterator[str]:
    """Run a registry without TLS that keeps its content in a folder, and yield its HOST:PORT.

    `users` are lines of an htpasswd file; without any, no password is asked for.
    """
    program = provide(["registry"], say)["registry"]
    folder.mkdir(parents=True, exist_ok=True)
    held = HeldPort(host)
    address = f"{host}:{held.port}"
    # The registry has no option to share the port with us.
    held.close()
    settings: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "content")}},
        "http": {"addr": address},
    }
    if users:
        (folder / "htpasswd").write_text(users, encoding="utf-8")
        settings["auth"] = {"htpasswd": {"realm": "release", "path": str(folder / "htpasswd")}}
    # JSON is YAML, too.
    (folder / "config.yml").write_text(json.dumps(settings), encoding="utf-8")
    log = folder / "registry.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "serve", str(folder / "config.yml")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - this command has one thread
        )
    try:
        _await(address, process, log)
        yield address
    finally:
        process.terminate()
        process.wait()


def _await(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        connection = http.client.HTTPConnection(address, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/v2/")
            connection.getresponse().read()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            text = log.read_text(encoding="utf-8", errors="replace")
            raise ToolError(f"the registry does not answer at {address}:\n{text[-2000:]}")
        time.sleep(0.2)
