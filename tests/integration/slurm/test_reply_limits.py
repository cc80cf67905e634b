"""What a hostile slurmrestd can cost: each bomb against a process of its own, whose memory is counted.

The memory is asserted; times are printed (`-s`, or `-rP`), for they depend on what else the machine does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_operator.slurm.model import reply_limits
from tests.support.slurm.hostile_server import HostileSlurmrestd
from tests.support.slurm.oversized_replies import BOMBS, MEGABYTE

ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 240.0
# Beside the reply itself: the entries of the longest list, and one piece of it while it is decoded.
ENTRIES_MIB = 110
# Those whose reply is refused while it arrives never take more than the limit.
MOST_MIB = reply_limits.NODES.size / MEGABYTE + 10

UNPLACED = {
    "40 jobs on 65,536 nodes each": "more than 65536 different nodes",
    "65,536 jobs on the same 65,536 nodes": "more than 262144 nodes in all",
    "65,536 jobs on 65,536 other nodes each": "more than 65536 different nodes",
    "a job on nodes with names of a megabyte": "a name of more than 255 characters",
    "a job on a node with 100,000 brackets": "a name of more than 255 characters",
}
TOO_LARGE = {
    "1.7 million nodes": "it lists more than 65536 nodes",
    "a node with 4 million features": "the features of an entry has more than 65536 bytes",
    "a node with a reason of 64 MiB": "a string in it is longer than 1 MiB",
    "texts in four bytes each": "the texts of its nodes take more than 32 MiB",
    "64 MiB of nesting": "nested more than 64 levels deep",
    "64 MiB of nesting at the top": "nested more than 64 levels deep",
    "64 MiB of errors": "it has more than 1 MiB beside its list",
    "250 MB with a length": "longer than 201326592 bytes",
    "250 MB without a length": "longer than 201326592 bytes",
    "250 MB of spaces": "longer than 201326592 bytes",
    "250 MB in chunks": "longer than 201326592 bytes",
    "250 MB of a refusal": "longer than 1048576 bytes",
    "tiny chunks": "chunks of less than 256 bytes",
    "endless headers": "its head is longer than 65536 bytes",
    "endless interim answers": "more than 8 interim answers",
    "endless trailer": "its trailer is longer than 65536 bytes",
    "a million pings": "longer than 1048576 bytes",
}
UNREADABLE = {"16 million empty nodes", "16 million numbers for nodes", "64 MiB in 64 kB of gzip"}
JOBS_TOO_LARGE = {"a job in 4 million states", "700,000 jobs"}
# What the view says about nodes does not rest on these, and they are within their limits.
HARMLESS = {"a million statistics", "1.7 million reservations", "65,536 jobs on one node"}


def test_every_bomb_is_covered() -> None:
    """No bomb is left out here."""
    assert {*UNPLACED, *TOO_LARGE, *UNREADABLE, *JOBS_TOO_LARGE, *HARMLESS} == {*BOMBS}


async def weighed(name: str) -> dict[str, Any]:
    """Let a process of its own watch a server that answers with a bomb, and return what it says."""
    bomb = BOMBS[name]
    async with HostileSlurmrestd() as server:
        server.add_nodes("n[1-9]")
        server.add_nodes("free", "IDLE", "DRAIN", "DYNAMIC_NORM")
        server.raw[bomb.endpoint] = bomb.pieces
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.slurm.weighing", server.url),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        except TimeoutError:
            process.kill()
            raise
    assert process.returncode == 0
    report: dict[str, Any] = json.loads(output.splitlines()[-1])
    took = f"peak {report['peak_mib']:.0f} MiB, CPU {report['cpu_seconds']:.2f} s"
    print(f"{name}: {took}, longest turn {report['longest_turn_cpu_seconds'] * 1000:.0f} ms")  # noqa: T201 - the figures
    return report


@pytest.mark.parametrize("name", UNPLACED)
async def test_jobs_that_name_too_many_nodes_are_unplaced(name: str) -> None:
    """Jobs beyond the budget may be on any node: none is drained, and little memory is taken."""
    report = await weighed(name)
    assert report["failure"] is None
    assert report["answer"] == "Known"
    assert (report["drained"], report["drained_reason"]) == (False, "JobsUnknown")
    assert UNPLACED[name] in report["unplaced"][0]
    assert len(report["unplaced"]) <= 11
    assert report["peak_mib"] < ENTRIES_MIB


@pytest.mark.parametrize("name", TOO_LARGE)
async def test_a_reply_beyond_a_limit_makes_every_node_unknown(name: str) -> None:
    """What is too large is refused with a reason of its own that names the limit, and costs little."""
    report = await weighed(name)
    kind, words = report["failure"]
    assert kind == "ReplyTooLarge"
    assert TOO_LARGE[name] in words
    assert (report["answer"], report["reason"], report["nodes"]) == ("Unknown", "ReplyTooLarge", 0)
    assert report["drained"] is False
    assert report["peak_mib"] < MOST_MIB


@pytest.mark.parametrize("name", sorted(UNREADABLE))
async def test_what_is_no_list_makes_every_node_unknown(name: str) -> None:
    """What is large and no list is not decoded as a whole only to find that out."""
    report = await weighed(name)
    assert report["failure"][0] == "BadReply"
    assert (report["answer"], report["reason"]) == ("Unknown", "ReplyUnreadable")
    assert report["peak_mib"] < ENTRIES_MIB


@pytest.mark.parametrize("name", sorted(JOBS_TOO_LARGE))
async def test_a_list_of_jobs_beyond_a_limit_confirms_nothing(name: str) -> None:
    """While the jobs cannot be read the nodes are known, and none of them is drained."""
    report = await weighed(name)
    assert (report["failure"], report["jobs_failure"]) == (None, "ReplyTooLarge")
    assert (report["answer"], report["drained"], report["drained_reason"]) == (
        "Known",
        False,
        "ReplyTooLarge",
    )
    assert report["peak_mib"] < ENTRIES_MIB


@pytest.mark.parametrize("name", sorted(HARMLESS))
async def test_what_decides_nothing_costs_little(name: str) -> None:
    """Statistics and reservations beyond their limits are not read; the rest of the view is as it was."""
    report = await weighed(name)
    assert (report["failure"], report["answer"], report["drained"]) == (None, "Known", True)
    assert report["peak_mib"] < ENTRIES_MIB
