"""What can go wrong between this operator and Slurm, in one tree.

    SlurmError
    ├── Unavailable              the state of the cluster cannot be determined right now
    │   ├── RestUnreachable      slurmrestd is down: no connection, cut off, or silent past the deadline
    │   ├── ControllerDown       slurmrestd answers, slurmctld does not: 502, 504, or a ping without response
    │   ├── Overloaded           Slurm limits the rate of requests and asks to come back later
    │   └── CircuitOpen          not even asked: the last attempts failed and the next is not due yet
    ├── TokenRefused             401, 403 or 511: the token is missing, expired, or signed with another key
    ├── Refused                  Slurm understood and said no: `errors[]`, also inside of an HTTP 200
    │   └── NotInSlurm           what was named does not exist
    ├── BadReply                 an answer that cannot be trusted: truncated, no JSON, unknown shape
    │   └── ReplyTooLarge        an answer beyond one of the limits in `reply_limits`
    ├── WrongCluster             slurmrestd reports the name of another Slurm cluster than the expected one
    ├── NoCommonVersion          slurmrestd speaks none of the API versions this operator knows
    └── Unsupported              this Slurm is too old for what was wanted; nothing was sent or carried out

Each class has a `kind`: one word for metrics and conditions. `sent` tells whether the server may have seen,
and carried out, the request. None of them ever means *drained*, *gone* or *free*. No message carries a token.
A list that slurmrestd cannot make, without being able to say why, is `ControllerDown`, too: see `refusals`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_operator.slurm.model.records import Fault


class SlurmError(Exception):
    """Base of all errors of this package."""

    kind: ClassVar[str] = "SlurmError"
    sent: bool = True


class Unavailable(SlurmError):  # noqa: N818 - it names what happened
    """The state of the cluster cannot be determined right now."""

    kind = "Unavailable"


class RestUnreachable(Unavailable):
    """slurmrestd does not answer: no connection, a connection cut off, or silence past the deadline."""

    kind = "SlurmrestdUnreachable"

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class ControllerDown(Unavailable):
    """slurmrestd answers, but slurmctld does not answer it."""

    kind = "SlurmctldDown"


class Overloaded(Unavailable):
    """Slurm limits the rate of requests and asks to come back later."""

    kind = "Overloaded"


class CircuitOpen(Unavailable):
    """Not sent: the last requests failed, and the next attempt is due in `retry_after` seconds."""

    kind = "CircuitOpen"
    sent = False

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TokenRefused(SlurmError):  # noqa: N818 - it names what happened
    """The token is missing, expired, not yet valid, or signed with another key."""

    kind = "TokenRefused"


class Refused(SlurmError):  # noqa: N818 - it names what happened
    """Slurm understood the request and did not carry it out, or not all of it."""

    kind = "Refused"

    def __init__(self, message: str, faults: Sequence[Fault] = (), *, status: int = 200) -> None:
        super().__init__(message)
        self.faults = tuple(faults)
        self.status = status

    @property
    def numbers(self) -> frozenset[int]:
        """Return Slurm's error numbers in the answer."""
        return frozenset(fault.error_number for fault in self.faults)


class NotInSlurm(Refused):
    """What was named does not exist in Slurm."""

    kind = "NotFound"


class BadReply(SlurmError):  # noqa: N818 - it names what happened
    """The answer cannot be trusted: truncated, no JSON, or of no known shape."""

    kind = "BadReply"


class ReplyTooLarge(BadReply):
    """The answer is beyond a limit on its size, its entries or its texts; the message names the limit."""

    kind = "ReplyTooLarge"

    def __init__(self, what: str, limit: str = "") -> None:
        super().__init__(f"{what}: the answer is too large: {limit}")
        self.limit = limit


class WrongCluster(SlurmError):  # noqa: N818 - it names what happened
    """slurmrestd reports the name of another Slurm cluster than the one that the workers joined."""

    kind = "ClusterNameMismatch"

    def __init__(self, expected: str, reported: str) -> None:
        super().__init__(f"slurmrestd is of the Slurm cluster {reported!r}, not of {expected!r}")
        self.expected = expected
        self.reported = reported


class NoCommonVersion(SlurmError):  # noqa: N818 - it names what happened
    """slurmrestd speaks none of the API versions that this operator knows."""

    kind = "NoCommonVersion"
    sent = False


class Unsupported(SlurmError):  # noqa: N818 - it names what happened
    """This Slurm is too old for what was wanted; nothing was carried out."""

    kind = "Unsupported"
    sent = False
