"""How much of Slurm's replies the operator reads at most, so that no server can use up its memory or time.

The number of entries comes first; the size of a reply follows from it: so many entries, times the size of one
as slurmrestd writes it. slurmrestd 26.05 takes 2.4 KiB for a node and 4.9 KiB for a job that runs on one.

    reply                  entries   bytes
    nodes                   65,536   192 MiB   3 KiB for each node
    jobs                    65,536   256 MiB   4 KiB for each job: about 52,000 jobs on one node each
    reservations            65,536    64 MiB   1 KiB for each reservation
    partitions              65,536    64 MiB   1 KiB for each partition
    statistics (diag)                  2 MiB
    everything else                    1 MiB

What a limit means is decided by what the value is for. Text that is only shown is cut. What decides about a
node is never cut: the reply is refused (`ReplyTooLarge`), so the state of the nodes is unknown. Jobs that
name more nodes than may be expanded count as *unplaced*: they may run on any node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_KIB: Final = 2**10
_MIB: Final = 2**20

MAX_NODES: Final = 65_536
"""The most nodes in a list: as many as slurmctld takes in one range of a hostlist."""
MAX_JOBS: Final = 65_536
MAX_EXPANDED: Final = 4 * MAX_NODES
"""The most node names that the jobs of one list may stand for, all together; `MAX_NODES` different ones."""
MAX_NAME: Final = 255
"""The most characters of a node's name; a DNS name has at most 253."""
MAX_HOSTLIST: Final = _MIB
"""The most characters of a hostlist."""
MAX_WORDS: Final = 64
"""The most words in the state of a node or a job, and the most characters of one."""
MAX_SHOWN: Final = 1024
"""The most characters that are kept of a text that is only shown."""
MAX_TEXT: Final = 512
"""The most bytes that the texts of an entry take, on average over the most entries."""
MAX_FIELD: Final = 64 * _KIB
"""The most bytes of one field that is read, where the entry itself is large."""
MAX_ENTRY: Final = 32 * _MIB
"""The most bytes of one entry: a job has a few dozen for each core that it uses."""
MAX_REST: Final = _MIB
"""The most bytes of a reply without the entries of its list, and of a refusal."""
MAX_READ_TOGETHER: Final = 384 * _MIB
"""The most bytes of all replies that are read at the same time, without the first mebibyte of each."""
MAX_DEPTH: Final = 64
MAX_STRING: Final = _MIB
"""The most bytes of a string or a number anywhere in a large reply."""


@dataclass(frozen=True, slots=True)
class ReplyLimit:
    """The most bytes of one kind of reply, and the most entries of its list."""

    size: int
    entries: int = 0


SHORT: Final = ReplyLimit(_MIB)
STATISTICS: Final = ReplyLimit(2 * _MIB)
NODES: Final = ReplyLimit(MAX_NODES * 3 * _KIB, MAX_NODES)
JOBS: Final = ReplyLimit(MAX_JOBS * 4 * _KIB, MAX_JOBS)
JOB_STATES: Final = ReplyLimit(MAX_JOBS * _KIB // 4, MAX_JOBS)
RESERVATIONS: Final = ReplyLimit(MAX_NODES * _KIB, MAX_NODES)
PARTITIONS: Final = ReplyLimit(MAX_NODES * _KIB, MAX_NODES)


def megabytes(size: int) -> str:
    """Return a size in words."""
    return f"{size / _MIB:g} MiB"
