"""Texts of sets of keys, usable by Slurm or not."""

from __future__ import annotations

import base64
import json
from typing import Any

NOW = 1_900_000_000.0
# Bytes for which the two alphabets of base64 differ.
OLD = b"\xfb\xff" * 16
HIDDEN = "hunter2-hunter2-hunter2"


def encoded(content: bytes | str) -> str:
    return base64.b64encode(content if isinstance(content, bytes) else content.encode()).decode()


def entry(kid: Any = "a", **fields: Any) -> dict[str, Any]:
    return {"alg": "HS256", "kty": "oct", "kid": kid, "k": encoded(OLD)} | fields


def written(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": entries}).encode()


# What daemons cannot use, and the place in it that is wrong.
UNUSABLE: list[tuple[bytes | str, str]] = [
    ("", "it"),
    ("{old, new}", "it"),
    (HIDDEN, "it"),
    (b'{"keys": "\xff"}', "keys"),
    (b'{"keys": [{"kid": "\xff"}]}', "it"),
    ('{"keys": [{"use": ' + "[" * 100_000, "it"),
    ("[]", "it"),
    ("{}", "it"),
    (written(), "it"),
    (f'{{"keys": ["{HIDDEN}"]}}', "keys[0]"),
    (written({"k": HIDDEN}), "keys[0]"),
    (written(entry(), entry(5, k=HIDDEN)), "keys[1].kid"),
    (written(entry(exp=HIDDEN)), "keys[0].exp"),
    (written(entry(kty=HIDDEN)), "keys[0].kty"),
    (written(entry(), entry("b", alg="RS256")), "keys[1].alg"),
    (written(entry(k=f"{HIDDEN}!")), "keys[0].k"),
    (written(entry(k="ä")), "keys[0].k"),
    (written(entry(k="")), "keys[0].k"),
    (written(entry(HIDDEN), entry(HIDDEN)), "it"),
    (
        written(entry("a", use="default"), entry("b", use="DEFAULT")),
        "it",
    ),
    (written(entry(exp=int(NOW) - 1)), "it"),
]
