"""The bookkeeping of references: who wants what, and what is therefore watched."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from slurm_operator.kube.cache.referenced_objects import Budget, Referenced, Referrer, Wants, enqueue_owners
from slurm_operator.kube.models.meta import Key
from tests.support.property_settings import examples

KEYS = [Key(namespace, name) for namespace in ("a", "b") for name in ("one", "two", "three")]
# Two controllers with owners of the same name.
OWNERS = [Referrer(controller, Key("a", name)) for controller in ("token", "cluster") for name in "xyz"]


class WantsMachine(RuleBasedStateMachine):
    """Any sequence of wishes leaves exactly the watches that the wishes now alive need."""

    def __init__(self) -> None:
        super().__init__()
        self.wants = Wants()
        self.model: dict[Referrer, frozenset[Key]] = {}
        self.watched: set[Key] = set()

    @rule(owner=st.sampled_from(OWNERS), wanted=st.lists(st.sampled_from(KEYS)))
    def want(self, owner: Referrer, wanted: list[Key]) -> None:
        started, stopped = self.wants.replace(owner, wanted)
        assert not started & self.watched, "what is watched is not started again"
        assert stopped <= self.watched, "only what is watched is stopped"
        assert not started & stopped
        self.watched = (self.watched | started) - stopped
        self.model[owner] = frozenset(wanted)

    @rule(owner=st.sampled_from(OWNERS))
    def want_the_same_again(self, owner: Referrer) -> None:
        assert self.wants.replace(owner, self.model.get(owner, frozenset())) == (frozenset(), frozenset())

    @rule(owner=st.sampled_from(OWNERS))
    def release(self, owner: Referrer) -> None:
        self.want(owner, [])

    @invariant()
    def watched_is_what_is_wanted(self) -> None:
        wanted = {key for keys in self.model.values() for key in keys}
        assert self.watched == wanted == self.wants.keys()

    @invariant()
    def owners_are_those_who_want(self) -> None:
        for key in KEYS:
            assert self.wants.owners(key) == {owner for owner, keys in self.model.items() if key in keys}


WantsMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestWants = WantsMachine.TestCase


@pytest.mark.parametrize("again", [1, 3])
def test_a_hundred_owners_are_one_watch(again: int) -> None:
    """However many owners want an object, and however often, it is started once and stopped once."""
    wants = Wants()
    shared = Key("a", "key")
    owners = [Referrer("token", Key("a", f"t{number}")) for number in range(100)]
    started = [wants.replace(owner, [shared])[0] for _ in range(again) for owner in owners]
    stopped = [wants.replace(owner, [])[1] for owner in owners]
    assert [found for found in started if found] == [{shared}]
    assert [found for found in stopped if found] == [{shared}]


def test_only_the_own_owners_are_enqueued() -> None:
    """A controller gets the keys of its own owners, not those of another with the same name."""
    here, there = Key("a", "here"), Key("a", "there")
    event = Referenced(Key("a", "key"), frozenset({Referrer("token", here), Referrer("cluster", there)}))
    assert list(enqueue_owners("token")(event)) == [here]
    assert list(enqueue_owners("cluster")(event)) == [there]
    assert list(enqueue_owners("other")(event)) == []


# ------------------------------------------------------------------------------------------ how many watches
def test_watches_are_bounded_by_namespace_and_in_all() -> None:
    """An object beyond either bound gets no watch, and the bound of one namespace leaves others theirs."""
    budget = Budget(per_namespace=2, most=3)
    assert [budget.take(Key("a", name)) for name in "xyz"] == [True, True, False]
    assert [budget.take(Key("b", name)) for name in "xy"] == [True, False]


def test_a_watch_that_is_given_up_goes_to_one_that_waits() -> None:
    """The object that waited longest in a namespace below its bound gets it."""
    budget = Budget(per_namespace=2, most=3)
    for namespace, names in (("a", "xyz"), ("b", "xy")):
        for name in names:
            budget.take(Key(namespace, name))
    assert budget.give_up(Key("b", "x")) == Key("b", "y")
    assert budget.give_up(Key("a", "z")) is None
    assert budget.give_up(Key("a", "x")) is None
    assert budget.take(Key("c", "x"))
    assert not budget.take(Key("c", "y"))


class BudgetMachine(RuleBasedStateMachine):
    """Whatever is taken and given up, the bounds hold, and no watch stays unused while somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(per_namespace=2, most=3)
        self.watched: set[Key] = set()
        self.waiting: set[Key] = set()

    @rule(key=st.sampled_from(KEYS))
    def take(self, key: Key) -> None:
        if key not in self.watched | self.waiting:
            (self.watched if self.budget.take(key) else self.waiting).add(key)

    @rule(key=st.sampled_from(KEYS))
    def give_up(self, key: Key) -> None:
        if key not in self.watched | self.waiting:
            return
        heir = self.budget.give_up(key)
        self.watched.discard(key)
        self.waiting.discard(key)
        if heir is not None:
            assert heir in self.waiting
            self.waiting.discard(heir)
            self.watched.add(heir)

    @invariant()
    def bounds_hold(self) -> None:
        per_namespace = {each: sum(key.namespace == each for key in self.watched) for each in ("a", "b")}
        assert len(self.watched) <= 3
        assert all(count <= 2 for count in per_namespace.values())
        if len(self.watched) < 3:
            assert all(per_namespace[key.namespace] == 2 for key in self.waiting)


TestBudget = BudgetMachine.TestCase
TestBudget.settings = settings(max_examples=examples(50), stateful_step_count=40)
