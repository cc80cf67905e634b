"""How workers are replaced when what they run has changed."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar

from slurm_operator.api import duration
from slurm_operator.api.limits import ENTRIES, MAX_WORD, IntOrWord, Word
from slurm_operator.api.markers import DEFAULTED, NULLABLE, Rule, Timestamp, max_length, one_of, pattern
from slurm_operator.kube.models.meta import Part

if TYPE_CHECKING:
    from datetime import timedelta


class UpdateStrategyType(StrEnum):
    """When pods of an older revision are replaced."""

    ROLLING_UPDATE = "RollingUpdate"
    ON_DELETE = "OnDelete"
    SCHEDULED_UPDATE = "ScheduledUpdate"


class RollingUpdate(Part, frozen=True):
    """How fast a RollingUpdate may go."""

    max_unavailable: Annotated[IntOrWord, DEFAULTED] = "25%"
    """How many workers may be out of service at once because of the update: a number, at least 1, or a
    percentage of all workers, rounded up. Workers that are missing or not available for other
    reasons count towards it."""


class ScheduledUpdate(Part, frozen=True):
    """When a ScheduledUpdate happens: the maintenance reservation that the operator makes in Slurm.

    Slurm starts no job that would still run when the window opens. In the window, the workers are replaced
    without regard to maxUnavailable, each as soon as no job runs on it.
    """

    start_time: Annotated[Timestamp, max_length(MAX_WORD)] = ""
    """When the window opens, in RFC 3339 with a time zone: `2026-12-01T04:00:00Z`. Required for
    ScheduledUpdate."""

    duration: Annotated[Word, pattern(duration.PATTERN), DEFAULTED] = "30m"
    """How long the window stays open: `30m`, `1h30m`; at least one minute."""

    flags: Annotated[tuple[Word, ...] | None, NULLABLE, ENTRIES] = None
    """Flags for the reservation besides MAINT and IGNORE_JOBS, for example `WEEKLY` for a window that
    comes back, or `FORCE_START` for one whose start may lie in the past."""

    def opens(self) -> datetime:
        """Return when the window opens; raise ValueError that names the field if that cannot be told."""
        try:
            moment = datetime.fromisoformat(self.start_time.upper())
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ValueError(
                f"spec.updateStrategy.scheduledUpdate.startTime: {self.start_time!r} is not a point in time: "
                "write date, time and zone, such as 2026-12-01T04:00:00Z"
            )
        return moment

    def length(self) -> timedelta:
        """Return the duration; raise ValueError that names the field if it is none."""
        try:
            return duration.parse_duration(self.duration)
        except ValueError as error:
            raise ValueError(f"spec.updateStrategy.scheduledUpdate.duration: {error}") from None


class UpdateStrategy(Part, frozen=True):
    """When and how workers are replaced after a change to what they run.

    A change to the pod template, to the slurmd, logfile or ssh settings, to extraConf, ordinalPadding or
    oversubscribeNode makes a new revision. Workers of the old one are replaced in one of three ways.
    Whenever the operator replaces a worker, it drains the node in Slurm first, and removes the pod only when
    no job runs there any more.

    - RollingUpdate replaces workers a few at a time, on its own, as fast as maxUnavailable allows and as
      jobs end. The right choice unless you have a reason against it.
    - OnDelete replaces a worker when you delete its pod. For updates that you want to drive by hand, node by
      node. Where the operator chart protects workers from deletion (Kubernetes 1.30 or later), the pod goes
      when its jobs have ended. Elsewhere drain the node yourself before: the deletion ends its jobs.
    - ScheduledUpdate replaces workers in a maintenance window that is booked as a reservation in Slurm. For
      clusters with long jobs and announced maintenance.

    Example, at most two workers at a time:

      updateStrategy:
        type: RollingUpdate
        rollingUpdate:
          maxUnavailable: 2

    Example, a two-hour window every week:

      updateStrategy:
        type: ScheduledUpdate
        scheduledUpdate:
          startTime: "2026-12-01T04:00:00Z"
          duration: 2h
          flags: [WEEKLY]
    """

    MARKERS: ClassVar = (
        Rule(
            "self.type != 'ScheduledUpdate' || (has(self.scheduledUpdate)"
            " && has(self.scheduledUpdate.startTime) && has(self.scheduledUpdate.duration))",
            "scheduledUpdate.startTime and scheduledUpdate.duration are required when type is "
            "ScheduledUpdate: say when the maintenance window opens and how long it lasts",
            field="scheduledUpdate",
        ),
    )

    type: Annotated[str, one_of(UpdateStrategyType), DEFAULTED] = UpdateStrategyType.ROLLING_UPDATE.value
    """Which of the three ways is used: `RollingUpdate` a few workers at a time, `OnDelete` only those
    whose pods you delete, `ScheduledUpdate` all of them in a maintenance window."""

    rolling_update: RollingUpdate = RollingUpdate()

    scheduled_update: ScheduledUpdate = ScheduledUpdate()
