from __future__ import annotations

import re

from slurm_operator.slurm import errors
from slurm_operator.slurm.errors import CircuitOpen, Refused, RestUnreachable, SlurmError, Unavailable
from slurm_operator.slurm.model.records import Fault


def tree(kind: type[SlurmError] = SlurmError) -> list[type[SlurmError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in tree(child))]


def test_the_drawing_shows_the_tree() -> None:
    """The tree at the top of the module is the one that exists."""
    drawn = re.findall(r"^ {4}(?:[│├└─ ]*)(\w+)", errors.__doc__ or "", re.MULTILINE)
    assert drawn == [kind.__name__ for kind in tree()]


def test_every_error_has_a_kind_of_its_own() -> None:
    """Metrics and conditions can tell all errors apart by one word."""
    kinds = [kind.kind for kind in tree()]
    assert len({*kinds}) == len(kinds)
    assert all(re.fullmatch("[A-Z][A-Za-z]+", kind) for kind in kinds)


def test_silence_is_unavailable() -> None:
    """Whoever catches Unavailable has caught every way in which nobody can say anything."""
    assert {kind.__name__ for kind in tree(Unavailable)} == {
        *("Unavailable", "RestUnreachable", "ControllerDown", "Overloaded", "CircuitOpen"),
    }


def test_an_error_tells_whether_the_request_may_have_been_carried_out() -> None:
    """Unless an error is sure that nothing was sent, the server may have done what was asked."""
    assert RestUnreachable("x").sent
    assert not RestUnreachable("x", sent=False).sent
    assert not CircuitOpen("x", retry_after=1.0).sent
    assert Refused("x").sent


def test_a_refusal_carries_the_numbers() -> None:
    """A refusal can be told apart by Slurm's own numbers."""
    faults = (Fault(error_number=2016), Fault(error_number=2018), Fault(error_number=2016))
    assert Refused("x", faults).numbers == {2016, 2018}
