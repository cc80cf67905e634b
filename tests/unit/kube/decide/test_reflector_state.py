from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.decide.reflector_state import ErrorLogFilter, InformerTiming, Ramp, ReflectorState
from slurm_operator.kube.errors import (
    ApiError,
    BadRequest,
    ConnectionFailed,
    DeadlineExceeded,
    DecodeError,
    Forbidden,
    Gone,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)

TIMING = InformerTiming(retry=Ramp(0.2, 30.0), denied=Ramp(2.0, 60.0), missing=Ramp(1.0, 10.0))


def always_most() -> float:
    return 1.0


def watching(version: str = "7") -> ReflectorState:
    state = ReflectorState(TIMING, always_most)
    state.listed(version)
    return state


def api(kind: type[ApiError], status: int, **more: float) -> ApiError:
    return kind("no", status=status, **more)  # type: ignore[arg-type]


TOO_LARGE = ServerError(
    "Too large resource version",
    status=504,
    reason="Timeout",
    details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (api(Gone, 410), "gone"),
        (api(NotFound, 404), "missing"),
        (DecodeError("not an event"), "decode"),
        (TOO_LARGE, "future"),
        (ZeroDivisionError("a bug"), "error"),
    ],
)
def test_an_answer_that_makes_the_version_worthless_leads_to_a_list(error: Exception, reason: str) -> None:
    """The version is thrown away, with the cause noted, exactly when resuming from it cannot be right."""
    state = watching()
    state.watch_over(error, events=3, lasted=1.0)
    assert (state.resource_version, state.reason) == ("", reason)


@pytest.mark.parametrize(
    "error",
    [
        None,
        ConnectionFailed("cut"),
        DeadlineExceeded("slow"),
        api(ServerError, 503),
        api(TooManyRequests, 429),
        api(Forbidden, 403),
        api(Unauthorized, 401),
    ],
)
def test_any_other_end_of_a_watch_resumes(error: Exception | None) -> None:
    """A watch that was cut, refused or ended goes on from the last version it saw."""
    state = watching()
    state.watch_over(error, events=0, lasted=0.1)
    assert state.resource_version == "7"


def test_repeated_server_errors_lead_to_a_list() -> None:
    """Five 5xx answers in a row to a watch put its version under suspicion; four do not."""
    state = watching()
    for _ in range(4):
        state.watch_over(api(ServerError, 500), events=0, lasted=0.1)
    assert state.resource_version == "7"
    state.watch_over(api(ServerError, 500), events=0, lasted=0.1)
    assert (state.resource_version, state.reason) == ("", "error")


def test_an_unreachable_server_never_costs_the_version() -> None:
    """However long the server is out of reach, the watch resumes: lists after an outage are a stampede."""
    state = watching()
    for _ in range(100):
        state.watch_over(ConnectionFailed("refused"), events=0, lasted=0.1)
    assert state.resource_version == "7"


def test_waits_double_up_to_the_cap_and_start_over_after_success() -> None:
    """The bound of the wait doubles with each failure up to the cap, and falls back once a watch works."""
    state = watching()
    cut = ConnectionFailed("cut")
    waits = [state.watch_over(cut, events=0, lasted=0.1) for _ in range(10)]
    assert waits[:4] == [0.2, 0.4, 0.8, 1.6]
    assert waits[-1] == 30.0
    assert state.watch_over(cut, events=1, lasted=0.1) == 0.2
    assert state.watch_over(cut, events=0, lasted=0.1) == 0.4
    assert state.watch_over(cut, events=0, lasted=60.0) == 0.2


@pytest.mark.parametrize("error", [api(Forbidden, 403), api(Unauthorized, 401), api(BadRequest, 400)])
def test_what_only_a_person_can_change_is_retried_patiently(error: Exception) -> None:
    """Forbidden and bad selectors wait on the longer ramp, for lists and watches alike."""
    state = ReflectorState(TIMING, always_most)
    assert [state.list_failed(error) for _ in range(7)] == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert watching().watch_over(error, events=0, lasted=0.1) == 2.0


def test_a_kind_that_is_not_served_yet_is_asked_for_often() -> None:
    """A missing CRD is looked for every few seconds, for somebody who just installed it waits."""
    state = ReflectorState(TIMING, always_most)
    assert [state.list_failed(api(NotFound, 404)) for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_the_first_429_to_a_watch_is_routine() -> None:
    """A server that is busy for a moment is no news; one that stays busy, or refuses a list, is."""
    busy = api(TooManyRequests, 429)
    state = watching()
    state.watch_over(busy, events=0, lasted=0.1)
    assert state.is_routine(busy, watching=True)
    state.watch_over(busy, events=0, lasted=0.1)
    assert not state.is_routine(busy, watching=True)
    state = ReflectorState(TIMING, always_most)
    state.list_failed(busy)
    assert not state.is_routine(busy, watching=False)


def test_retry_after_is_obeyed() -> None:
    """A server that says when to come back is not asked before."""
    state = watching()
    assert state.watch_over(api(TooManyRequests, 429, retry_after=5.0), events=0, lasted=0.1) == 5.0
    assert state.list_failed(api(ServerError, 503, retry_after=0.1)) == 0.4


def test_the_first_gone_is_answered_at_once() -> None:
    """A 410 leads to a list without any wait, even after an outage; a second one in a row waits."""
    state = watching()
    for _ in range(8):
        state.watch_over(ConnectionFailed("refused"), events=0, lasted=0.1)
    assert state.watch_over(api(Gone, 410), events=0, lasted=0.1) == 0.0
    state.listed("9")
    assert state.watch_over(api(Gone, 410), events=0, lasted=0.1) == 0.2
    state.listed("10")
    assert state.watch_over(api(Gone, 410), events=0, lasted=0.1) == 0.4


def test_a_list_without_a_version_is_refused() -> None:
    """A list that does not say where to watch from is an error, not a reason to list in a tight loop."""
    state = ReflectorState(TIMING, always_most)
    with pytest.raises(DecodeError, match=r"metadata\.resourceVersion"):
        state.listed("")


def test_a_list_that_loses_its_pages_is_asked_for_in_one_piece() -> None:
    """A continue token that expired restarts the list; after two such losses it comes without pages."""
    state = ReflectorState(TIMING, always_most)
    paged = []
    for _ in range(3):
        paged.append(state.paged)
        state.list_failed(api(Gone, 410))
    state.listed("3")
    assert [*paged, state.paged] == [True, True, False, True]


def test_a_watch_that_ends_at_once_without_news_waits() -> None:
    """A server that closes every watch at once is not asked in a tight loop; a normal end resumes."""
    state = watching()
    assert state.watch_over(None, events=0, lasted=300.0) == 0.0
    assert state.watch_over(None, events=2, lasted=0.1) == 0.0
    assert [state.watch_over(None, events=0, lasted=0.1) for _ in range(3)] == [0.2, 0.4, 0.8]


failing = st.sampled_from(
    [
        None,
        ConnectionFailed("cut"),
        DecodeError("bad"),
        RuntimeError("bug"),
        TOO_LARGE,
        *(
            api(kind, status)
            for kind, status in ((Gone, 410), (NotFound, 404), (ServerError, 500), (Forbidden, 403))
        ),
    ]
)


@given(outcomes=st.lists(failing, min_size=1, max_size=60), lists_work=st.booleans())
def test_nothing_makes_it_spin(outcomes: list[Exception | None], *, lists_work: bool) -> None:
    """Whatever fails in whatever order, at most one failure goes without a wait, and none waits too long."""
    state = ReflectorState(TIMING, always_most)
    waits = []
    for error in outcomes:
        if not state.resource_version and lists_work:
            state.listed("1")
        if state.resource_version:
            waits.append(state.watch_over(error, events=0, lasted=0.1))
        elif error is not None:
            waits.append(state.list_failed(error))
    assert sum(wait == 0.0 for wait in waits) <= 1
    assert all(0.0 <= wait <= 60.0 for wait in waits)


@given(fraction=st.floats(0.0, 1.0), failures=st.integers(1, 10_000))
def test_the_jitter_covers_the_whole_range(fraction: float, failures: int) -> None:
    """A wait is the bound times the drawn fraction, however many failures came before."""
    ramp = Ramp(0.2, 30.0)
    assert 0.2 <= ramp.bound(failures) <= 30.0
    state = ReflectorState(InformerTiming(retry=ramp), lambda: fraction)
    assert state.list_failed(ConnectionFailed("cut")) == fraction * 0.2


def test_a_first_cut_and_an_aged_version_are_routine() -> None:
    """One broken connection and a 410 are everyday life; a second failure in a row or a refusal is news."""
    state = watching()

    def routine(error: Exception, lasted: float) -> bool:
        state.watch_over(error, events=0, lasted=lasted)
        return state.is_routine(error, watching=True)

    cut, refused, silent = (
        ConnectionFailed("cut"),
        ConnectionFailed("no", sent=False),
        DeadlineExceeded("no"),
    )
    assert [routine(cut, 0.1), routine(cut, 0.1), routine(cut, 100.0)] == [True, False, True]
    assert [routine(cut, 100.0), routine(refused, 10.0), routine(cut, 100.0)] == [True, False, True]
    assert not routine(silent, 30.0)
    assert [routine(api(Gone, 410), 0.1), routine(api(Gone, 410), 0.1)] == [True, False]
    assert not routine(api(Forbidden, 403), 100.0)

    fresh = ReflectorState(TIMING, always_most)
    fresh.list_failed(cut)
    assert not fresh.is_routine(cut, watching=False)


def test_an_unchanging_error_is_reported_once_and_then_rarely() -> None:
    """A new error is due at once, the same one only after the reminder time, and its end is told once."""
    reporter = ErrorLogFilter(remind=300.0)
    assert reporter.due("forbidden", 0.0)
    assert not reporter.due("forbidden", 299.0)
    assert reporter.due("forbidden", 300.0)
    assert reporter.due("refused", 301.0)
    assert not reporter.due("refused", 302.0)
    assert not reporter.due("forbidden", 303.0)
    assert reporter.clear()
    assert not reporter.clear()
    assert reporter.due("refused", 303.0)


def test_silence_leads_to_a_list() -> None:
    """A version from which an open watch brings not even a bookmark for the idle time is thrown away."""
    state = watching()
    state.watch_over(ConnectionFailed("silent"), events=0, lasted=TIMING.idle)
    assert (state.resource_version, state.reason) == ("", "silent")


def test_silence_adds_up() -> None:
    """Watches that are cut before the idle time count together, and any news or list starts over."""
    state = watching()
    part = TIMING.idle * 0.4
    cut = ConnectionFailed("cut by a proxy")
    assert state.watch_over(None, events=0, lasted=part) == 0.0
    state.watch_over(cut, events=0, lasted=part)
    assert state.resource_version == "7"
    state.watch_over(None, events=1, lasted=part)
    state.watch_over(cut, events=0, lasted=part)
    state.watch_over(cut, events=0, lasted=part)
    assert state.resource_version == "7"
    state.listed("8")
    state.watch_over(cut, events=0, lasted=part)
    assert state.resource_version == "8"
    state.watch_over(cut, events=0, lasted=part)
    state.watch_over(cut, events=0, lasted=part)
    assert (state.resource_version, state.reason) == ("", "silent")


@pytest.mark.parametrize(
    "error", [ConnectionFailed("no", sent=False), DeadlineExceeded("no"), api(TooManyRequests, 429)]
)
def test_a_server_that_does_not_serve_is_not_silent(error: Exception) -> None:
    """Waiting long for a connection, an answer or a refusal says nothing about the version."""
    state = watching()
    for _ in range(10):
        state.watch_over(error, events=0, lasted=TIMING.idle)
    assert state.resource_version == "7"


def test_a_refusal_that_took_long_is_a_refusal() -> None:
    """An error answer counts as a failure however late it comes: waits grow and the version is suspected."""
    state = watching()
    slow = [state.watch_over(api(ServerError, 504), events=0, lasted=20.0) for _ in range(4)]
    assert slow == [0.2, 0.4, 0.8, 1.6]
    assert state.resource_version == "7"
    state.watch_over(api(ServerError, 504), events=0, lasted=20.0)
    assert (state.resource_version, state.reason) == ("", "error")


def test_a_version_that_ages_on_an_open_watch_is_listed_at_once() -> None:
    """A 410 after hours of an open watch is the first of its kind, whatever there was before."""
    state = watching()
    for _ in range(3):
        assert state.watch_over(api(Gone, 410), events=0, lasted=60.0) == 0.0
        state.listed("8")


def test_nobody_is_waited_for_longer_than_the_longest_wait() -> None:
    """A Retry-After of a day, as a maintenance page sends it, does not park the informer for a day."""
    assert watching().list_failed(api(ServerError, 503, retry_after=86400.0)) == 60.0
    assert watching().watch_over(api(TooManyRequests, 429, retry_after=86400.0), events=0, lasted=0.1) == 60.0
