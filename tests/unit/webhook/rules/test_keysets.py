"""Sets of keys: how Slurm reads them, and which may take the place of which."""

from __future__ import annotations

import base64
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.webhook.rules import keysets
from tests.e2e.test_keys import key_set
from tests.support.webhook.key_set_texts import HIDDEN, NOW, OLD, UNUSABLE, encoded, entry, written

if TYPE_CHECKING:
    from slurm_operator.webhook.rules.keysets import Loss

NEW, THIRD = b"n" * 64, b"t" * 64

# By whether the old key is still in the set, and whether the new one was.
KEEP, FIRST, STEPS = (keysets.STEPS[found] for found in ((False, True), (True, False), (False, False)))


def lost(old: bytes | str, new: bytes | str) -> Loss | None:
    return keysets.lost(encoded(old), encoded(new), NOW)


def test_the_three_steps_are_open() -> None:
    """Each step by which a key is exchanged while jobs run is allowed, and so is each step back."""
    steps = [
        key_set("old", old=OLD, new=NEW),
        key_set("new", old=OLD, new=NEW),
        key_set("new", new=NEW),
        key_set("new", new=NEW, third=THIRD),
        key_set("third", new=NEW, third=THIRD),
    ]
    for before, after in itertools.pairwise(steps):
        assert lost(before, after) is None
        assert lost(after, before) is None


@pytest.mark.parametrize(
    ("old", "new", "way"),
    [
        (key_set("old", old=OLD), key_set("new", new=NEW), STEPS),
        (key_set("old", old=OLD, new=NEW), key_set("new", new=NEW), KEEP),
        (key_set("old", old=OLD), key_set("new", old=OLD, new=NEW), FIRST),
        # A message names its key by the kid, and is checked with what has that name.
        (key_set("new", new=OLD), key_set("old", old=OLD, new=NEW), STEPS),
        (key_set("old", old=OLD), key_set("old", old=NEW), STEPS),
        # Without a default, the first one signs.
        (key_set("", old=OLD, new=NEW), key_set("new", new=NEW), KEEP),
        (key_set("", old=OLD), key_set("", new=NEW, old=OLD), FIRST),
        (key_set("", old=OLD), key_set("", old=OLD, new=NEW), None),
        (key_set("", new=NEW, old=OLD), key_set("old", old=OLD, new=NEW), None),
        (key_set("", new=NEW, old=OLD), key_set("old", old=OLD), KEEP),
        # In a set with its time over a key is not believed, so it might as well not be there.
        (
            written(entry("a"), entry("b")),
            written(entry("a", exp=int(NOW) - 1), entry("b", use="default")),
            KEEP,
        ),
        (
            written(entry("a"), entry("b", exp=int(NOW) - 1)),
            written(entry("a"), entry("b", use="default")),
            FIRST,
        ),
        (
            written(entry("a"), entry("b")),
            written(entry("a", exp=int(NOW)), entry("b", use="default")),
            None,
        ),
        (written(entry("a", exp=0)), written(entry("a", exp=None)), None),
    ],
)
def test_the_keys_that_sign_must_be_in_both_sets(old: bytes, new: bytes, way: Loss | None) -> None:
    """A set is replaced only by one that accepts the old signing key, and whose own the old set accepts."""
    assert lost(old, new) == way


def test_each_way_has_its_advice() -> None:
    """The three refusals have advice of their own, and none is about a broken set."""
    ways = [way for way in (KEEP, FIRST, STEPS) if way is not None]
    assert len({way.way for way in ways}) == 3
    assert not any(way.fault for way in ways)


@pytest.mark.parametrize(
    "same",
    [
        entry(k=encoded(OLD).rstrip("=")),
        entry(k=base64.urlsafe_b64encode(OLD).decode()),
        entry(use="Default", kty="OCT", alg="hs256"),
        entry(use="sig", another="field"),
        entry(use=5),
    ],
)
def test_a_key_may_be_written_in_several_ways(same: dict[str, Any]) -> None:
    """What Slurm reads as the same key is the same."""
    assert lost(written(entry()), written(same)) is None
    assert lost(written(same), written(entry())) is None


@pytest.mark.parametrize(("text", "place"), UNUSABLE)
def test_what_is_no_set(text: bytes | str, place: str) -> None:
    """What daemons cannot use replaces nothing and can be fixed; the reason names the place, no value."""
    good = key_set("old", old=OLD)
    loss = lost(good, text)
    assert loss is not None
    assert not loss.way
    assert loss.fault.startswith(f"{place} ")
    assert HIDDEN not in loss.fault
    assert lost(text, good) is None
    assert lost(text, text) == loss


@pytest.mark.parametrize("text", [HIDDEN, "ä", "====", "a"])
def test_what_is_no_base64_is_no_set(text: str) -> None:
    """A value that no Secret can hold is refused as what it is."""
    loss = keysets.lost(encoded(key_set("old", old=OLD)), text, NOW)
    assert loss is not None
    assert (loss.way, loss.fault.startswith("it ")) == ("", True)
