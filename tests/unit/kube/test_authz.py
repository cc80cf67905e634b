from __future__ import annotations

import pytest

from slurm_operator.kube.authz import Verdict, VerdictCache, _User, access_review, token_review


@pytest.mark.parametrize(
    ("verdict", "kept_until"), [(Verdict.ALLOWED, 60), (Verdict.FORBIDDEN, 10), (Verdict.UNAUTHENTICATED, 10)]
)
def test_verdicts_age(verdict: Verdict, kept_until: float) -> None:
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
        cache.put(key, Verdict.FORBIDDEN, now=0)
    assert cache.get(b"a", now=1) is Verdict.FORBIDDEN
    cache.put(b"d", Verdict.FORBIDDEN, now=1)
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
