"""What a watch asks a Slurm cluster; everything else that a client can do is for others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from slurm_operator.slurm.model.records import (
        Diag,
        JobList,
        JobStateList,
        NodeList,
        Ping,
        ReservationList,
    )


class PolledApi(Protocol):
    """What a survey asks; a `RestClient` is one."""

    @property
    def release(self) -> str:
        """Return the release of Slurm."""

    @property
    def namespace(self) -> str:
        """Return the namespace that shares with others what all Slurm clusters use."""

    async def nodes(self, since: int | None = None) -> NodeList | None:
        """Return all nodes, or None if nothing has changed since."""

    async def jobs(self, since: int | None = None) -> JobList | None:
        """Return all jobs, or None if nothing has changed since."""

    async def job_states(self, numbers: Collection[int]) -> JobStateList:
        """Return which of these jobs may still hold nodes, and which are said to have ended."""

    async def reservations(self, since: int | None = None) -> ReservationList | None:
        """Return all reservations, or None if nothing has changed since."""

    async def ping(self) -> tuple[Ping, ...]:
        """Return how each slurmctld answers."""

    async def diag(self) -> Diag:
        """Return what slurmctld says about itself."""
