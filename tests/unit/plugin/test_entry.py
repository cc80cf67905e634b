from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "call",
    [
        "from slurm_operator.plugin.entry import main; main(['version'])",
        "from slurm_operator.plugin.entry import main; main(['completion', 'bash'])",
        "from slurm_operator.plugin.completion import candidates; candidates(['explain', 'po'])",
    ],
)
def test_what_needs_no_server_loads_no_http_stack(call: str) -> None:
    """Version and completion start fast: neither aiohttp nor asyncio nor msgspec is imported for them."""
    check = "import sys; print(sorted({'aiohttp', 'asyncio', 'msgspec', 'yaml', 'ssl'} & {*sys.modules}))"
    result = subprocess.run(
        [sys.executable, "-c", f"{call}; {check}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_reading_views_loads_no_server_code() -> None:
    """A view loads no controllers, no libraries that only the manager needs, and no kinds of objects."""
    check = (
        "import sys, slurm_operator.plugin.commands; "
        "print(sorted(name for name in sys.modules if name.startswith(('slurm_operator.controllers', "
        "'slurm_operator.api', 'slurm_operator.slurm', 'slurm_operator.objects', 'cryptography', "
        "'prometheus_client'))))"
    )
    result = subprocess.run(
        [sys.executable, "-c", check],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"


def test_the_certificates_of_the_system_are_read_only_for_a_kubeconfig_that_needs_them() -> None:
    """aiohttp's own context has none, which saves a tenth of a second; the environment stays as it was."""
    code = (
        "import os, ssl; from slurm_operator.plugin.entry import main; before = dict(os.environ); "
        "known = ssl.create_default_context().cert_store_stats(); "
        "main(['status', '--kubeconfig', '/nonexistent']); import aiohttp.connector as c; "
        "print(c._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509'], dict(os.environ) == before, "
        "ssl.create_default_context().cert_store_stats() == known)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "0 True True"
