"""JSON web tokens: how this operator, and every user it issues tokens for, authenticates to Slurm.

slurmctld verifies a token with the bytes of its `jwt.key` file, as they are: no base64, no trimmed newline,
any length. Whatever Slurm takes for a key is taken here too. Slurm signs with HMAC-SHA256 (HS256) and nothing
else, for which the standard library is enough; a JWT library would bring all of OpenSSL into the memory of
the operator, and opinions about keys that Slurm does not share.

Two clocks are involved. `exp` counts from the clock of this machine, and a token is replaced when a fifth of
its life is left, so a slurmctld that is ahead by less than that never sees an expired one. For one that is
behind, `nbf` (not valid before) lies a minute before `iat`: Slurm 24.11 and 26.05 look at neither, but they
are not the only ones who read tokens. Whole seconds, as everywhere in JWT.

Neither a key nor a token is in any error or repr of this module.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

TokenSource = Callable[[], str]
"""Gives the token for the next request; it must not block."""

ISSUER: Final = "slurm-operator"
RENEW_AT: Final = 0.8
# How far a server's clock may be behind ours before it takes a new token for one of the future.
CLOCK_SKEW: Final = timedelta(minutes=1)

_ALGORITHM: Final = "HS256"
_HEADER: Final = b'{"alg":"HS256","typ":"JWT"}'
_URL_SAFE: Final = re.compile(r"[A-Za-z0-9_-]*")
_STANDARD: Final = str.maketrans("-_", "+/")
# Any sender could fill our memory with a longer one.
_LONGEST: Final = 64 * 1024
# What a signed 64-bit count of seconds and datetime can both express; later expiries are as good as never.
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Header(msgspec.Struct):
    """What a token says of its signature."""

    alg: str = ""
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    b64: bool = True


class _Payload(msgspec.Struct, omit_defaults=True):
    """The claims on the wire; others are skipped."""

    jti: str = ""
    iss: str = ""
    iat: float | None = None
    nbf: float | None = None
    exp: float | None = None
    sun: str = ""


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """What a token says about itself; nothing here has been verified."""

    user: str
    issued_at: datetime | None
    expires_at: datetime | None
    jwt_id: str = ""

    @property
    def life(self) -> timedelta | None:
        """Return how long the token is valid in all; None when it does not say."""
        if self.issued_at is None or self.expires_at is None:
            return None
        return self.expires_at - self.issued_at


def mint(key: bytes, user: str, lifetime: timedelta, now: datetime, *, issuer: str = ISSUER) -> str:
    """Return a new token with which its bearer is that Slurm user until `now` plus `lifetime`."""
    if not key:
        raise ValueError("the JWT key is empty: put the content of Slurm's jwt.key there")
    if not user:
        raise ValueError("the user of a token must have a name")
    if lifetime <= timedelta(0):
        raise ValueError(f"the lifetime of a token must be longer than {lifetime}: it would never be valid")
    issued = int(now.timestamp())
    # Rounded up, so that the shortest lifetime still gives a token that is valid for a moment.
    life = -(-lifetime // timedelta(seconds=1))
    payload = {
        "jti": str(uuid.uuid4()),
        "iss": issuer,
        "iat": issued,
        "nbf": issued - int(CLOCK_SKEW.total_seconds()),
        "exp": issued + life,
        "sun": user,
    }
    signed = f"{_encode(_HEADER)}.{_encode(msgspec.json.encode(payload))}"
    return f"{signed}.{_encode(_signature(signed, key))}"


def read(token: str) -> TokenClaims:
    """Return what a token says about itself, unverified; raise ValueError when it is no JWT."""
    try:
        # Only parsed: whether to believe it is for `signed_by`, and in the end for slurmctld.
        _, payload, _ = _parts(token)
        claims = msgspec.json.decode(payload, type=_Payload)
    except (ValueError, RecursionError):
        raise ValueError("not a JSON web token of Slurm") from None
    return TokenClaims(claims.sun, _moment(claims.iat), _moment(claims.exp), claims.jti)


def signed_by(token: str, key: bytes) -> bool:
    """Return whether this very key signed the token; False also for what is no token at all."""
    if not key:
        return False
    try:
        header, _, signature = _parts(token)
    except (ValueError, RecursionError):
        return False
    # A token that names another way to sign, or something that must be understood and is not, is not ours.
    usual = header.alg == _ALGORITHM and header.crit is msgspec.UNSET and header.b64
    return usual and hmac.compare_digest(signature, _signature(token.rpartition(".")[0], key))


def _parts(token: str) -> tuple[_Header, bytes, bytes]:
    """Return header, payload and signature of a token; raise ValueError when it has other parts."""
    if len(token) > _LONGEST or not token.isascii():
        raise ValueError("not a token")
    header, payload, signature = (_decode(part) for part in token.split("."))
    return msgspec.json.decode(header, type=_Header), payload, signature


def _signature(signed: str, key: bytes) -> bytes:
    return hmac.new(key, signed.encode(), hashlib.sha256).digest()


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(part: str) -> bytes:
    """Return the content of a part; only the alphabet of JWT is taken, and no padding."""
    if not _URL_SAFE.fullmatch(part):
        raise ValueError("not a part of a token")
    return binascii.a2b_base64(part.translate(_STANDARD) + "=" * (-len(part) % 4))


def renew_at(claims: TokenClaims) -> datetime:
    """Return when four fifths of the token's life are over.

    One that does not say when it was issued or expires is due at once: Slurm refuses tokens without expiry.
    """
    if claims.issued_at is None or claims.expires_at is None:
        return _EPOCH
    return claims.issued_at + RENEW_AT * (claims.expires_at - claims.issued_at)


class MintedToken:
    """A source of tokens that it signs itself, each renewed when four fifths of its life are over."""

    def __init__(
        self, key: bytes, user: str, lifetime: timedelta, wall: Callable[[], float] = time.time
    ) -> None:
        self._key = key
        self._user = user
        self._lifetime = lifetime
        self._wall = wall
        self._token = ""
        self._from = self._until = _EPOCH
        self._renew()

    def __call__(self) -> str:
        """Return a token that is good for at least a fifth of the lifetime."""
        # Before it was issued: the clock was set back, and a slurmctld with the right time may refuse it.
        if not self._from <= datetime.fromtimestamp(self._wall(), UTC) < self._until:
            self._renew()
        return self._token

    @property
    def fingerprint(self) -> str:
        """Return a digest that differs between any two keys, users or lifetimes and reveals none of them."""
        return _digest(self._key, self._user.encode(), str(self._lifetime).encode())

    def __repr__(self) -> str:
        return f"MintedToken(user={self._user!r}, lifetime={str(self._lifetime)!r})"

    def _renew(self) -> None:
        now = datetime.fromtimestamp(self._wall(), UTC)
        self._token = mint(self._key, self._user, self._lifetime, now)
        claims = read(self._token)
        self._from, self._until = claims.issued_at or now, renew_at(claims)


class FixedToken:
    """A source that always gives the same token, which was issued elsewhere."""

    def __init__(self, token: str) -> None:
        token = token.strip()
        if not token:
            raise ValueError("the token is empty")
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise ValueError("the token contains characters that no token has: spaces, line breaks or others")
        self._token = token

    def __call__(self) -> str:
        """Return the token."""
        return self._token

    @property
    def fingerprint(self) -> str:
        """Return a digest that differs between any two tokens and reveals neither."""
        return _digest(self._token.encode())

    def __repr__(self) -> str:
        return "FixedToken(…)"


def _moment(seconds: float | None) -> datetime | None:
    """Return a claim as a moment; what lies beyond the calendar becomes the end of it."""
    if seconds is None:
        return None
    if seconds != seconds or seconds <= 0:  # noqa: PLR0124 - NaN is the one number that differs from itself
        return _EPOCH
    return min(_LATEST, _EPOCH + timedelta(seconds=min(seconds, (_LATEST - _EPOCH).total_seconds())))


def _digest(*parts: bytes) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()
