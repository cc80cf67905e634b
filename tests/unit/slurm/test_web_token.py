"""Tokens: what is in them, who signed them, and when they are renewed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.web_token import (
    CLOCK_SKEW,
    FixedToken,
    MintedToken,
    TokenClaims,
    mint,
    read,
    renew_at,
    signed_by,
)

KEY = b"0123456789abcdef0123456789abcdef"
NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
# What clusters may have: short ones, with line breaks and zero bytes, and files never meant as a key.
STRANGE_KEYS = [
    b"k",
    b"short\n",
    b"\x00\x01\x00",
    b"x" * 1024,
    b"ssh-rsa AAAA",
    b'{"kty":"oct","k":"AAAA"}',
    b"-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----\n",
]


def parts(token: str) -> list[dict[str, Any]]:
    """Decode header and payload without the library under test."""
    return [json.loads(base64.urlsafe_b64decode(part + "==")) for part in token.split(".")[:2]]


def signature(token: str, key: bytes) -> str:
    signed = hmac.new(key, token.rpartition(".")[0].encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(signed).rstrip(b"=").decode()


def forge(payload: object, header: object = None) -> str:
    """Make a token with any content, signed with KEY."""
    texts = [json.dumps(part).encode() for part in (header or {"alg": "HS256", "typ": "JWT"}, payload)]
    body = ".".join(base64.urlsafe_b64encode(text).rstrip(b"=").decode() for text in texts)
    return f"{body}.{signature(body + '.', KEY)}"


# --- what is in a token


def test_claims() -> None:
    """A token is HS256 and has exactly the claims of the reference, in whole seconds."""
    header, payload = parts(mint(KEY, "alice", QUARTER, NOW + timedelta(microseconds=900_000)))
    assert header == {"alg": "HS256", "typ": "JWT"}
    assert payload.pop("jti")
    issued = int(NOW.timestamp())
    assert payload == {
        "iss": "slurm-operator",
        "iat": issued,
        "nbf": issued - 60,
        "exp": issued + 900,
        "sun": "alice",
    }


def test_every_token_is_another() -> None:
    """Two tokens of the same second differ: each has an id of its own."""
    assert mint(KEY, "alice", QUARTER, NOW) != mint(KEY, "alice", QUARTER, NOW)


@pytest.mark.parametrize("key", STRANGE_KEYS)
def test_any_key(key: bytes) -> None:
    """The bytes of the key are used as they are, whatever they are, without a warning or a refusal."""
    token = mint(key, "alice", QUARTER, NOW)
    assert token.rpartition(".")[2] == signature(token, key)
    assert signed_by(token, key)
    assert not signed_by(token, key + b"\n")


def test_other_programs_can_read_it() -> None:
    """A verifier that checks everything accepts a fresh token, also with a clock that is behind."""
    token = mint(KEY, "alice", QUARTER, datetime.now(UTC) + CLOCK_SKEW - timedelta(seconds=5))
    options: Any = {"require": ["exp", "iat", "nbf", "jti", "iss"], "verify_iat": False}
    assert jwt.decode(token, KEY, algorithms=["HS256"], options=options)["sun"] == "alice"


@pytest.mark.parametrize(
    ("key", "user", "lifetime", "complaint"),
    [
        (b"", "alice", QUARTER, "key is empty"),
        (KEY, "", QUARTER, "must have a name"),
        (KEY, "alice", timedelta(0), "lifetime"),
        (KEY, "alice", timedelta(seconds=-1), "lifetime"),
    ],
)
def test_what_cannot_be_minted(key: bytes, user: str, lifetime: timedelta, complaint: str) -> None:
    """A token that nobody could use is not made, and the error says why."""
    with pytest.raises(ValueError, match=complaint):
        mint(key, user, lifetime, NOW)


@given(
    key=st.binary(min_size=1, max_size=80),
    other=st.binary(min_size=1, max_size=80),
    user=st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable()),
    seconds=st.integers(min_value=1, max_value=2**31 - 2),
)
def test_round_trip(key: bytes, other: bytes, user: str, seconds: int) -> None:
    """What is minted reads back the same, and is signed by its key and by no other."""
    token = mint(key, user, timedelta(seconds=seconds), NOW)
    claims = read(token)
    assert claims == TokenClaims(user, NOW, NOW + timedelta(seconds=seconds), claims.jwt_id)
    assert signed_by(token, key)
    # HMAC fills short keys up with zero bytes: keys that differ only by those are the same key.
    assert signed_by(token, other) is (
        other.rstrip(b"\0") == key.rstrip(b"\0") and max(len(key), len(other)) <= 64
    )


# --- reading what others wrote


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ".",
            "..",
            "a.b.c",
            "no token",
            "é.é.é",
            "\0",
            mint(KEY, "a", QUARTER, NOW)[:-50].replace(".", ""),
        ),
        *(
            forge([]),
            forge("text"),
            forge(None),
            forge({"exp": "soon"}),
            forge({"sun": 5}),
            forge({"iat": True}),
        ),
    ],
)
def test_what_is_no_token(text: str) -> None:
    """What is not a JWT with claims of the right types is a ValueError that quotes nothing of it."""
    with pytest.raises(ValueError, match=r"^not a JSON web token of Slurm$"):
        read(text)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text(text: str) -> None:
    """No text makes reading fail in another way, and none is signed by the key."""
    assert not signed_by(text, KEY)
    try:
        read(text)
    except ValueError as error:
        assert str(error) == "not a JSON web token of Slurm"  # noqa: PT017 - a text that reads is no failure


@pytest.mark.parametrize(
    "header",
    [{"alg": "none"}, {"alg": "HS512"}, {"alg": "RS256"}, {"typ": "JWT"}, {"alg": "HS256", "crit": []}],
)
def test_only_hs256_is_a_signature(header: dict[str, str]) -> None:
    """A token that names another algorithm, or none, is not signed, however its bytes look."""
    token = forge({"sun": "root", "exp": 9}, header)
    assert read(token).user == "root"
    assert not signed_by(token, KEY)


@pytest.mark.parametrize("seconds", [1e300, 2**63, 253402300800, -1, 0])
def test_times_beyond_the_calendar(seconds: float) -> None:
    """A time that no calendar has becomes the nearest one that it has."""
    moment = read(forge({"exp": seconds, "iat": 1})).expires_at
    assert moment is not None
    assert moment.year == (9999 if seconds > 0 else 1970)


def test_nothing_is_signed_with_no_key() -> None:
    """An empty key has signed nothing."""
    token = mint(KEY, "alice", QUARTER, NOW)
    assert not signed_by(token, b"")


# --- when it is renewed


def test_four_fifths() -> None:
    """A token is due when four fifths of its life are over."""
    assert renew_at(read(mint(KEY, "alice", QUARTER, NOW))) == NOW + timedelta(minutes=12)


@pytest.mark.parametrize("payload", [{"exp": 2e9}, {"iat": 1e9}, {}])
def test_half_a_life_is_due(payload: dict[str, float]) -> None:
    """A token without expiry, which Slurm refuses, or without its beginning is due at once."""
    assert renew_at(read(forge(payload))) < NOW


class Clock:
    """A wall clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


def test_a_source_renews() -> None:
    """A source gives the same token until four fifths of its life are over, and then another."""
    clock = Clock()
    source = MintedToken(KEY, "slurm", QUARTER, clock)
    first = source()
    clock.now += 12 * 60 - 1
    assert source() == first
    clock.now += 1
    second = source()
    assert second != first
    assert read(second).issued_at == NOW + timedelta(minutes=12)
    assert source() == second


def test_a_source_whose_clock_is_set_back() -> None:
    """After the clock was set back the source does not go on with a token of the future."""
    clock = Clock()
    source = MintedToken(KEY, "slurm", QUARTER, clock)
    source()
    clock.now -= 3600
    assert read(source()).issued_at == NOW - timedelta(hours=1)


def test_a_source_that_slept() -> None:
    """After the machine slept the first token is a new one."""
    clock = Clock()
    source = MintedToken(KEY, "slurm", QUARTER, clock)
    clock.now += 10**7
    claims = read(source())
    assert claims.expires_at == NOW + timedelta(seconds=10**7) + QUARTER


def test_a_source_complains_at_once() -> None:
    """A source that could never give a token is refused when it is made."""
    with pytest.raises(ValueError, match="key is empty"):
        MintedToken(b"", "slurm", QUARTER)


# --- secrets stay secret


def test_no_secret_in_a_repr() -> None:
    """No repr shows a key or a token."""
    minted, fixed = MintedToken(KEY, "slurm", QUARTER), FixedToken("e30.e30.e30")
    shown = f"{minted!r} {fixed!r} {vars(type(minted))!r}"
    assert "slurm" in shown
    assert KEY.decode() not in shown
    assert minted() not in shown
    assert fixed() not in shown


def test_fingerprints() -> None:
    """Two sources have the same fingerprint only if they give equally good tokens."""
    sources: list[MintedToken | FixedToken] = [
        MintedToken(KEY, "slurm", QUARTER),
        MintedToken(KEY + b"1", "slurm", QUARTER),
        MintedToken(KEY, "1slurm", QUARTER),
        MintedToken(KEY, "slurm", QUARTER * 2),
        FixedToken("a"),
        FixedToken("b"),
    ]
    prints = [source.fingerprint for source in sources]
    assert len(set(prints)) == len(prints)
    assert MintedToken(KEY, "slurm", QUARTER).fingerprint == prints[0]
    assert FixedToken(" a\n").fingerprint == prints[4]


def test_a_fixed_token_without_its_line_break() -> None:
    """The line break that editors add to a Secret is no part of the token."""
    assert FixedToken("e30.e30.sig\n")() == "e30.e30.sig"


@pytest.mark.parametrize("text", ["", " \n", "two words", "a\r\nX-SLURM-USER-NAME: root", "é", "a\0b"])
def test_what_is_no_header(text: str) -> None:
    """What cannot be sent in a header is refused without being quoted."""
    with pytest.raises(ValueError, match=r"^the token (is empty|contains characters)") as caught:
        FixedToken(text)
    assert not text.strip() or text not in str(caught.value)
