"""The command as kubectl runs it, with credentials of a plugin, and while it watches."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

import yaml

from scripts.demo_cluster import install_plugin
from tests.support.plugin.states import STATES

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from tests.support.plugin.bench import Bench
    from tests.support.plugin.fake_manager import FakeManager


async def test_kubectl_finds_the_plugin(kube_box: Box, tmp_path: Path) -> None:
    """`kubectl slurm` runs the program that is on PATH, hands on its exit code, and completes its words."""
    folder = install_plugin(tmp_path / "bin")["kubectl-slurm"].parent
    path = kube_box.environment["PATH"]
    environment = {**os.environ, **kube_box.environment, "PATH": f"{folder}:{path}"}
    for arguments, code, told in (
        (("slurm", "version"), 0, "kubectl slurm "),
        (("slurm", "explain", "pod"), 2, "a name is missing"),
        (("__complete", "slurm", "explain", "nodes"), 0, "nodeset\n:4\n"),
    ):
        process = await asyncio.create_subprocess_exec(
            *("kubectl", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, told in out.decode()) == (code, True), out


async def test_credentials_of_an_exec_plugin(bench: Bench, manager: FakeManager, tmp_path: Path) -> None:
    """A kubeconfig whose user is an exec plugin works as for kubectl, also through the pod proxy."""
    bench.install(manager)
    rights = ("get leases", "get pods", "get pods/proxy", "create serviceaccounts/token")
    path = bench.user("ann", *rights)
    config = yaml.safe_load(path.read_text())
    token = config["users"][0]["user"]["token"]
    script = tmp_path / "login"
    version = "client.authentication.k8s.io/v1"
    reply = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}})
    script.write_text(f"#!/bin/sh\necho '{reply}'\n")
    script.chmod(0o700)
    config["users"][0]["user"] = {
        "exec": {"apiVersion": version, "command": str(script), "interactiveMode": "Never"}
    }
    path.write_text(yaml.safe_dump(config))
    ended = await bench.run("status", kubeconfig=path)
    assert (ended.code, "JobsRunning" in ended.out, "Limited" in ended.out) == (0, True, False), ended


async def test_watch_prints_what_has_changed(bench: Bench, manager: FakeManager) -> None:
    """With --watch the view is printed once, and again when it is another one."""
    bench.install(manager)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "slurm_operator.plugin.entry", "nodes", "--watch", "-n", bench.namespace),
        f"--operator-namespace={bench.namespace}",
        stdout=asyncio.subprocess.PIPE,
        env={**bench.environment(), "KUBECONFIG": str(bench.kubeconfig)},
    )
    assert process.stdout is not None
    try:
        assert b"MIXED+DRAIN" in await _screen(process.stdout)
        manager.state = STATES["healthy"]
        assert b"DRAIN" not in await _screen(process.stdout)
    finally:
        process.terminate()
        await process.wait()


async def _screen(stream: asyncio.StreamReader) -> bytes:
    """Return what is printed until the next empty line."""
    lines = b""
    while (line := await asyncio.wait_for(stream.readline(), 60)) != b"\n":
        assert line, "the command has ended"
        lines += line
    return lines
