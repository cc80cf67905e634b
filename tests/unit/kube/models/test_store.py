from __future__ import annotations

from typing import ClassVar

import pytest

from slurm_operator.kube.models.meta import Key, Object, ObjectMeta, Resource
from slurm_operator.kube.models.store import Change, Store


class Thing(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("test.example", "v1", "things", "Thing")

    group: str = ""
    tags: tuple[str, ...] = ()


def thing(name: str, version: int, uid: str = "u1", *, namespace: str = "ns", group: str = "g") -> Thing:
    meta = ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=str(version))
    return Thing(metadata=meta, group=group)


def by_group(obj: Thing) -> list[str]:
    return [obj.group]


def test_a_new_uid_is_a_deletion_and_an_addition() -> None:
    """An object with another UID under a stored name gives two changes, the deletion first."""
    store: Store[Thing] = Store()
    first, second = thing("a", 1, "u1"), thing("a", 2, "u2")
    store.put(first)

    assert store.put(second) == [Change(first, None), Change(None, second)]
    assert store.list() == [second]


def test_the_same_version_again_is_no_change() -> None:
    """An object that comes again with the stored UID and resourceVersion changes nothing."""
    store: Store[Thing] = Store()
    first = thing("a", 1)
    store.put(first)

    assert store.put(thing("a", 1)) == []
    assert store.get(first.key) is first


def test_listing_shares_the_objects() -> None:
    """Reading returns the stored objects themselves, in a list that the caller may change."""
    store: Store[Thing] = Store()
    store.add_index("group", by_group)
    obj = thing("a", 1)
    store.put(obj)

    for found in (store.list(), store.list("ns"), store.by_index("group", "g")):
        assert found[0] is obj
        found.clear()
    assert store.list("ns") == store.by_index("group", "g") == [obj]


def test_a_replaced_namespace_leaves_the_others_alone() -> None:
    """A list of one namespace deletes what that namespace lacks and nothing elsewhere."""
    store: Store[Thing] = Store()
    here, kept, elsewhere = thing("a", 1), thing("b", 2, "u2"), thing("a", 3, "u3", namespace="other")
    for obj in (here, kept, elsewhere):
        store.put(obj)

    assert store.replace([kept], namespace="ns") == [Change(here, None)]
    assert store.list() == [kept, elsewhere]


def test_an_unreadable_object_is_neither_absent_nor_current() -> None:
    """The last readable version stays, marked, until a readable one, a deletion or a list ends the mark."""
    store: Store[Thing] = Store()
    first, second = thing("a", 1), thing("a", 3)
    store.put(first)

    assert store.mark_unreadable(first.key, "bad spec") == [Change(first, first)]
    assert store.mark_unreadable(first.key, "worse spec") == []
    assert store.get(first.key) is first
    assert dict(store.unreadable) == {first.key: "worse spec"}

    assert store.put(second) == [Change(first, second), Change(second, second)]
    assert not store.unreadable
    assert store.put(thing("a", 4)) == [Change(second, thing("a", 4))]


def test_an_object_that_was_never_readable_is_only_a_mark() -> None:
    """A key can be unknown without any stored object, and without a trace once it is gone."""
    store: Store[Thing] = Store()
    key = Key("ns", "a")

    assert store.mark_unreadable(key, "bad") == []
    assert key not in store
    assert key in store.unreadable
    assert store.remove(key) == []
    assert not store.unreadable


def test_the_end_of_an_object_that_never_was_readable_is_told() -> None:
    """Its stand-in comes and goes, whether an event or a list says that it is gone, and only then."""
    store: Store[Thing] = Store()
    first, second = thing("a", 1), thing("a", 2)
    told = [Change(None, second), Change(second, None)]

    store.mark_unreadable(first.key, "bad", first)
    assert store.mark_unreadable(first.key, "worse", second) == []
    assert store.remove(first.key) == told
    assert store.remove(first.key) == []

    store.replace([], unreadable={first.key: "bad"}, stand_ins={first.key: second})
    assert store.list() == []
    assert store.replace([]) == told
    assert store.replace([]) == []

    store.mark_unreadable(first.key, "bad", first)
    assert store.put(second) == [Change(None, second)]
    assert store.remove(first.key) == [Change(second, None)]


def test_an_object_that_an_index_refused_from_the_start_is_told_when_gone() -> None:
    """An object kept out by an index function stands in for itself."""
    store: Store[Thing] = Store()
    store.add_index("tags", lambda obj: (obj.tags[0],))
    obj = thing("a", 1)

    assert store.put(obj) == []
    assert obj.key in store.unreadable
    assert store.remove(obj.key, "u1") == [Change(None, obj), Change(obj, None)]


def test_a_list_keeps_what_it_could_not_read() -> None:
    """An object that is in a list but did not decode is kept and marked, not deleted."""
    store: Store[Thing] = Store()
    first, other = thing("a", 1), thing("b", 2, "u2")
    store.replace([first, other])

    changes = store.replace([], unreadable={first.key: "bad"})

    assert changes == [Change(other, None), Change(first, first)]
    assert store.list() == [first]
    assert store.replace([]) == [Change(first, None)]
    assert not store.unreadable


def test_a_deletion_of_another_uid_deletes_nothing() -> None:
    """A deletion that names a UID spares a newer object of the same name."""
    store: Store[Thing] = Store()
    obj = thing("a", 5, "u2")
    store.put(obj)

    assert store.remove(obj.key, "u1") == []
    assert store.remove(obj.key, "u2") == [Change(obj, None)]
    assert len(store) == 0


def test_a_failing_index_makes_the_object_unreadable() -> None:
    """An index function that raises costs its object the mark, and no index keeps half of the update."""
    store: Store[Thing] = Store()

    def picky(obj: Thing) -> list[str]:
        if obj.group == "bad":
            raise ValueError("no such group")
        return [obj.group]

    store.add_index("group", by_group)
    store.add_index("picky", picky)
    good, bad = thing("a", 1, group="good"), thing("a", 2, group="bad")
    store.put(good)

    assert store.put(bad) == [Change(good, good)]
    assert store.unreadable[good.key].startswith("index 'picky' failed: ValueError in ")
    assert "no such group" not in store.unreadable[good.key], "the text of the error may quote a secret"
    assert store.by_index("group", "good") == store.by_index("picky", "good") == [good]
    assert store.by_index("group", "bad") == []


def test_an_index_function_that_returns_one_string_is_refused() -> None:
    """A bare string, which would be taken letter by letter, is named as the mistake it is."""
    store: Store[Thing] = Store()
    store.add_index("group", lambda obj: obj.group)
    obj = thing("a", 1, group="abc")

    store.put(obj)

    assert "must return a tuple or list of strings" in store.unreadable[obj.key]


def test_a_late_index_covers_what_is_stored() -> None:
    """An index added to a full store answers for the objects that were there before."""
    store: Store[Thing] = Store()
    obj = thing("a", 1)
    store.put(obj)
    store.add_index("group", by_group)

    assert store.by_index("group", "g") == [obj]
    with pytest.raises(ValueError, match="'group' exists already"):
        store.add_index("group", by_group)


def test_an_unknown_index_is_an_error_that_names_the_known_ones() -> None:
    """Asking for an index that was never added fails and says which exist."""
    store: Store[Thing] = Store()
    store.add_index("group", by_group)

    with pytest.raises(KeyError, match=r"no index 'owner' in this store \(it has: group\)"):
        store.by_index("owner", "x")


def test_a_change_says_what_it_is() -> None:
    """Exactly one of added, updated and deleted holds for a change, and its object is the latest known."""
    old, new = thing("a", 1), thing("a", 2)

    assert [
        (c.added, c.updated, c.deleted) for c in (Change(None, new), Change(old, new), Change(old, None))
    ] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert Change(old, new).object is new
    assert Change(old, None).object is old
    assert Change(old, None).key == Key("ns", "a")
