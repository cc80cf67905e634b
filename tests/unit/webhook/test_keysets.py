"""Sets of keys: how Slurm reads them, and which may take the place of which."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest

from slurm_operator.webhook.rules import keysets
from slurm_operator.webhook.rules.keysets import Loss
from tests.e2e.test_keys import key_set

NOW = 1_900_000_000.0
# Bytes for which the two alphabets of base64 differ.
OLD, NEW, THIRD = b"\xfb\xff" * 16, b"n" * 64, b"t" * 64
HIDDEN = "hunter2-hunter2-hunter2"

KEEP = "Keep the key in it that signs now until all workers are updated (docs/guides/keys.md)"
FIRST = "Add the new key first, and let it sign when all workers are updated (docs/guides/keys.md)"
STEPS = "Go in three steps (docs/guides/keys.md)"


def encoded(content: bytes | str) -> str:
    return base64.b64encode(content if isinstance(content, bytes) else content.encode()).decode()


def entry(kid: Any = "a", **fields: Any) -> dict[str, Any]:
    return {"alg": "HS256", "kty": "oct", "kid": kid, "k": encoded(OLD)} | fields


def written(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": entries}).encode()


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
def test_the_keys_that_sign_must_be_in_both_sets(old: bytes, new: bytes, way: str | None) -> None:
    """A set is replaced by one that believes those who have the old one, and that they believe."""
    assert lost(old, new) == (None if way is None else Loss(way))


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


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it cannot be read: Input data was truncated"),
        ("{old, new}", "it cannot be read: JSON is malformed"),
        (HIDDEN, "it cannot be read: JSON is malformed"),
        (b'{"keys": "\xff"}', "keys cannot be read: it must be a list, not a text"),
        (b'{"keys": [{"kid": "\xff"}]}', "it is no JSON"),
        ('{"keys": [{"use": ' + "[" * 100_000, "it is no JSON"),
        ("[]", "it cannot be read: it must be a map, not a list"),
        ("{}", "it cannot be read: Object missing required field `keys`"),
        (written(), "it has no keys"),
        (f'{{"keys": ["{HIDDEN}"]}}', "keys[0] cannot be read: it must be a map, not a text"),
        (written({"k": HIDDEN}), "keys[0] cannot be read: Object missing required field `kid`"),
        (written(entry(), entry(5, k=HIDDEN)), "keys[1].kid cannot be read: it must be a text"),
        (written(entry(exp=HIDDEN)), "keys[0].exp cannot be read: it must be a whole number, not a text"),
        (written(entry(kty=HIDDEN)), "keys[0].kty is not oct"),
        (written(entry(), entry("b", alg="RS256")), "keys[1].alg is not HS256"),
        (written(entry(k=f"{HIDDEN}!")), "keys[0].k is no base64"),
        (written(entry(k="ä")), "keys[0].k is no base64"),
        (written(entry(k="")), "keys[0].k is empty"),
        (written(entry(HIDDEN), entry(HIDDEN)), "two of its keys have the same kid"),
        (
            written(entry("a", use="default"), entry("b", use="DEFAULT")),
            'more than one of its keys has "use": "default"',
        ),
        (written(entry(exp=int(NOW) - 1)), "the exp of the key that signs is over"),
    ],
)
def test_what_is_no_set(text: bytes | str, fault: str) -> None:
    """What daemons cannot work with replaces nothing and can be cured; the reason repeats nothing of it."""
    good = key_set("old", old=OLD)
    loss = lost(good, text)
    assert loss is not None
    assert loss.fault.startswith(fault)
    assert HIDDEN not in loss.fault
    assert lost(text, good) is None
    assert lost(text, text) == loss


@pytest.mark.parametrize("text", [HIDDEN, "ä", "====", "a"])
def test_what_is_no_base64_is_no_set(text: str) -> None:
    """A value that no Secret can hold is refused as what it is."""
    assert keysets.lost(encoded(key_set("old", old=OLD)), text, NOW) == Loss(fault="it is no JSON")
