"""A store against a plain dict, through any sequence of operations that Hypothesis can think of."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from slurm_operator.kube.models.meta import Key, Object, ObjectMeta, Resource
from slurm_operator.kube.models.store import Change, Store
from tests.support.property_settings import examples


class Thing(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("test.example", "v1", "things", "Thing")

    group: str = ""
    tags: tuple[str, ...] = ()


NAMESPACES = ("", "a", "b")
GROUPS = ("x", "y")
TAGS = ("red", "green", "blue")

keys = st.builds(Key, st.sampled_from(NAMESPACES), st.sampled_from(("one", "two", "three")))
groups = st.sampled_from(GROUPS)
tag_sets = st.lists(st.sampled_from(TAGS), max_size=4).map(tuple)
contents = st.tuples(groups, tag_sets)
fates = st.sampled_from(("keep", "update", "recreate", "drop", "spoil"))


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store: Store[Thing] = Store()
        self.model: dict[Key, Thing] = {}
        self.unreadable: set[Key] = set()
        self.view: dict[Key, Thing] = {}
        self.clock = 0

    @initialize()
    def index(self) -> None:
        self.store.add_index("group", lambda obj: (obj.group,))

    @rule(key=keys, content=contents)
    def put_new_version(self, key: Key, content: tuple[str, tuple[str, ...]]) -> None:
        obj = self.version(key, content, self.model.get(key))
        changes = self.store.put(obj)
        if key in self.unreadable:
            assert changes[-1].old is obj or changes[-1].added, "no predicate may hide that it is readable"
        self.follow(changes)
        self.model[key] = obj
        self.unreadable.discard(key)

    @rule(key=keys, content=contents)
    def put_recreated(self, key: Key, content: tuple[str, tuple[str, ...]]) -> None:
        obj = self.version(key, content, None)
        changes = self.store.put(obj)
        assert len(changes) == (2 if key in self.model else 1)
        self.follow(changes)
        self.model[key] = obj
        self.unreadable.discard(key)

    @rule(key=keys)
    def put_same_version(self, key: Key) -> None:
        obj = self.model.get(key)
        if obj is not None:
            changes = self.store.put(obj)
            assert changes == ([Change(obj, obj)] if key in self.unreadable else [])
            self.unreadable.discard(key)

    @rule(key=keys)
    def remove(self, key: Key) -> None:
        changes = self.store.remove(key)
        assert bool(changes) == (key in self.model or key in self.unreadable)
        self.follow(changes)
        self.model.pop(key, None)
        self.unreadable.discard(key)

    @rule(key=keys)
    def remove_what_is_gone_already(self, key: Key) -> None:
        if key not in self.unreadable:
            assert self.store.remove(key, "the UID of no object") == []

    @rule(key=keys)
    def mark_unreadable(self, key: Key) -> None:
        self.follow(self.store.mark_unreadable(key, "bad", self.version(key, ("x", ()), None)))
        self.unreadable.add(key)

    @rule(
        namespace=st.sampled_from((None, *NAMESPACES)),
        fate=st.dictionaries(keys, st.tuples(fates, contents), max_size=9),
    )
    def replace(
        self, namespace: str | None, fate: dict[Key, tuple[str, tuple[str, tuple[str, ...]]]]
    ) -> None:
        scope = {key for key in (*self.model, *self.unreadable, *fate) if namespace in (None, key.namespace)}
        listed: list[Thing] = []
        spoiled: dict[Key, str] = {}
        stand_ins: dict[Key, Thing] = {}
        for key in sorted(scope):
            what, content = fate.get(key, ("keep", ("x", ())))
            old = self.model.get(key)
            if what == "spoil":
                spoiled[key] = "bad"
                stand_ins[key] = self.version(key, content, None)
            elif what == "keep" and old is not None:
                listed.append(old)
            elif what in ("update", "recreate"):
                listed.append(self.version(key, content, old if what == "update" else None))
        changes = self.store.replace(listed, namespace=namespace, unreadable=spoiled, stand_ins=stand_ins)
        listed_keys = {obj.key for obj in listed}
        gone = {key for key in (*self.model, *self.unreadable) if key in scope} - listed_keys - set(spoiled)
        assert {change.key for change in changes if change.deleted} >= gone
        self.follow(changes)
        for key in scope:
            if key not in spoiled:
                self.model.pop(key, None)
        self.model |= {obj.key: obj for obj in listed}
        self.unreadable = (self.unreadable - scope) | set(spoiled)

    @rule()
    def add_second_index(self) -> None:
        if self.clock and "tags" not in self.store._indexes:
            self.store.add_index("tags", lambda obj: obj.tags)

    @invariant()
    def contents_are_the_model(self) -> None:
        assert {obj.key: obj for obj in self.store.list()} == self.model
        assert set(self.store.keys()) == set(self.model)
        assert len(self.store) == len(self.model)
        assert set(self.store.unreadable) == self.unreadable
        for namespace in NAMESPACES:
            assert {obj.key for obj in self.store.list(namespace)} == {
                key for key in self.model if key.namespace == namespace
            }

    @invariant()
    def handlers_see_the_same(self) -> None:
        assert self.view == self.model

    @invariant()
    def indexes_are_what_a_scan_finds(self) -> None:
        if "group" in self.store._indexes:
            for group in GROUPS:
                scan = {key for key, obj in self.model.items() if obj.group == group}
                assert {obj.key for obj in self.store.by_index("group", group)} == scan
        if "tags" in self.store._indexes:
            for tag in TAGS:
                scan = {key for key, obj in self.model.items() if tag in obj.tags}
                found = self.store.by_index("tags", tag)
                assert len(found) == len(scan)
                assert all(self.model[obj.key] is obj for obj in found)

    def version(self, key: Key, content: tuple[str, tuple[str, ...]], old: Thing | None) -> Thing:
        """Make the next version of an object, with the UID of the old one or a new UID."""
        self.clock += 1
        meta = ObjectMeta(
            namespace=key.namespace,
            name=key.name,
            uid=f"uid-{self.clock}" if old is None else old.metadata.uid,
            resource_version=str(self.clock),
        )
        return Thing(metadata=meta, group=content[0], tags=content[1])

    def follow(self, changes: list[Change[Thing]]) -> None:
        """Rebuild the view as a handler would, from the changes alone."""
        for change in changes:
            before = self.view.get(change.key)
            assert change.old is before
            if change.new is None:
                del self.view[change.key]
            else:
                if before is not None:
                    assert before.metadata.uid == change.new.metadata.uid
                self.view[change.key] = change.new


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
