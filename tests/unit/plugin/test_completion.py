"""Shell completion with an API server on loopback."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from slurm_operator.plugin.completion import script
from tests.support.plugin.fake_kubernetes import GROUP, SLURM, FakeKubernetes
from tests.support.plugin.sample_authority import authority
from tests.support.plugin.states import STATES

ROOT = Path(__file__).resolve().parents[3]


async def test_a_name_is_never_run_by_the_shell(tmp_path: Path) -> None:
    """bash expands the words that it is offered; a server may send any text as the name of an object."""
    async with FakeKubernetes(STATES["healthy"], authority("2099-12-31")) as server:
        names = ("workers", f"w$(touch {tmp_path}/run)", "w`id`", "w\x1b[31m", "w\nx")
        items = [{"metadata": {"name": name}} for name in names]
        server.objects[f"{GROUP}/namespaces/{SLURM}/nodesets"] = items
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        program = tmp_path / "kubectl_complete-slurm"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m slurm_operator.plugin.completion "$@"\n')
        program.chmod(0o755)
        words = f"COMP_WORDS=(kubectl-slurm --kubeconfig={kubeconfig} nodes w) COMP_CWORD=3"
        result = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", f"{script('bash')}\n{words}\n_kubectl_slurm\nprintf '%s|' \"${{COMPREPLY[@]}}\""],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
    assert result.stdout == "workers|", result.stderr
    assert not (tmp_path / "run").exists()
