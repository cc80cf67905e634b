"""Which group is next; the properties hold for every history of wishes and turns."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_operator.kube.decide.turns import Turns
from tests.support.property_settings import examples

BUSY = [f"busy-{number}" for number in range(98)]
ADD, URGENT, DROP, POP = "add", "add before", "drop", "pop"
STEPS = st.lists(
    st.tuples(st.sampled_from((ADD, ADD, URGENT, POP, POP, POP, DROP)), st.sampled_from("abcdefgh")),
    max_size=200,
)


def rolling(turns: Turns[str]) -> list[str]:
    """Let all busy groups want turns always, and have some each; return the order of their turns."""
    for group in BUSY:
        turns.add(group)
    for _ in range(3 * len(BUSY)):
        serve(turns)
    order = [serve(turns) for _ in BUSY]
    assert sorted(order) == sorted(BUSY)
    return order


def serve(turns: Turns[str]) -> str:
    """Serve the group whose turn it is; a busy one wants another turn at once."""
    group = turns.pop()
    assert group is not None
    if group in BUSY:
        turns.add(group)
    return group


def test_a_quiet_group_goes_before_those_that_had_a_turn_lately() -> None:
    """A group that wanted nothing for a round has the next turn, however many always want one."""
    turns: Turns[str] = Turns()
    rolling(turns)
    turns.add("quiet")
    assert serve(turns) == "quiet"
    for _ in range(2 * len(BUSY)):
        serve(turns)
    turns.add("quiet")
    assert serve(turns) == "quiet"


def test_a_group_that_wants_more_has_one_turn_a_round() -> None:
    """A group that comes back at once waits behind all that have waited longer."""
    turns: Turns[str] = Turns()
    order = rolling(turns)
    turns.add("quick")
    assert serve(turns) == "quick"
    turns.add("quick")
    assert [serve(turns) for _ in BUSY] == order
    assert serve(turns) == "quick"


def test_a_place_is_kept_while_a_group_wants_nothing() -> None:
    """A group that comes back within the round has its turn as if it had waited all the time."""
    turns: Turns[str] = Turns()
    order = rolling(turns)
    turns.add("quick")
    serve(turns)
    for _ in range(len(BUSY) - 1):
        serve(turns)
    turns.add("quick")
    assert [serve(turns), serve(turns)] == [order[-1], "quick"]


def test_a_group_in_the_round_goes_before_it_once() -> None:
    """What is urgent does not wait for a round; a group for which everything is has two turns a round."""
    turns: Turns[str] = Turns()
    order = rolling(turns)
    for _ in range(3):
        turns.add("mine", before=True)
        turns.add(order[7], before=True)
        assert {serve(turns), serve(turns)} == {"mine", order[7]}
        for _ in range(2):
            turns.add("mine", before=True)
            served = [serve(turns) for _ in range(len(BUSY) + 1)]
            assert served.count("mine") == 1
            assert sorted({*served} - {"mine"}) == sorted(BUSY)


def test_groups_that_come_for_the_first_time_leave_turns_to_others() -> None:
    """However many new groups come, of four turns one is for those that had some before."""
    turns: Turns[str] = Turns()
    rolling(turns)
    served: Counter[str] = Counter()
    for number in range(4 * len(BUSY)):
        turns.add(f"new-{number}")
        turns.add(f"other-{number}")
        served[serve(turns)] += 1
    assert [served[group] for group in BUSY] == [1] * len(BUSY)
    # They are in line, and nothing else is kept of those that were served.
    assert turns.remembered <= len(turns) + 4 * len(BUSY)


def test_what_wants_nothing_is_forgotten() -> None:
    """A stream of groups that want one turn each leaves nothing behind, whether or not others always wait."""
    turns: Turns[str] = Turns()
    most = 0
    for number in range(1000):
        turns.add(f"{number}")
        turns.add(f"{number} too")
        turns.pop()
        most = max(most, turns.remembered - len(turns))
        if number % 2:
            turns.pop()
    assert most <= 4
    while turns.pop() is not None:
        pass
    assert turns.remembered == 0


@settings(max_examples=examples(300))
@given(STEPS)
def test_every_wish_has_one_turn_within_the_bound(steps: list[tuple[str, str]]) -> None:
    """Each wish leads to one turn, within four turns for each group that waits."""
    turns: Turns[str] = Turns()
    waiting: dict[str, int] = {}
    crowd: dict[str, int] = {}

    def pop() -> None:
        popped = turns.pop()
        if popped is None:
            assert not waiting
            assert turns.remembered == 0
            return
        assert waiting.pop(popped) <= 4 * crowd.pop(popped)
        for each in waiting:
            waiting[each] += 1

    for action, group in steps:
        if action in (ADD, URGENT):
            turns.add(group, before=action == URGENT)
            waiting.setdefault(group, 1)
            for each in waiting:
                crowd[each] = max(crowd.get(each, 0), len(waiting))
        elif action == DROP:
            turns.drop(group)
            waiting.pop(group, None)
            crowd.pop(group, None)
        else:
            pop()
        assert len(turns) == len(waiting)
        assert turns.remembered <= 8
    while waiting:
        pop()
    assert turns.pop() is None


@settings(max_examples=examples(300))
@given(STEPS)
def test_no_group_overtakes_another_again_and_again(steps: list[tuple[str, str]]) -> None:
    """While a group that had a turn lately waits for another, each of the others has two at most."""
    turns: Turns[str] = Turns()
    lately: set[str] = set()
    overtaken: dict[str, Counter[str]] = {}
    for action, group in steps:
        if action in (ADD, URGENT):
            turns.add(group, before=action == URGENT)
            if group in lately:
                overtaken.setdefault(group, Counter())
        elif action == DROP:
            turns.drop(group)
            overtaken.pop(group, None)
        elif (popped := turns.pop()) is None:
            lately.clear()
        else:
            overtaken.pop(popped, None)
            lately.add(popped)
            for others in overtaken.values():
                others[popped] += 1
                assert others[popped] <= 2
