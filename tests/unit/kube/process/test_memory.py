"""The memory that the process gives back, seen from outside in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from slurm_operator.kube.client.watch_stream import BATCHING

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


def _buffer_bytes() -> int:
    """Return how much one connection of this asyncio reads at once."""
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
    return int(run.stdout)


def test_one_read_of_a_busy_watch_is_a_whole_batch() -> None:
    """What is set is what asyncio reads: a batch, and a record of TLS of which only a part has come.

    Less than a batch would ask the kernel for more, and wait for it, with every read of a burst.
    """
    record = 2**14
    assert _buffer_bytes() >= BATCHING.size + record


def test_a_connection_takes_no_large_block() -> None:
    """asyncio decrypts each record into a block of that size: a large one is the kernel's, page by page."""
    assert _buffer_bytes() < 128 * 1024
