"""Asks the API server who a bearer token belongs to and whether that user may read a path.

This is how `--metrics-secure` guards `/metrics`: a TokenReview names the user, a SubjectAccessReview answers
whether the user may `get` the non-resource URL. Answers are kept for a short while under a hash of the token,
so that a scrape every few seconds costs no round trip, a revoked token stops working soon, and a client that
insists on a bad token costs one review in ten seconds. A review that failed is no answer: nothing is allowed
and nothing is remembered.

Anybody who reaches the port can invent tokens, each worth a review. Only a few are asked for at a time, so
that they wait for each other and not in front of the reconcilers, whose requests take the same way.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client

_ALLOW_SECONDS = 60.0
_DENY_SECONDS = 10.0
_CACHE_SIZE = 1024
_REVIEW_SECONDS = 5.0
# Well below the requests a client sends at the same time.
_REVIEWS_AT_ONCE = 4

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path, not a password
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class AccessDecision(Enum):
    """What to answer to a request."""

    ALLOWED = 200
    UNAUTHENTICATED = 401
    FORBIDDEN = 403


class VerdictCache:
    """Remembers verdicts for a while, the least recently used going first; `now` comes from the caller."""

    def __init__(self, size: int = _CACHE_SIZE) -> None:
        self._size = size
        self._entries: OrderedDict[bytes, tuple[float, AccessDecision]] = OrderedDict()

    def get(self, key: bytes, now: float) -> AccessDecision | None:
        """Return what is remembered, unless it is too old."""
        entry = self._entries.get(key)
        if entry is None or entry[0] <= now:
            self._entries.pop(key, None)
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, key: bytes, verdict: AccessDecision, now: float) -> None:
        """Remember a verdict: a good one for longer than a bad one."""
        seconds = _ALLOW_SECONDS if verdict is AccessDecision.ALLOWED else _DENY_SECONDS
        self._entries[key] = (now + seconds, verdict)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class Authorizer:
    """Decides whether the bearer of a token may `get` a path."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cache = VerdictCache()
        self._slots = asyncio.Semaphore(_REVIEWS_AT_ONCE)

    async def review(self, authorization: str, path: str, now: float) -> AccessDecision:
        """Check an Authorization header; raises KubeError when the API server cannot be asked."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return AccessDecision.UNAUTHENTICATED
        key = hashlib.sha256(f"{path}\0{token}".encode()).digest()
        verdict = self._cache.get(key, now)
        if verdict is not None:
            return verdict
        async with self._slots:
            # Another request with the same token and path may have stored the verdict while this one waited.
            verdict = self._cache.get(key, now)
            if verdict is None:
                verdict = await self._ask(token, path)
                self._cache.put(key, verdict, now)
        return verdict

    async def _ask(self, token: str, path: str) -> AccessDecision:
        answer = await self._post(_TOKEN_REVIEWS, token_review(token))
        status = msgspec.json.decode(answer, type=_TokenReview).status
        if not status.authenticated:
            return AccessDecision.UNAUTHENTICATED
        answer = await self._post(_ACCESS_REVIEWS, access_review(status.user, path))
        allowed = msgspec.json.decode(answer, type=_AccessReview).status.allowed
        return AccessDecision.ALLOWED if allowed else AccessDecision.FORBIDDEN

    async def _post(self, path: str, body: dict[str, Any]) -> bytes:
        # A review changes nothing, so a replica that does not lead may ask as well.
        return await self._client.raw("POST", path, body=body, fenced=False, timeout=_REVIEW_SECONDS)


def token_review(token: str) -> dict[str, Any]:
    """Return the question whose token this is."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }


def access_review(user: _User, path: str) -> dict[str, Any]:
    """Return the question whether a user may get a path that is no resource."""
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        },
    }
