"""What the command line says when it cannot start: one line, the right exit code, nothing else."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support.processes import LOOPBACK_FLAGS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "HOME": "/nonexistent",
        **env,
    }
    command = [sys.executable, "-m", "slurm_operator", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def only_line(result: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the one line that a failed start prints."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def config_for(server: str, folder: Path, **user: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


def test_no_configuration() -> None:
    """Without any kubeconfig the line says where it was looked for."""
    line = only_line(run("manager"), 1)
    assert "KUBECONFIG" in line
    assert "--kubeconfig" in line


def test_missing_kubeconfig() -> None:
    """A kubeconfig that does not exist is named."""
    assert "/no/such/file" in only_line(run("manager", "--kubeconfig=/no/such/file"), 1)


def test_broken_kubeconfig(tmp_path: Path) -> None:
    """A kubeconfig that is not YAML is named."""
    path = tmp_path / "broken"
    path.write_text("{:")
    assert str(path) in only_line(run("manager", KUBECONFIG=str(path)), 1)


def test_unreachable_server(tmp_path: Path) -> None:
    """A server that refuses connections is named, without a traceback."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{unused.getsockname()[1]}"
        line = only_line(run("manager", *LOOPBACK_FLAGS, KUBECONFIG=str(config_for(server, tmp_path))), 1)
    assert server in line


def test_a_server_that_is_no_api_server(tmp_path: Path) -> None:
    """An address whose host does not exist is named."""
    path = config_for("https://no-such-host.invalid:6443", tmp_path)
    assert "no-such-host.invalid" in only_line(run("manager", *LOOPBACK_FLAGS, KUBECONFIG=str(path)), 1)


def test_refused_credentials(kube_box: Box, tmp_path: Path) -> None:
    """Credentials that the server refuses are one line, without the credentials."""
    path = config_for(kube_box.server, tmp_path, token="wrong-token-value")  # noqa: S106 - what must not be shown
    line = only_line(run("manager", *LOOPBACK_FLAGS, KUBECONFIG=str(path)), 1)
    assert "401" in line
    assert "wrong-token-value" not in line


@pytest.mark.parametrize("flag", ["--health-addr", "--metrics-addr", "--profile-addr", "--status-addr"])
def test_an_address_in_use(kube_box: Box, flag: str) -> None:
    """A port that is taken is named with the server that wanted it."""
    with socket.socket() as listed_at:
        listed_at.bind(("127.0.0.1", 0))
        listed_at.listen()
        address = f"127.0.0.1:{listed_at.getsockname()[1]}"
        flags = [*LOOPBACK_FLAGS, "--profile", "--profile-addr=127.0.0.1:0", f"{flag}={address}"]
        result = run("manager", *flags, KUBECONFIG=str(kube_box.kubeconfig))
    assert result.returncode == 1
    assert f"cannot listen on {address} for {flag.removeprefix('--').removesuffix('-addr')}" in result.stderr
    assert "Traceback" not in result.stderr


def test_wrong_flags_come_before_anything_else() -> None:
    """A wrong flag is reported with code 2 even when nothing else is right either."""
    assert "--nodeset-workers" in only_line(run("manager", "--nodeset-workers=none"), 2)
