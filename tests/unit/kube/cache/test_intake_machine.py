"""The way from the wire into the store, against a model of a server with a history.

The model server keeps every event, forgets old ones when compacted, and can hold objects that do not
decode. The streams of two namespaces read it at their own pace, are cut, list again in pages while the
server moves on, and objects are asked for by themselves with answers that arrive at any later time.
Whatever happens in between, once everything is delivered the store is the server's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from slurm_operator.kube.cache.intake import Doubt, Intake, Listing
from slurm_operator.kube.manifests.wire import BadObject
from slurm_operator.kube.models.meta import Key, Object, ObjectMeta, Resource
from tests.support.property_settings import examples

if TYPE_CHECKING:
    from slurm_operator.kube.models.store import Change


class Thing(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("test.example", "v1", "things", "Thing")

    group: str = ""


class Version(NamedTuple):
    obj: Thing
    bad: bool

    def wire(self) -> Thing | BadObject:
        """Return what the decoder makes of it."""
        meta = self.obj.metadata
        if not self.bad:
            return self.obj
        return BadObject(self.obj.key, "does not decode", meta.resource_version, meta)


class Event(NamedTuple):
    version: int
    type: str
    content: Version


NAMESPACES = ("a", "b")
# Mostly one object, so that its events, its list and its answers meet; the others are there to be left alone.
namespaces = st.sampled_from(("a", "a", "a", "b"))
keys = st.builds(Key, namespaces, st.sampled_from(("one", "one", "one", "two")))
# One rule with a weighted choice: separate rules would be switched off by Hypothesis in most runs, and the
# races between them need all of them. Compaction and lists are rare because they end the interesting states,
# while "fall behind" and "list meanwhile" make the most interesting ones: a doubtful object that has changed
# again on the server, and one that changes between the pages of a list.
ACTIONS = (
    *("fall behind",) * 3,
    *("list meanwhile",) * 2,
    *("write",) * 3,
    *("delete",) * 2,
    *("receive",) * 3,
    *("read",) * 3,
    *("answer",) * 3,
    *("compact", "relist", "begin list", "begin list"),
)


class IntakeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = 100
        self.live: dict[Key, Version] = {}
        self.history: dict[str, list[Event]] = {namespace: [] for namespace in NAMESPACES}
        self.compacted = 0
        self.asked: list[Doubt] = []
        self.answers: list[tuple[Doubt, Version | None]] = []
        self.position: dict[str, int | None] = dict.fromkeys(NAMESPACES)
        self.listings: dict[str, tuple[Listing[Thing], int]] = {}
        self.intake: Intake[Thing] = Intake(Thing, self.asked.append)
        self.intake.store.add_index("group", lambda obj: (obj.group,))
        self.intake.add_handler(self.handler)
        self.view: dict[Key, Thing] = {}
        self.newest: dict[str, int] = {}
        self.dead: set[str] = set()
        self.faults: list[str] = []

    @rule(action=st.sampled_from(ACTIONS), key=keys, bad=st.booleans(), pick=st.integers(0, 5))
    def step(self, action: str, key: Key, bad: bool, pick: int) -> None:  # noqa: FBT001 - Hypothesis draws it
        if action == "fall behind":
            self.relist(key.namespace)
            self.write(key, bad=True)
            for _ in range(pick % 3):
                self.write(key, bad=False)
            self.receive(key.namespace, 1)
            self.read_doubtful_object(len(self.asked) - 1)
        elif action == "list meanwhile":
            self.relist(key.namespace)
            self.write(key, bad=True)
            self.receive(key.namespace, 1)
            self.write(key, bad=bad)
            self.begin_list(key.namespace)
            if pick % 2:
                self.delete(key)
            self.write(key, bad=False)
            self.read_doubtful_object(len(self.asked) - 1)
        elif action == "write":
            self.write(key, bad=bad)
        elif action == "delete":
            self.delete(key)
        elif action == "receive":
            self.receive(key.namespace, 1 + pick % 2)
        elif action == "read":
            self.read_doubtful_object(pick)
        elif action == "answer":
            self.answer_arrives(pick)
        elif action == "compact":
            self.compacted = self.clock
        elif action == "begin list":
            self.begin_list(key.namespace)
        else:
            self.relist(key.namespace)

    # --- the server

    def write(self, key: Key, *, bad: bool) -> None:
        old = self.live.get(key)
        self.clock += 1
        uid = f"uid-{self.clock}" if old is None else old.obj.metadata.uid
        self.live[key] = Version(self.thing(key, uid), bad)
        self.record("ADDED" if old is None else "MODIFIED", self.live[key])

    def delete(self, key: Key) -> None:
        old = self.live.pop(key, None)
        if old is not None:
            self.clock += 1
            self.record("DELETED", Version(self.thing(key, old.obj.metadata.uid), old.bad))

    # --- the streams

    def receive(self, namespace: str, count: int) -> None:
        if namespace in self.listings:
            self.finish_list(namespace)
            return
        position = self.position[namespace]
        if position is None or position < self.compacted:
            self.relist(namespace)
            return
        for event in [event for event in self.history[namespace] if event.version > position][:count]:
            self.intake.event(event.type, event.content.wire())
            self.position[namespace] = event.version

    def relist(self, namespace: str) -> None:
        if namespace not in self.listings:
            self.begin_list(namespace)
        self.finish_list(namespace)

    def begin_list(self, namespace: str) -> None:
        """Take a snapshot; its pages arrive at once or while other things happen, and no event in between."""
        listing = self.intake.begin(namespace)
        self.listings[namespace] = (listing, self.clock)
        for key, version in self.live.items():
            if key.namespace == namespace:
                item = version.wire()
                bad = isinstance(item, BadObject)
                self.intake.collect(listing, [] if bad else [version.obj], [item] if bad else [])  # type: ignore[list-item]

    def finish_list(self, namespace: str) -> None:
        listing, self.position[namespace] = self.listings.pop(namespace)
        handlers = self.intake.handlers
        self.intake.deliver(self.intake.relist(listing, namespace), handlers)

    def read_doubtful_object(self, pick: int) -> None:
        if self.asked:
            doubt = self.asked.pop(pick % len(self.asked))
            self.answers.append((doubt, self.live.get(doubt.key)))

    def answer_arrives(self, pick: int) -> None:
        if not self.answers:
            return
        doubt, version = self.answers.pop(pick % len(self.answers))
        if version is None or version.bad:
            self.intake.settle(doubt)
        else:
            self.intake.answered(doubt, version.obj)

    # --- what must hold

    @invariant()
    def handlers_know_the_store(self) -> None:
        assert not self.faults
        assert self.view == {obj.key: obj for obj in self.intake.store.list()}

    def teardown(self) -> None:
        for namespace in NAMESPACES:
            if namespace in self.listings:
                self.finish_list(namespace)
            if self.position[namespace] is None or (self.position[namespace] or 0) < self.compacted:
                self.relist(namespace)
            self.receive(namespace, len(self.history[namespace]) or 1)
        store = self.intake.store
        readable = {key: version.obj for key, version in self.live.items() if not version.bad}
        assert {obj.key: obj for obj in store.list() if obj.key not in store.unreadable} == readable
        assert set(store.unreadable) == {key for key, version in self.live.items() if version.bad}
        assert set(store.keys()) <= set(self.live)

    # --- helpers

    def thing(self, key: Key, uid: str) -> Thing:
        meta = ObjectMeta(namespace=key.namespace, name=key.name, uid=uid, resource_version=str(self.clock))
        return Thing(metadata=meta, group=f"g{self.clock % 2}")

    def record(self, event_type: str, version: Version) -> None:
        self.history[version.obj.metadata.namespace].append(Event(self.clock, event_type, version))

    def handler(self, change: Change[Thing]) -> None:
        # Noted, not asserted: what a handler raises is isolated by the code under test.
        if change.old is not self.view.get(change.key):
            self.faults.append(f"{change} does not continue what came before")
        if change.new is None:
            self.view.pop(change.key, None)
            self.dead.add(change.object.metadata.uid)
            return
        if change.new.metadata.uid in self.dead:
            self.faults.append(f"{change} brings back the dead")
        version = int(change.new.metadata.resource_version)
        if version < self.newest.get(change.new.metadata.uid, 0):
            self.faults.append(f"{change} goes back in time")
        self.newest[change.new.metadata.uid] = version
        self.view[change.key] = change.new


TestIntakeMachine = IntakeMachine.TestCase
TestIntakeMachine.settings = settings(max_examples=examples(300), stateful_step_count=50, deadline=None)
