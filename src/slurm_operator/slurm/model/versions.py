"""Which version of slurmrestd's API to speak, and what each can do.

A slurmrestd serves the versions of its own release and of a few before it; any other is a 404. The newest
that both sides know is used. Nothing that is read here changes its type between these versions, so a version
decides only what can be written.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# Each came with the Slurm release beside it, newest first.
RELEASES: Final = {
    "v0.0.45": "26.05",
    "v0.0.44": "25.11",
    "v0.0.43": "25.05",
    "v0.0.42": "24.11",
}
KNOWN: Final = tuple(RELEASES)


class Feature(StrEnum):
    """What not every known version can do; the value says it in words."""

    TOPOLOGY = "setting the topology of a node"
    RESERVATIONS = "creating, changing or deleting a reservation"
    CREATE_NODES = "creating nodes"
    SUSPEND_TIME = "creating nodes with a SuspendTime of their own"


# The version with which each came. An older server takes an unknown field with a warning and does nothing, so
# asking first is the only way to know that it was done.
NEEDS: Final = {
    Feature.TOPOLOGY: "v0.0.43",
    Feature.RESERVATIONS: "v0.0.43",
    Feature.CREATE_NODES: "v0.0.44",
    Feature.SUSPEND_TIME: "v0.0.45",
}


def offers(version: str, feature: Feature) -> bool:
    """Return whether a known version can do something."""
    return KNOWN.index(version) <= KNOWN.index(NEEDS[feature])


def lack(version: str, feature: Feature) -> str:
    """Say what is missing and what would have it."""
    needed = NEEDS[feature]
    return (
        f"{feature} needs {needed} (Slurm {RELEASES[needed]} or later), and this slurmrestd speaks {version}"
    )
