from __future__ import annotations

from typing import ClassVar

from slurm_operator.kube.cache.intake import Doubt, Intake, Listing
from slurm_operator.kube.decide.own_writes import is_older
from slurm_operator.kube.manifests.wire import BadObject
from slurm_operator.kube.models.meta import Key, Object, ObjectMeta, Resource
from slurm_operator.kube.models.store import Change
from slurm_operator.kube.process import metrics

KEY = Key("ns", "a")


class Gadget(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("test.example", "v1", "gadgets", "Gadget")


def gadget(version: int | str, uid: str = "u1", name: str = "a") -> Gadget:
    return Gadget(metadata=ObjectMeta(name=name, namespace="ns", uid=uid, resource_version=str(version)))


def bad(version: int) -> BadObject:
    return BadObject(KEY, "Expected `int`, got `str` - at `$.spec.size`", str(version))


def started(*, asked: list[Doubt]) -> Intake[Gadget]:
    """Return an intake that has listed version 1 and then received a version 5 that does not decode."""
    intake: Intake[Gadget] = Intake(Gadget, asked.append)
    intake.event("ADDED", gadget(1))
    intake.event("MODIFIED", bad(5))
    return intake


def stored(intake: Intake[Gadget]) -> str | None:
    found = intake.store.get(KEY)
    return None if found is None else found.metadata.resource_version


def sample(name: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"slurm_operator_{name}", {"kind": "Gadget"}) or 0.0


def test_an_object_that_does_not_decode_is_asked_for() -> None:
    """A bad event marks the object, keeps the version before it, and asks for the object by itself."""
    asked: list[Doubt] = []
    intake = started(asked=asked)

    assert [doubt.key for doubt in asked] == [KEY]
    assert dict(intake.store.unreadable) == {KEY: bad(5).error}
    assert stored(intake) == "1"

    intake.answered(asked[0], gadget(6))

    assert not intake.store.unreadable
    assert stored(intake) == "6"


def test_events_older_than_an_answer_are_passed_over() -> None:
    """After an answer from ahead of the stream, the object does not go back to what is still coming."""
    asked: list[Doubt] = []
    intake = started(asked=asked)
    intake.answered(asked[0], gadget(8))

    seen = []
    for version in (6, 7, 8, 9):
        intake.event("MODIFIED", gadget(version))
        seen.append(stored(intake))

    assert seen == ["8", "8", "8", "9"]


def test_the_end_of_an_earlier_object_spares_its_successor() -> None:
    """A deletion on its way when the answer already showed a new object of that name deletes nothing."""
    asked: list[Doubt] = []
    intake = started(asked=asked)
    intake.answered(asked[0], gadget(8, "u2"))

    intake.event("DELETED", gadget(7, "u1"))
    assert stored(intake) == "8"
    intake.event("DELETED", BadObject(KEY, "still bad", "7"))
    assert stored(intake) == "8"
    intake.event("DELETED", gadget(9, "u2"))
    assert stored(intake) is None


def test_an_answer_that_events_have_overtaken_is_dropped() -> None:
    """Once the stream has told anything newer of an object, an answer on its way no longer counts."""
    asked: list[Doubt] = []
    intake = started(asked=asked)

    intake.event("MODIFIED", gadget(7))
    intake.answered(asked[0], gadget(6))
    assert stored(intake) == "7"

    intake.event("MODIFIED", bad(8))
    intake.event("DELETED", gadget(9))
    intake.answered(asked[1], gadget(8))
    assert stored(intake) is None


def test_an_answer_that_a_list_has_overtaken_is_dropped() -> None:
    """A list says what there is; an answer asked for before it is not applied on top."""
    asked: list[Doubt] = []
    intake = started(asked=asked)

    intake.relist(intake.begin("ns"), "ns")
    intake.answered(asked[0], gadget(6))

    assert stored(intake) is None


def test_an_answer_during_a_list_is_dropped() -> None:
    """Between the pages of a list nothing is applied: a later page would undo it and a watch do it again."""
    asked: list[Doubt] = []
    intake = started(asked=asked)
    seen: list[Change[Gadget]] = []
    intake.add_handler(seen.append)
    before = len(seen)

    listing = intake.begin(None)
    intake.collect(listing, [gadget(6)], [])
    intake.answered(asked[0], gadget(9, "u2"))
    intake.deliver(intake.relist(listing, None), intake.handlers)
    intake.event("DELETED", gadget(8))
    intake.event("ADDED", gadget(9, "u2"))

    assert [change.object.metadata.uid for change in seen[before:]] == ["u1", "u1", "u1", "u2"]
    assert stored(intake) == "9"


def test_a_list_of_one_namespace_leaves_the_doubts_of_others() -> None:
    """An answer is still wanted while another namespace is listed."""
    asked: list[Doubt] = []
    intake = started(asked=asked)

    intake.begin("elsewhere")
    assert intake.wanted(asked[0])
    intake.begin("ns")
    assert not intake.wanted(asked[0])


def test_an_object_that_stays_bad_stays_marked() -> None:
    """When asking does not help, the mark stays until the stream brings a version that decodes."""
    asked: list[Doubt] = []
    intake = started(asked=asked)

    intake.settle(asked[0])
    assert not intake.wanted(asked[0])
    assert KEY in intake.store.unreadable

    intake.event("MODIFIED", gadget(9))
    assert not intake.store.unreadable


def test_a_bad_object_can_be_deleted() -> None:
    """The deletion of an object that does not decode ends its mark."""
    asked: list[Doubt] = []
    intake = started(asked=asked)

    intake.event("DELETED", bad(6))

    assert stored(intake) is None
    assert not intake.store.unreadable


def test_the_handlers_hear_of_the_end_of_an_object_that_never_decoded() -> None:
    """It comes and goes with the metadata that did decode, or at least its name, by event or by list."""
    intake: Intake[Gadget] = Intake(Gadget, lambda _: None)
    seen: list[Change[Gadget]] = []
    intake.add_handler(seen.append)
    known = gadget(5)

    intake.event("ADDED", BadObject(KEY, "bad", "5", known.metadata))
    assert seen == []
    intake.event("DELETED", bad(6))
    assert seen == [Change(None, known), Change(known, None)]

    seen.clear()
    listing = intake.begin(None)
    intake.collect(listing, [], [bad(7)])
    intake.deliver(intake.relist(listing, None), intake.handlers)
    assert seen == []
    intake.deliver(intake.relist(intake.begin(None), None), intake.handlers)
    assert [(change.key, change.added, change.deleted) for change in seen] == [
        (KEY, True, False),
        (KEY, False, True),
    ]


class Strict(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("test.example", "v1", "stricts", "Strict")

    size: int


def test_a_kind_that_requires_more_than_metadata_has_no_stand_in() -> None:
    """An object of such a kind that never decoded is marked and unmarked, and nothing is made up for it."""
    intake: Intake[Strict] = Intake(Strict, lambda _: None)
    seen: list[Change[Strict]] = []
    intake.add_handler(seen.append)

    intake.event("ADDED", bad(5))
    assert KEY in intake.store.unreadable
    intake.event("DELETED", bad(6))
    assert not intake.store.unreadable
    assert seen == []


def test_decode_errors_are_counted_by_kind() -> None:
    """Each event and each listed item that does not decode counts once in the metric of its kind."""
    before = sample("decode_errors_total")
    asked: list[Doubt] = []
    intake = started(asked=asked)
    listing: Listing[Gadget] = Listing()
    intake.collect(listing, [gadget(7, "u2", "b")], [bad(5)])
    intake.relist(listing, None)

    assert sample("decode_errors_total") == before + 2
    assert len(asked) == 2


def test_a_failing_handler_stops_neither_the_others_nor_the_stream() -> None:
    """What a handler raises is counted, and every other handler and every later change is still delivered."""
    intake: Intake[Gadget] = Intake(Gadget, lambda _: None)
    before = sample("handler_errors_total")
    seen: list[Change[Gadget]] = []

    def broken(change: Change[Gadget]) -> None:
        raise RuntimeError(f"no {change.key}")

    intake.add_handler(broken)
    intake.add_handler(seen.append)
    intake.event("ADDED", gadget(1))
    intake.event("MODIFIED", gadget(2))

    assert [change.object.metadata.resource_version for change in seen] == ["1", "2"]
    assert sample("handler_errors_total") == before + 2


def test_a_late_handler_hears_of_what_is_there() -> None:
    """A handler added to a full store is called with an added change per object, and others are not."""
    intake: Intake[Gadget] = Intake(Gadget, lambda _: None)
    early: list[Change[Gadget]] = []
    late: list[Change[Gadget]] = []
    intake.add_handler(early.append)
    first, second = gadget(1), gadget(2, "u2", "b")
    intake.event("ADDED", first)
    intake.event("ADDED", second)

    intake.add_handler(late.append)

    assert late == early == [Change(None, first), Change(None, second)]


def test_a_transform_is_applied_to_events_and_lists() -> None:
    """The store holds what the transform returns, whichever way the object came."""

    def strip(obj: Gadget) -> Gadget:
        meta = obj.metadata
        return Gadget(
            metadata=ObjectMeta(
                name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        )

    def labelled(version: int, name: str) -> Gadget:
        return Gadget(
            metadata=ObjectMeta(
                name=name, namespace="ns", uid=name, resource_version=str(version), labels={"heavy": "x"}
            )
        )

    intake: Intake[Gadget] = Intake(Gadget, lambda _: None, strip)
    intake.event("ADDED", labelled(1, "a"))
    assert [obj.metadata.labels for obj in intake.store.list()] == [{}]

    listing: Listing[Gadget] = Listing()
    intake.collect(listing, [labelled(2, "b"), labelled(3, "c")], [])
    intake.relist(listing, None)
    assert {obj.metadata.name: obj.metadata.labels for obj in intake.store.list()} == {"b": {}, "c": {}}


def test_a_failing_transform_makes_the_object_unreadable() -> None:
    """An object on which the transform fails is marked, not asked for, and fixed by the next version."""
    asked: list[Doubt] = []

    def picky(obj: Gadget) -> Gadget:
        if obj.metadata.resource_version == "2":
            raise ValueError("two")
        return obj

    intake: Intake[Gadget] = Intake(Gadget, asked.append, picky)
    intake.event("ADDED", gadget(1))
    intake.event("MODIFIED", gadget(2))
    assert intake.store.unreadable[KEY].startswith("transform failed: ValueError in ")

    listing: Listing[Gadget] = Listing()
    intake.collect(listing, [gadget(2)], [])
    intake.relist(listing, None)
    assert KEY in intake.store.unreadable
    assert stored(intake) == "1"

    intake.event("MODIFIED", gadget(3))
    assert not intake.store.unreadable
    assert stored(intake) == "3"
    assert asked == []


def test_a_relist_delivers_deletions() -> None:
    """An object that vanished without an event is a deletion for the handlers when a list lacks it."""
    intake: Intake[Gadget] = Intake(Gadget, lambda _: None)
    old = gadget(1)
    intake.event("ADDED", old)

    assert intake.relist(Listing(), None) == [Change(old, None)]


def test_the_gauge_adds_up_over_informers_of_a_kind() -> None:
    """Two caches of one kind share a gauge that shows the objects of both."""
    before = sample("cache_objects")
    first: Intake[Gadget] = Intake(Gadget, lambda _: None)
    second: Intake[Gadget] = Intake(Gadget, lambda _: None)
    first.event("ADDED", gadget(1))
    second.event("ADDED", gadget(1))
    second.event("ADDED", gadget(2, "u2", "b"))
    for intake in (first, second, first):
        intake.count_objects()
    assert sample("cache_objects") == before + 3

    second.event("DELETED", gadget(3, "u2", "b"))
    second.count_objects()
    assert sample("cache_objects") == before + 2


def test_only_integers_are_ordered() -> None:
    """Versions are compared as numbers, and a version that is none is never called older."""
    assert is_older("9", "10")
    assert not is_older("10", "9")
    assert not is_older("10", "10")
    assert not is_older("a", "10")
    assert not is_older("9", "")
