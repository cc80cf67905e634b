"""Which failed tests CI runs once more, and what it says about them."""

from __future__ import annotations

import pytest

from scripts.again import MOST, Ended, Failure, failures, objection, unclear, verdict
from tests.support.job_killed import JobKilled

SLOW = Failure("tests/integration/test_a.py::test_slow[x-y z]", "not within 60 s: it leads")
OTHER = Failure("tests/e2e/test_b.py::test_other", "assert 3 == 2")


def report(*cases: str) -> str:
    return f'<testsuites><testsuite name="pytest">{"".join(cases)}</testsuite></testsuites>'


def case(name: str, inside: str = "", file: str = "tests/integration/test_a.py") -> str:
    return f'<testcase classname="tests.a" name="{name}" file="{file}" line="1">{inside}</testcase>'


def test_failures_and_errors_are_found_and_nothing_else() -> None:
    """A test failed if it, its set-up or its teardown did; with all they said, and each test once."""
    found = failures(
        report(
            case("test_good"),
            case("test_slow[x-y z]", '<failure message="first">E  first\nmore</failure>'),
            case("test_slow[x-y z]", '<error message="and then">E  in the teardown</error>'),
            case("test_broken", '<error message="set-up">E  set-up</error>'),
            case("test_noted", '<skipped message="why"/>'),
        )
    )
    assert [one.test.partition("::")[2] for one in found] == ["test_slow[x-y z]", "test_broken"]
    for said in ("first", "more", "and then", "in the teardown"):
        assert said in found[0].why


def test_few_failures_of_real_parts_get_a_second_chance() -> None:
    """What talks to real servers may have been too impatient once."""
    assert objection([SLOW, OTHER]) == ""
    many = [Failure(f"tests/e2e/test_b.py::test_{number}", "late") for number in range(MOST)]
    assert objection(many) == ""
    # A traceback shows the lines before the one that failed.
    quoted = Failure(OTHER.test, '        raise JobKilled("; ".join(lost))\n>   assert runs\nE   assert []')
    assert objection([quoted]) == ""


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ([], "no test failed"),
        ([Failure(f"tests/e2e/test_b.py::test_{number}", "") for number in range(MOST + 1)], "more than"),
        ([SLOW, Failure("tests/unit/test_c.py::test_pure", "")], "pure code"),
        ([SLOW, Failure("tests.integration.test_d", "ImportError")], "not even begun"),
        ([Failure(OTHER.test, str(JobKilled("job 7 on n0 is gone")))], "must not happen even once"),
        ([Failure(OTHER.test, f"not within 60 s\nE  {JobKilled('job 7')}")], "must not happen even once"),
    ],
)
def test_others_get_none(failed: list[Failure], why: str) -> None:
    """Nothing that a busy machine cannot explain is run again, and no disturbed job is ever explained."""
    assert why in objection(failed)


def test_the_verdict_names_every_test_and_both_results() -> None:
    """A test that passes alone is called flaky, one that does not has failed twice; none goes unmentioned."""
    lines = verdict([SLOW, OTHER], [OTHER.test])
    assert lines[0] == f"FLAKY: {SLOW.test} failed once, passed alone; fix it"
    assert lines[1] == f"FAILED TWICE: {OTHER.test} failed, and failed again alone"
    assert all(line.startswith("FAILED TWICE") for line in verdict([SLOW, OTHER], None))


def test_a_part_that_ran_no_tests_is_no_success() -> None:
    """What ended in another way than by the tests that failed in it is not known to have run at all."""
    assert unclear(Ended("rest", 0, ())) == ""
    assert unclear(Ended("rest", 1, (SLOW,))) == ""
    for code, failed in ((4, ()), (1, ()), (0, (SLOW,)), (2, (SLOW,)), (-15, ())):
        assert f"code {code}" in unclear(Ended("rest", code, failed))
