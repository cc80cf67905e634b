"""The Token controller on a real API server: issuing, renewing, and doing nothing at rest."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import Token
from slurm_operator.api.wellknown import LABEL_TOKEN_SECRET
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.kube.models.meta import Key
from slurm_operator.objects.labels import recommended
from slurm_operator.slurm.web_token import read, signed_by
from tests.support.controllers.token_operator import KEY, KEY_NAME, Clock, User, operating
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.kube.client.config import ClientConfig

NAME = "alice-jwt-alice"


async def test_issue(config: ClientConfig, user: User) -> None:
    """A Token gets a Secret with a token that its key signed, owned by it, and says so."""
    await user.put_key()
    last_applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    token = await user.put_token(
        meta={"labels": {"team": "a"}, "annotations": {"note": "1", **last_applied}}, lifetime="1h"
    )
    async with operating(config, user.namespace):
        await user.until("Issued")
    secret = await user.secret()
    assert secret is not None
    assert (secret.type, secret.immutable, set(secret.data or ())) == ("Opaque", False, {"SLURM_JWT"})
    assert secret.metadata.labels == recommended({"team": "a", LABEL_TOKEN_SECRET: "true"})
    assert secret.metadata.annotations == {"note": "1"}
    (owner,) = secret.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("Token", token.metadata.uid, True)
    value = await user.value()
    claims = read(value)
    assert signed_by(value, KEY)
    assert (claims.user, claims.life) == ("alice", timedelta(hours=1))
    status = (await user.client.get(Token, "alice", user.namespace)).status
    assert (status.issued_at, status.expires_at) == (claims.issued_at, claims.expires_at)
    assert await user.events() == {("Normal", "CreateSucceeded", "Create")}


async def test_at_rest(config: ClientConfig, user: User) -> None:
    """At rest nothing is written, however often everything is looked at, nor after a restart."""
    await user.put_key()
    await user.put_token("alice", lifetime="1h", meta={"annotations": {"note": "1"}})
    await user.put_token("bob", refresh=False)
    async with operating(config, user.namespace) as first:
        for name in ("alice", "bob"):
            await user.until("Issued", name)
        expected = ["apply secrets", "apply tokens/status"]
        assert sorted(first.writes) == sorted(expected * 2)
        for _ in range(5):
            await first.reconcile_again("alice", "bob", namespace=user.namespace)
        assert len(first.writes) == 4
    before = [await user.secret("alice-jwt-alice"), await user.secret("bob-jwt-bob")]
    async with operating(config, user.namespace) as second:
        await eventually(second.references_wanted, "every Token was looked at")
        await second.reconcile_again("alice", "bob", namespace=user.namespace)
        assert second.writes == []
    after = [await user.secret("alice-jwt-alice"), await user.secret("bob-jwt-bob")]
    assert before == after
    assert None not in before


async def test_renewal_by_age(config: ClientConfig, user: User) -> None:
    """A token is renewed when four fifths of its life are over and not before, without an Event."""
    clock = Clock()
    await user.put_key()
    await user.put_token(lifetime="10h")
    async with operating(config, user.namespace, clock) as operator:
        await user.until("Issued")
        first = await user.value()
        clock.offset = timedelta(hours=8, minutes=-1)
        await operator.reconcile_again("alice", namespace=user.namespace)
        assert await user.value() == first
        clock.offset = timedelta(hours=8)
        await operator.reconcile_again("alice", namespace=user.namespace)
        second = await user.claims()
        assert second.issued_at is not None
        assert second.issued_at > (read(first).issued_at or clock()) + timedelta(hours=7)
        status = (await user.client.get(Token, "alice", user.namespace)).status
        assert status.expires_at == second.expires_at
        assert operator.writes.count("apply secrets") == 2
    assert await user.events() == {("Normal", "CreateSucceeded", "Create")}


async def test_renewal_by_itself(config: ClientConfig, user: User) -> None:
    """Renewal needs no event: a short-lived token is replaced before it expires."""
    await user.put_key()
    # A fifth of it is left when it is renewed: so long may this machine stand still.
    await user.put_token(lifetime="8s")
    seen: set[str] = set()

    async def another() -> bool:
        seen.add(await user.value())
        return len(seen - {""}) > 1

    async with operating(config, user.namespace):
        await eventually(another, "two tokens, one after the other")
    lives = sorted((one.issued_at, one.expires_at) for one in map(read, seen - {""}) if one.issued_at)
    (_, expires), (issued, _) = lives
    assert expires is not None
    assert issued <= expires


async def test_a_clock_that_was_set_back(config: ClientConfig, user: User) -> None:
    """A token that a wrong clock issued in the future is replaced when the clock is right again."""
    clock = Clock()
    clock.offset = timedelta(days=400)
    await user.put_key()
    await user.put_token()
    async with operating(config, user.namespace, clock) as operator:
        await user.until("Issued")
        clock.offset = timedelta(0)
        await operator.reconcile_again("alice", namespace=user.namespace)
        claims = await user.claims()
        assert claims.expires_at is not None
        assert claims.expires_at < clock() + timedelta(minutes=16)


async def test_a_key_that_comes_late(config: ClientConfig, user: User) -> None:
    """Without its key a Token waits, not as an error, and is served at once when the key appears."""
    await user.put_token()
    async with operating(config, user.namespace) as operator:
        await user.until("KeyMissing")
        assert f"spec.jwtKeyRef: Secret '{KEY_NAME}' " in await user.message()
        assert operator.controller.queue.retries(Key(user.namespace, "alice")) == 0
        await user.put_key(b"")
        await user.until("KeyInvalid")
        await user.put_key()
        await user.until("Issued")
        assert signed_by(await user.value(), KEY)
    events = await user.events()
    assert ("Warning", "KeyMissing", "Sync") in events
    assert ("Warning", "KeyInvalid", "Sync") in events


@pytest.mark.parametrize("key", [b"short", b"x" * 4096, b"-----BEGIN PUBLIC KEY-----\nabc\n-----END"])
async def test_a_rotated_key(config: ClientConfig, user: User, key: bytes) -> None:
    """A new key, of any kind, gives a new token at once, and exactly one."""
    await user.put_key()
    await user.put_token()
    async with operating(config, user.namespace) as operator:
        await user.until("Issued")
        await user.put_key(key)

        async def signed() -> bool:
            return signed_by(await user.value(), key)

        await eventually(signed, "a token of the new key")
        await operator.reconcile_again("alice", namespace=user.namespace)
        assert operator.writes.count("apply secrets") == 2
    assert ("Normal", "TokenReissued", "Patch") in await user.events()


async def test_a_lost_key(config: ClientConfig, user: User) -> None:
    """When the key goes, the token stays, and when the same key returns, it still does."""
    await user.put_key()
    await user.put_token()
    async with operating(config, user.namespace):
        await user.until("Issued")
        value = await user.value()
        await user.client.delete(Secret, KEY_NAME, user.namespace)
        await user.until("KeyMissing")
        status = (await user.client.get(Token, "alice", user.namespace)).status
        assert status.expires_at == read(value).expires_at
        await user.put_key()
        await user.until("Issued")
        assert await user.value() == value


async def test_a_key_that_cannot_be_read(config: ClientConfig, user: User) -> None:
    """A key of which nobody knows is not a missing one: the token stays, and the condition is Unknown."""
    await user.put_key()
    await user.put_token()
    async with operating(config, user.namespace):
        await user.until("Issued")
    secret = await user.secret()
    before = (await user.client.get(Token, "alice", user.namespace)).status
    async with operating(config, user.namespace, blind=True):
        await user.until("KeyUnreadable")
        assert f"Secret {user.namespace}/{KEY_NAME} " in await user.message()
        assert await user.secret() == secret
    after = (await user.client.get(Token, "alice", user.namespace)).status
    assert (after.issued_at, after.expires_at) == (before.issued_at, before.expires_at)


async def test_without_refresh(config: ClientConfig, user: User) -> None:
    """A token that is not renewed expires: a condition, no error, no write; a new Secret has another."""
    clock = Clock()
    await user.put_key()
    await user.put_token(refresh=False, lifetime="1h")
    async with operating(config, user.namespace, clock) as operator:
        await user.until("Issued")
        secret = await user.secret()
        assert secret is not None
        assert secret.immutable
        clock.offset = timedelta(hours=2)
        await operator.reconcile_again("alice", namespace=user.namespace)
        assert await user.reason() == "Expired"
        await eventually(lambda: operator.rests("alice", namespace=user.namespace), "nothing is written")
        assert await user.secret() == secret
        assert operator.controller.queue.retries(Key(user.namespace, "alice")) == 0
        await user.client.delete(Secret, NAME, user.namespace)
        await user.until("Issued")
        claims = await user.claims()
        assert claims.issued_at is not None
        assert claims.issued_at > clock() - timedelta(minutes=1)
    assert ("Warning", "Expired", "Sync") in await user.events()


async def test_many_tokens(config: ClientConfig, user: User) -> None:
    """A hundred Tokens are one watch of their Secrets and one of their key, and are written once each."""
    await user.put_key()
    names = [f"u{number}" for number in range(100)]
    for name in names:
        await user.put_token(name)
    async with operating(config, user.namespace) as operator:
        for name in names:
            await user.until("Issued", name)
        watches = [
            request
            for request in operator.requests
            if (request.verb, request.resource) == ("list", "secrets")
        ]
        assert len(watches) == 2
        assert operator.writes.count("apply secrets") == 100
        assert operator.writes.count("apply tokens/status") == 100
        assert operator.references.watched == {Key(user.namespace, KEY_NAME)}


async def test_what_is_gone_is_forgotten(config: ClientConfig, user: User) -> None:
    """The last Token of a key that goes ends the watch of the key."""
    await user.put_key()
    await user.put_token()
    async with operating(config, user.namespace) as operator:
        await user.until("Issued")
        assert operator.references.watched
        await user.client.delete(Token, "alice", user.namespace)

        async def released() -> bool:
            return not operator.references.watched

        await eventually(released, "nothing is watched any more")
        assert not operator.tokens._written
