"""The queue against the simplest model of it: lists and dicts, searched linearly."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slurm_operator.kube.runtime.work_queue import QueueCore
from tests.support.property_settings import examples

# Few keys, so that a step often meets a key with a history.
KEYS = st.sampled_from("abc")
# Whole seconds: adds and due times meet at the same instant, which is where an order can go wrong.
DELAYS = st.integers(-1, 8).map(float)


class QueueMachine(RuleBasedStateMachine):
    """Drive the core and a naive model with the same steps and compare everything one can see."""

    @initialize()
    def start(self) -> None:
        self.queue: QueueCore[str] = QueueCore()
        self.now = 0.0
        self.ready: list[str] = []
        self.again: set[str] = set()
        self.work: set[str] = set()
        self.delayed: dict[str, tuple[float, int]] = {}
        self.requests = 0
        self.shut = False
        self.owed: set[str] = set()
        """Keys somebody asked for and that no later pop has served yet."""

    def model_add(self, key: str) -> None:
        if self.shut:
            return
        if key in self.work:
            self.again.add(key)
        elif key not in self.ready:
            self.ready.append(key)

    def model_promote(self) -> None:
        for due, _, key in sorted((due, n, key) for key, (due, n) in self.delayed.items()):
            if due <= self.now:
                del self.delayed[key]
                self.model_add(key)

    @rule(key=KEYS, urgent=st.booleans())
    def add(self, key: str, urgent: bool) -> None:  # noqa: FBT001 - Hypothesis passes it by name
        self.model_promote()
        self.model_add(key)
        self.queue.add(key, self.now, urgent=urgent)
        if not self.shut:
            self.owed.add(key)

    @rule(key=KEYS, delay=DELAYS)
    def add_after(self, key: str, delay: float) -> None:
        self.model_promote()
        self.queue.add_after(key, delay, self.now)
        if self.shut:
            return
        self.owed.add(key)
        if delay <= 0:
            self.model_add(key)
            return
        self.requests += 1
        due = self.now + delay
        if key not in self.delayed or due < self.delayed[key][0]:
            self.delayed[key] = (due, self.requests)

    @rule(seconds=st.integers(0, 5).map(float))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def pop(self) -> None:
        self.model_promote()
        expected = self.ready.pop(0) if self.ready else None
        key = self.queue.pop(self.now)
        assert key == expected
        if key is None:
            return
        assert key not in self.work
        self.work.add(key)
        if key not in self.delayed:
            self.owed.discard(key)

    @precondition(lambda self: self.work)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.work)))
        self.model_promote()
        self.work.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.ready.append(key)
        self.queue.done(key, self.now)

    @precondition(lambda self: not self.shut)
    @rule(drain=st.booleans())
    def shutdown(self, drain: bool) -> None:  # noqa: FBT001 - Hypothesis passes it by name
        self.model_promote()
        self.queue.next_wake(self.now)
        self.shut = True
        self.delayed.clear()
        if not drain:
            self.ready.clear()
            self.again.clear()
        self.owed.clear()
        self.queue.shutdown(drain=drain)

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.model_promote()
        due = min((due for due, _ in self.delayed.values()), default=None)
        assert self.queue.next_wake(self.now) == (self.now if self.ready else due)
        assert len(self.queue) == len(self.ready)
        assert set(self.queue.work) == self.work
        assert self.queue.delayed == len(self.delayed)
        assert self.queue.idle == (not self.ready and not self.work)
        assert self.queue.finished == (self.shut and not self.ready and not self.again)

    @invariant()
    def nothing_is_lost(self) -> None:
        """Every key that was asked for waits, is delayed, or will run again after its work."""
        assert self.owed <= {*self.ready, *self.again, *self.delayed}

    def teardown(self) -> None:
        """Whatever happened, working off the queue serves every key that is still owed."""
        if not hasattr(self, "queue"):
            return
        for key in sorted(self.work):
            self.queue.done(key, self.now)
        served = set()
        while (wake := self.queue.next_wake(self.now)) is not None:
            self.now = max(self.now, wake)
            taken = self.queue.pop(self.now)
            assert taken is not None
            served.add(taken)
            self.queue.done(taken, self.now)
        assert self.owed <= served


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=examples(200), stateful_step_count=40)


def test_plain_add_leaves_the_delayed_add_pending() -> None:
    """Who asked for a run in a minute gets it, also when another run happened in between."""
    queue: QueueCore[str] = QueueCore()
    queue.add_after("a", 60.0, 0.0)
    queue.add("a", 10.0)
    assert queue.pop(10.0) == "a"
    queue.done("a", 11.0)
    assert queue.pop(59.9) is None
    assert queue.next_wake(59.9) == 60.0
    assert queue.pop(60.0) == "a"


def test_late_promotion_keeps_the_order_of_readiness() -> None:
    """A delayed add that came due first runs first, although nobody looked at the queue then."""
    queue: QueueCore[str] = QueueCore()
    queue.add_after("late", 5.0, 0.0)
    queue.add_after("early", 3.0, 0.0)
    queue.add("now", 9.0)
    assert [queue.pop(9.0) for _ in range(4)] == ["early", "late", "now", None]
    assert queue.work["early"].ready == 3.0


def test_replaced_delays_do_not_accumulate() -> None:
    """A key that is delayed again and again, each time to an earlier moment, costs one entry."""
    queue: QueueCore[str] = QueueCore()
    for step in range(10_000):
        queue.add_after("a", 1e6 - step, 0.0)
    assert queue.delayed == 1
    assert len(queue._heap) < 100
    assert queue.next_wake(0.0) == 1e6 - 9_999


def test_a_replaced_delay_does_not_fire() -> None:
    """The time of a delayed add that an earlier one replaced means nothing for a later one."""
    queue: QueueCore[str] = QueueCore()
    queue.add_after("a", 10.0, 0.0)
    queue.add_after("a", 5.0, 0.0)
    queue.add_after("b", 7.0, 0.0)
    assert queue.pop(5.0) == "a"
    queue.done("a", 5.0)
    queue.add_after("a", 20.0, 5.0)
    assert queue.pop(10.0) == "b"
    assert queue.pop(10.0) is None
    assert queue.next_wake(10.0) == 25.0


def test_done_without_pop_is_refused() -> None:
    """A worker that gives back a key it does not have is a defect and is told so."""
    with pytest.raises(ValueError, match="'a' is not in work"):
        QueueCore[str]().done("a", 0.0)


@pytest.mark.parametrize("delay", [float("inf"), float("nan")])
def test_endless_delay_is_refused(delay: float) -> None:
    """A delay that never ends would lose the requeue, so it is an error."""
    with pytest.raises(ValueError, match="delay of 'a' must be a finite number"):
        QueueCore[str]().add_after("a", delay, 0.0)
