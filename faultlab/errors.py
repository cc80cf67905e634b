"""What can go wrong in the lab itself; a failed scenario is a result, not an error."""

from __future__ import annotations


class FaultlabError(Exception):
    """The lab cannot do what it was asked for; the text says why."""


class ScenarioError(FaultlabError):
    """A scenario file or a fault cannot be understood."""


class OutOfTimeError(FaultlabError):
    """A condition of a scenario was not met within its time."""
