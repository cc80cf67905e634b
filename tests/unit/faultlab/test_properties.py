"""What is said of one property after its change and its change back."""

from __future__ import annotations

import pytest

from faultlab.properties import Result, effect, not_properties


@pytest.mark.parametrize(
    ("changed", "reported", "reason", "verdict", "failed"),
    [
        ({"Service/a.spec.port": "1 != 2"}, {}, "", "changed", False),
        ({}, {"conditions.Ready": "True != False"}, "", "reported", False),
        ({}, {}, "used at an update", "no effect, as listed", False),
        ({}, {}, "", "no effect", True),
        ({"Service/a.spec.port": "1 != 2"}, {}, "used at an update", "effect, not as listed", True),
        ({}, {"conditions.Ready": "True != False"}, "used at an update", "effect, not as listed", True),
    ],
)
def test_the_list_must_say_what_is_seen(
    changed: dict[str, str], reported: dict[str, str], reason: str, verdict: str, *, failed: bool
) -> None:
    found = effect("NodeSet.spec.a", 1, changed, reported, reason)
    assert (found.verdict, found.failed) == (verdict, failed)


def test_a_listed_name_that_is_no_property_is_found() -> None:
    met = [Result("NodeSet.spec.a", "changed")]
    listed = ["NodeSet.spec.a", "NodeSet.spec.b", "Token.spec.b"]
    assert not_properties(listed, "", met) == ["NodeSet.spec.b", "Token.spec.b"]
    assert not_properties(listed, "NodeSet", met) == ["NodeSet.spec.b"]
