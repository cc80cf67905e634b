from __future__ import annotations

import pytest

from slurm_operator.kube.decide.retries import retry_delay
from slurm_operator.kube.errors import (
    ApiError,
    Conflict,
    ConnectionFailed,
    KubeError,
    NotFound,
    ServerError,
    TlsError,
    TooManyRequests,
    api_error,
)


def delay(
    failure: ConnectionFailed | ApiError, *, write: bool, tries: int = 1, jitter: float = 0.0
) -> float | None:
    return retry_delay(failure, tries=tries, write=write, jitter=jitter)


def budget(retry_after: float | None) -> ApiError:
    causes = [{"reason": "DisruptionBudget", "message": "needs 1"}]
    return api_error(429, "TooManyRequests", "no", details={"causes": causes}, retry_after=retry_after)


@pytest.mark.parametrize(
    ("failure", "read_again", "write_again"),
    [
        (ConnectionFailed("refused", sent=False), True, True),
        (ConnectionFailed("reset", sent=True), True, False),
        (TlsError("unknown authority"), False, False),
        (TooManyRequests("later", status=429, retry_after=1.0), True, True),
        (TooManyRequests("later", status=429), True, False),
        (budget(None), False, False),
        (budget(10.0), False, False),
        (ServerError("starting", status=503), True, False),
        (ServerError("starting", status=503, retry_after=1.0), True, False),
        (ServerError("bug", status=500), True, False),
        (NotFound("no", status=404), False, False),
        (Conflict("no", status=409), False, False),
    ],
)
def test_who_may_try_again(
    failure: ConnectionFailed | ApiError, *, read_again: bool, write_again: bool
) -> None:
    """A read is repeated when the failure may pass; a write only when it provably had no effect."""
    assert (delay(failure, write=False) is not None) is read_again
    assert (delay(failure, write=True) is not None) is write_again


def test_internal_errors_are_tried_three_times() -> None:
    """A 500 that stays is reported early; a 503 is waited out."""
    assert delay(ServerError("bug", status=500), write=False, tries=2) is not None
    assert delay(ServerError("bug", status=500), write=False, tries=3) is None
    assert delay(ServerError("busy", status=503), write=False, tries=30) is not None


def test_backoff_grows_with_jitter_and_has_a_cap() -> None:
    """Waiting doubles from 50 ms to at most 5 s, and no two clients need to wait equally long."""
    failure = ConnectionFailed("refused", sent=False)
    assert [delay(failure, write=False, tries=tries) for tries in (1, 2, 3)] == [0.05, 0.1, 0.2]
    assert delay(failure, write=False, tries=1, jitter=0.5) == pytest.approx(0.075)
    assert delay(failure, write=False, tries=100_000, jitter=1.0) == 5.0


def test_retry_after_is_a_lower_bound() -> None:
    """The server's wish is never undercut."""
    wait = delay(TooManyRequests("later", status=429, retry_after=7.0), write=True)
    assert wait is not None
    assert wait >= 7.0


def test_every_error_is_a_kube_error() -> None:
    """One except clause catches whatever the client raises."""
    assert issubclass(TlsError, ConnectionFailed)
    assert issubclass(ConnectionFailed, KubeError)
    assert issubclass(ApiError, KubeError)
    assert not TlsError("x").sent
