"""What a user changes, in the Token or in its Secret, and what becomes of it."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api.wellknown import LABEL_TOKEN_SECRET
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.objects.labels import recommended
from slurm_operator.slurm.web_token import signed_by
from tests.support.controllers.token_operator import KEY, KEY_NAME, User, operating
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.kube.client.config import ClientConfig

NAME = "alice-jwt-alice"


async def test_refresh_off_and_on(config: ClientConfig, user: User) -> None:
    """Turning refresh off locks the token of the moment; turning it on replaces the locked Secret."""
    await user.put_key()
    await user.put_token()
    async with operating(config, user.namespace):
        await user.until("Issued")
        value = await user.value()
        await user.put_token(refresh=False)

        async def locked() -> bool:
            secret = await user.secret()
            return secret is not None and secret.immutable

        await eventually(locked, "the Secret is immutable")
        assert await user.value() == value
        await user.put_token(refresh=True)

        async def unlocked() -> bool:
            secret = await user.secret()
            return secret is not None and not secret.immutable

        await eventually(unlocked, "the Secret can be changed")
        await user.until("Issued")
        assert await user.value() != value


async def test_a_deleted_secret_returns(config: ClientConfig, user: User) -> None:
    """A Secret that a user deletes is there again, with a new token."""
    await user.put_key()
    await user.put_token()
    async with operating(config, user.namespace):
        await user.until("Issued")
        value = await user.value()
        await user.client.delete(Secret, NAME, user.namespace)

        async def back() -> bool:
            return bool(await user.value())

        await eventually(back, "the Secret is there again")
        assert await user.value() != value


@pytest.mark.parametrize(
    ("patch", "same"),
    [
        ({"data": {"SLURM_JWT": base64.b64encode(b"edited").decode()}}, False),
        ({"data": {"SLURM_JWT": None}}, False),
        ({"metadata": {"labels": {LABEL_TOKEN_SECRET: None}}}, True),
        ({"metadata": {"labels": {"team": "z"}}}, True),
        ({"metadata": {"ownerReferences": None}}, True),
    ],
)
async def test_an_edited_secret(
    config: ClientConfig,
    user: User,
    patch: dict[str, object],
    same: bool,  # noqa: FBT001 - a row of the table
) -> None:
    """What a user changes in the Secret is put right; a token that was not touched stays."""
    await user.put_key()
    token = await user.put_token(meta={"labels": {"team": "a"}})
    async with operating(config, user.namespace) as operator:
        await user.until("Issued")
        value = await user.value()
        await user.client.patch(Secret, NAME, user.namespace, patch, type=PatchType.MERGE)

        async def right() -> bool:
            secret = await user.secret()
            return (
                secret is not None
                and signed_by(await user.value(), KEY)
                and secret.metadata.labels == recommended({"team": "a", LABEL_TOKEN_SECRET: "true"})
                and [owner.uid for owner in secret.metadata.owner_references] == [token.metadata.uid]
            )

        await eventually(right, "the Secret is as it should be")
        assert (await user.value() == value) is same
        await eventually(lambda: operator.rests("alice", namespace=user.namespace), "nothing is written")


async def test_labels_of_others_stay(config: ClientConfig, user: User) -> None:
    """A label that somebody adds to the Secret stays and costs no write; one that the Token loses goes."""
    await user.put_key()
    await user.put_token(meta={"labels": {"team": "a", "old": "1"}})
    async with operating(config, user.namespace) as operator:
        await user.until("Issued")
        added = {"metadata": {"labels": {"theirs": "1"}}}
        await user.client.patch(
            Secret, NAME, user.namespace, added, type=PatchType.MERGE, field_manager="them"
        )
        await user.put_token(meta={"labels": {"team": "a"}})

        async def right() -> bool:
            secret = await user.secret()
            wanted = {"team": "a", "theirs": "1", LABEL_TOKEN_SECRET: "true"}
            return secret is not None and secret.metadata.labels == recommended(wanted)

        await eventually(right, "the Token's former label goes, the other stays")
        await eventually(lambda: operator.rests("alice", namespace=user.namespace), "nothing is written")


@pytest.mark.parametrize(
    ("spec", "name", "key"),
    [
        ({"username": "bob"}, "alice-jwt-bob", "SLURM_JWT"),
        ({"secretRef": {"name": "elsewhere", "key": "TOKEN"}}, "elsewhere", "TOKEN"),
    ],
)
async def test_another_secret(
    config: ClientConfig, user: User, spec: dict[str, Any], name: str, key: str
) -> None:
    """A Token that moves to another Secret leaves no credential behind, and touches nothing of others."""
    await user.put_key()
    await user.put_token()
    async with operating(config, user.namespace):
        await user.until("Issued")
        await user.put_token(**spec)

        async def moved() -> bool:
            return bool(await user.value(name, key)) and await user.secret() is None

        await eventually(moved, "the token is in the new Secret and the old one is gone")
        assert (await user.claims(name, key)).user == spec.get("username", "alice")
        remaining = await user.client.list(Secret, user.namespace)
        assert {secret.metadata.name for secret in remaining.items} == {name, KEY_NAME}
    assert ("Normal", "DeleteSucceeded", "Delete") in await user.events()


async def test_another_key_in_the_secret(config: ClientConfig, user: User) -> None:
    """A Token that moves to another key of its Secret leaves nothing under the former one."""
    await user.put_key()
    await user.put_token(secretRef={"name": "mine", "key": "OLD"})
    async with operating(config, user.namespace):
        await user.until("Issued")
        await user.put_token(secretRef={"name": "mine", "key": "NEW"})

        async def moved() -> bool:
            secret = await user.secret("mine")
            return secret is not None and set(secret.data or ()) == {"NEW"}

        await eventually(moved, "only the new key is there")


async def test_another_lifetime(config: ClientConfig, user: User) -> None:
    """A new lifetime gives a new token at once; one beyond all bounds is cut to the longest there is."""
    await user.put_key()
    await user.put_token(lifetime="1h")
    async with operating(config, user.namespace) as operator:
        await user.until("Issued")
        await user.put_token(lifetime="2540400h")

        async def longer() -> bool:
            return (await user.claims()).life == timedelta(seconds=2**31 - 2)

        await eventually(longer, "the token lives as long as tokens can")
        await eventually(lambda: operator.rests("alice", namespace=user.namespace), "nothing is written")


async def test_an_impossible_spec(config: ClientConfig, user: User) -> None:
    """A spec that cannot work is a condition that names the field, and is looked at again when it changes."""
    await user.put_key()
    await user.put_token(lifetime="0s")
    async with operating(config, user.namespace) as operator:
        await user.until("InvalidSpec")
        assert (await user.message()).startswith("spec.lifetime: ")
        assert not operator.references.watched
        assert await user.secret() is None
        await user.put_token(lifetime="5m")
        await user.until("Issued")
