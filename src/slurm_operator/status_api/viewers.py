"""Who asks, and what they may see: the answers of the API server, kept for a short while.

A client sends a token in a header of its own. A TokenReview for the audience `slurm-operator` names its user;
a token for another audience, such as one for the API server itself, is refused. What the user may see is what
a SubjectAccessReview says about `list nodesets`: in all namespaces, or else in each namespace. It is the user
of the token whose permissions count, by default the ServiceAccount `slurm-operator-viewer`; being allowed to
create tokens of that account is the permission of a person.

A review that failed is no answer: nothing is shown and nothing is remembered. Any client that reaches the
port can invent tokens, so only a few reviews are under way at a time, and memory is bounded.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from slurm_operator.api import NodeSet
from slurm_operator.status_rows import AUDIENCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.kube.client.client import Client

_ALLOW_SECONDS: Final = 30.0
_DENY_SECONDS: Final = 10.0
_MOST_REMEMBERED: Final = 4096
_LONGEST_TOKEN: Final = 16_384
_REVIEW_SECONDS: Final = 5.0
# Well below the requests that a client of the API server sends at the same time.
_REVIEWS_AT_ONCE: Final = 4
_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path, not a password
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

V = TypeVar("V")


class Viewer(msgspec.Struct, frozen=True):
    """The user of a token."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


class _ReviewedToken(msgspec.Struct):
    authenticated: bool = False
    user: Viewer = Viewer()
    audiences: tuple[str, ...] = ()


class _TokenReply(msgspec.Struct):
    status: _ReviewedToken = msgspec.field(default_factory=_ReviewedToken)


class _ReviewedAccess(msgspec.Struct):
    allowed: bool = False


class _AccessReply(msgspec.Struct):
    status: _ReviewedAccess = msgspec.field(default_factory=_ReviewedAccess)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a user may see: everything, or some namespaces."""

    everything: bool
    namespaces: frozenset[str] = frozenset()

    def __contains__(self, namespace: object) -> bool:
        return self.everything or namespace in self.namespaces

    @property
    def empty(self) -> bool:
        """Return whether nothing may be seen."""
        return not self.everything and not self.namespaces


class _Remembered(Generic[V]):
    """Values that hold for a while, the least recently used going first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[float, V]] = OrderedDict()

    def get(self, key: bytes, now: float) -> V | None:
        """Return what is remembered, unless it is too old."""
        entry = self._entries.get(key)
        if entry is None or entry[0] <= now:
            self._entries.pop(key, None)
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, key: bytes, value: V, until: float) -> None:
        """Remember a value."""
        self._entries[key] = (until, value)
        self._entries.move_to_end(key)
        while len(self._entries) > _MOST_REMEMBERED:
            self._entries.popitem(last=False)


class Viewers:
    """Asks the API server about the users of tokens."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._users: _Remembered[Viewer] = _Remembered()
        self._strangers: _Remembered[bool] = _Remembered()
        self._access: _Remembered[bool] = _Remembered()
        # Apart from each other: invented tokens must not hold up those whose users are known.
        self._token_slots = asyncio.Semaphore(_REVIEWS_AT_ONCE)
        self._access_slots = asyncio.Semaphore(_REVIEWS_AT_ONCE)

    async def identify(self, token: str) -> Viewer | None:
        """Return the user of a token; None if it is not one for this API. Raises KubeError."""
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable():
            return None
        key = hashlib.sha256(token.encode()).digest()
        if (user := self._users.get(key, _now())) is not None:
            return user
        async with self._token_slots:
            # Another request with this token may have been answered while this one waited.
            now = _now()
            user = self._users.get(key, now)
            if user is None and not self._strangers.get(key, now):
                user = read_token_reply(await self._post(_TOKEN_REVIEWS, token_question(token)))
                if user is None:
                    self._strangers.put(key, value=True, until=now + _DENY_SECONDS)
                else:
                    self._users.put(key, user, now + _ALLOW_SECONDS)
        return user

    async def scope(self, user: Viewer, namespaces: Iterable[str]) -> Scope:
        """Return which of some namespaces a user may see. Raises KubeError."""
        if await self._may_list(user, ""):
            return Scope(everything=True)
        asked = sorted(namespaces)
        allowed = await asyncio.gather(*(self._may_list(user, one) for one in asked))
        return Scope(
            everything=False,
            namespaces=frozenset(name for name, may in zip(asked, allowed, strict=True) if may),
        )

    async def _may_list(self, user: Viewer, namespace: str) -> bool:
        key = hashlib.sha256(msgspec.json.encode((user, namespace))).digest()
        if (allowed := self._access.get(key, _now())) is not None:
            return allowed
        async with self._access_slots:
            now = _now()
            allowed = self._access.get(key, now)
            if allowed is None:
                reply = await self._post(_ACCESS_REVIEWS, access_question(user, namespace))
                allowed = msgspec.json.decode(reply, type=_AccessReply).status.allowed
                self._access.put(key, allowed, now + (_ALLOW_SECONDS if allowed else _DENY_SECONDS))
        return allowed

    async def _post(self, path: str, body: dict[str, Any]) -> bytes:
        # A review changes nothing, so it needs no lease.
        return await self._client.raw("POST", path, body=body, fenced=False, timeout=_REVIEW_SECONDS)


def token_question(token: str) -> dict[str, Any]:
    """Return the question whose token this is, for this API alone."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [AUDIENCE]},
    }


def read_token_reply(reply: bytes) -> Viewer | None:
    """Return the user of a reviewed token; None unless the token is meant for this API."""
    status = msgspec.json.decode(reply, type=_TokenReply).status
    # An authenticator that knows nothing of audiences accepts every token and returns none.
    if not status.authenticated or AUDIENCE not in status.audiences or not status.user.username:
        return None
    return status.user


def access_question(user: Viewer, namespace: str) -> dict[str, Any]:
    """Return the question whether a user may list NodeSets in a namespace; an empty one is all of them."""
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": user.extra,
            "resourceAttributes": {
                "group": NodeSet.RESOURCE.group,
                "resource": NodeSet.RESOURCE.plural,
                "verb": "list",
                "namespace": namespace,
            },
        },
    }


def _now() -> float:
    return asyncio.get_running_loop().time()
