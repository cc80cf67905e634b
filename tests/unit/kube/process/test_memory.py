"""The memory that the process gives back, seen from outside in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
# Pieces of the size of an answer, between small ones that stay; the first round teaches glibc its habit.
PROGRAM = """
import sys
from bench.memory import resident_kib
if sys.argv[1] == "tamed":
    from slurm_operator.kube.process import memory
    memory.tame()
stays = []
def burst():
    large = []
    for _ in range(200):
        large.append(bytearray(200 * 1024))
        stays.append(bytearray(2000))
burst()
before = resident_kib()
burst()
print(resident_kib() - before)
"""


def _kept(how: str) -> int:
    """Return how many KiB a process still holds after a burst of 40 MiB."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return int(run.stdout)


def test_what_a_burst_needed_is_given_back() -> None:
    """After a burst of large answers the process holds what is alive, and not what the burst needed."""
    assert _kept("tamed") < 5 * 1024
    assert _kept("wild") > 20 * 1024


def test_this_asyncio_has_the_size_of_its_buffers_where_it_is_set() -> None:
    """What is set is what asyncio reads: a connection's buffer is as large as its `max_size` says."""
    program = """
import asyncio.sslproto, ssl
from slurm_operator.kube.process import memory
memory.tame()
async def main():
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context()
    made = asyncio.sslproto.SSLProtocol(loop, asyncio.Protocol(), context, None, False, "x")
    print(len(made._ssl_buffer))
asyncio.run(main())
"""
    run = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert int(run.stdout) == 32 * 1024
