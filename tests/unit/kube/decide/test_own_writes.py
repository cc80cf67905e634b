"""What the controller remembers of its own writes between two reconciles of a NodeSet."""

from __future__ import annotations

import pytest

from slurm_operator.kube.decide.own_writes import LastWrites, OwnWrites
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import ObjectMeta


def pod(uid: str, version: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=uid, uid=uid, resource_version=version))


@pytest.fixture
def answers() -> OwnWrites[Pod]:
    return OwnWrites()


def test_our_own_change_counts_until_the_cache_has_it(answers: OwnWrites[Pod]) -> None:
    """A pod is as the answer to our last change said, unless the cache has it as new or newer."""
    ours = pod("a", "11")
    answers.changed(ours)
    answers.changed(pod("gone", "12"))
    old, other = pod("a", "9"), pod("b", "10")
    assert answers.newest([old, other], 0.0) == [ours, other]
    assert len(answers) == 1, "nobody waits for a pod that is gone"
    same = pod("a", "11")
    assert answers.newest([same], 0.0)[0] is same
    assert len(answers) == 0
    assert answers.newest([old], 0.0) == [old]


def test_what_we_made_is_there_before_the_cache_shows_it(answers: OwnWrites[Pod]) -> None:
    """An object of ours that the cache does not show yet counts, for a few seconds, with our changes."""
    made, changed = pod("a", "5"), pod("a", "6")
    answers.made(made, 100.0)
    assert answers.newest([], 101.0) == [made]
    answers.changed(changed)
    assert answers.newest([], 102.0) == [changed]
    assert answers.newest([], 200.0) == [], "somebody else has deleted it meanwhile"
    assert len(answers) == 0


def test_what_we_deleted_is_gone_before_the_cache_shows_it(answers: OwnWrites[Pod]) -> None:
    """An object that we have deleted does not count, until the cache has forgotten it."""
    answers.deleted("a")
    assert answers.newest([pod("a", "5"), pod("b", "6")], 0.0) == [pod("b", "6")]
    assert answers.newest([pod("b", "6")], 0.0) == [pod("b", "6")]
    assert len(answers) == 0


def test_versions_that_are_no_numbers_say_nothing(answers: OwnWrites[Pod]) -> None:
    """Where versions cannot be compared, the cache is right."""
    answers.changed(pod("a", "x2"))
    cached = pod("a", "x1")
    assert answers.newest([cached], 0.0)[0] is cached


def test_the_last_answer_stays_until_the_cache_has_it() -> None:
    """A reconcile that works with the answer asks about the answer itself: that is no news of the cache."""
    writes: LastWrites[Pod] = LastWrites()
    old, ours, newer = pod("a", "9"), pod("a", "11"), pod("a", "12")
    writes.note(ours)
    assert writes.newest(old) is ours
    assert writes.newest(ours) is ours
    assert writes.newest(old) is ours
    assert writes.newest(newer) is newer
    assert writes.newest(old) is old, "the cache has been ahead, so the answer is forgotten"


def test_the_answer_for_an_object_of_the_same_name_does_not_count() -> None:
    """One that was created again has another UID."""
    writes: LastWrites[Pod] = LastWrites()
    writes.note(pod("a", "11"))
    again = Pod(metadata=ObjectMeta(name="a", uid="b", resource_version="12"))
    assert writes.newest(again) is again
