from __future__ import annotations

from collections import Counter

import pytest

from faultlab.torture.perform import ACTIONS
from faultlab.torture.schedule import DECK, FIRST, LAST, schedule

CARDS = {card.do: card for card in DECK}
SEEDS = pytest.mark.parametrize("seed", [1, 2, 3, 4711])


def test_a_seed_repeats_a_run() -> None:
    """The same seed gives the same actions, another seed others."""
    assert schedule(7, 20) == schedule(7, 20)
    assert schedule(7, 20) != schedule(8, 20)


@SEEDS
def test_actions_of_a_group_do_not_overlap(seed: int) -> None:
    """Two actions on slurmctld, or on kubelets, never last at the same time, nor follow too soon."""
    free: dict[str, float] = {}
    for action in schedule(seed, 45):
        card = CARDS[action.do]
        if card.group:
            assert action.at >= free.get(card.group, 0.0)
            free[card.group] = action.end + card.rest


@SEEDS
def test_a_long_run_has_every_action(seed: int) -> None:
    """In 45 minutes each kind of action happens at least twice, and each within the run."""
    actions = schedule(seed, 45)
    count = Counter(action.do for action in actions)
    assert min(count[card.do] for card in DECK) >= 2
    assert min(action.at for action in actions) >= FIRST
    assert max(action.end for action in actions) <= 45 * 60 - LAST
    assert actions == sorted(actions, key=lambda one: one.at)


def test_lasting_actions_have_the_time_of_their_card() -> None:
    """How long something is frozen or cordoned is within the bounds of the deck."""
    for action in schedule(5, 60):
        shortest, longest = CARDS[action.do].seconds
        assert shortest <= action.seconds <= longest


def test_every_action_can_be_performed() -> None:
    """There is code for each card."""
    assert [card.do for card in DECK if card.do not in ACTIONS] == []
