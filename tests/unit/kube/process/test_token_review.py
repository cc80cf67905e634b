from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.process.token_review import (
    AccessDecision,
    Authorizer,
    VerdictCache,
    _User,
    access_review,
    token_review,
)


class SlowReviews:
    """An API server that answers reviews only when told to, and everything else at once."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.now = self.most = 0
        self.four = asyncio.Event()
        self.answer = asyncio.Event()
        self.app = web.Application()
        self.app.add_routes([web.post("/{path:.+}", self._review), web.get("/{path:.+}", self._other)])

    async def _review(self, request: web.Request) -> web.Response:
        self.tokens.append((await request.json())["spec"]["token"])
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == 4:
            self.four.set()
        await self.answer.wait()
        self.now -= 1
        return web.json_response({"status": {"authenticated": False}}, status=201)

    async def _other(self, _request: web.Request) -> web.Response:
        return web.Response(text="here")


@pytest.mark.parametrize(
    ("verdict", "kept_until"),
    [(AccessDecision.ALLOWED, 60), (AccessDecision.FORBIDDEN, 10), (AccessDecision.UNAUTHENTICATED, 10)],
)
def test_verdicts_age(verdict: AccessDecision, kept_until: float) -> None:
    """A good verdict is trusted for a minute, a bad one for ten seconds."""
    cache = VerdictCache()
    cache.put(b"k", verdict, now=0)
    assert cache.get(b"k", now=kept_until - 0.001) is verdict
    assert cache.get(b"k", now=kept_until) is None
    assert len(cache) == 0


def test_the_cache_is_bounded() -> None:
    """A flood of tokens forgets the least recently used ones, not the one in use."""
    cache = VerdictCache(size=3)
    for key in (b"a", b"b", b"c"):
        cache.put(key, AccessDecision.FORBIDDEN, now=0)
    assert cache.get(b"a", now=1) is AccessDecision.FORBIDDEN
    cache.put(b"d", AccessDecision.FORBIDDEN, now=1)
    assert [cache.get(key, now=1) is not None for key in (b"a", b"b", b"c", b"d")] == [
        True,
        False,
        True,
        True,
    ]


def test_reviews_are_the_apis() -> None:
    """The questions carry the token, and the user with the path and the verb."""
    assert token_review("t") == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "t"},
    }
    review = access_review(_User("u", "1", ["g"], {"x": ["y"]}), "/metrics")
    assert review["spec"] == {
        "user": "u",
        "uid": "1",
        "groups": ["g"],
        "extra": {"x": ["y"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_invented_tokens_leave_the_client_to_the_reconcilers() -> None:
    """However many unknown tokens come at once, four reviews are asked for, and other requests pass."""
    server = SlowReviews()
    runner = web.AppRunner(server.app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        config = ClientConfig(server=f"http://127.0.0.1:{runner.addresses[0][1]}")
        async with asyncio.timeout(30), Client(config, max_in_flight=5) as client:
            authorizer = Authorizer(client)
            reviews = [
                asyncio.create_task(authorizer.review(f"Bearer {number % 20}", "/metrics", 0.0))
                for number in range(60)
            ]
            await server.four.wait()
            assert await client.raw("GET", "/api/v1/anything") == b"here"
            assert server.now == 4
            server.answer.set()
            assert set(await asyncio.gather(*reviews)) == {AccessDecision.UNAUTHENTICATED}
    finally:
        await runner.cleanup()
    assert server.most == 4
    assert sorted(server.tokens, key=int) == [str(number) for number in range(20)]
