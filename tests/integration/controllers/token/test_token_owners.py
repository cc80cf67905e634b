"""Whose Secret it is: those of others, of another Token, of Slinky slurm-operator, and of nobody any more."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import Token
from slurm_operator.api.wellknown import LABEL_TOKEN_SECRET
from slurm_operator.kube.cache.referenced_objects import Referrer
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.kube.models.meta import Key
from slurm_operator.slurm.web_token import mint, signed_by
from tests.support.charts.chart_accounts import operator_kubeconfig
from tests.support.controllers.token_operator import KEY, KEY_NAME, Clock, User, operating
from tests.support.processes import await_kinds, eventually, install_crds

if TYPE_CHECKING:
    from kubebox import Box
    from kubebox.pytest_plugin import BoxFactory
    from slurm_operator.kube.client.config import ClientConfig

NAME = "alice-jwt-alice"


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


async def test_a_secret_of_somebody_else(config: ClientConfig, user: User) -> None:
    """A Secret that is not ours is left as it is; the Token says so, and is served when it is gone."""
    await user.put_key()
    foreign = await user.client.create(
        Secret, {"metadata": user.meta(NAME), "data": {"SLURM_JWT": encoded("theirs")}}
    )
    await user.put_token()
    async with operating(config, user.namespace) as operator:
        await user.until("SecretConflict")
        assert f"Secret {NAME!r} " in await user.message()
        await operator.reconcile_again("alice", namespace=user.namespace)
        assert await user.secret() == foreign
        assert operator.writes == ["apply tokens/status"]
        await user.client.delete(Secret, NAME, user.namespace)
        await user.until("Issued")
        assert signed_by(await user.value(), KEY)
        assert {key.name for key in operator.references.watched} == {KEY_NAME}
    assert ("Warning", "SecretConflict", "Sync") in await user.events()


async def test_a_secret_that_comes_in_between(config: ClientConfig, kube_box: Box, user: User) -> None:
    """A Secret that somebody makes between the look and the write is not overwritten."""
    await user.put_key()
    await user.put_token()
    made: list[str] = []

    def make() -> None:
        if not made:
            made.append(NAME)
            kube_box.kubectl(
                *("create", "secret", "generic", NAME, f"--namespace={user.namespace}"),
                *("--from-literal=SLURM_JWT=theirs", "--from-literal=more=1"),
            )

    async with operating(config, user.namespace, fence=make):
        await user.until("SecretConflict")
    secret = await user.secret()
    assert secret is not None
    assert secret.data == {"SLURM_JWT": b"theirs", "more": b"1"}
    assert not secret.metadata.owner_references
    assert not secret.metadata.labels


async def test_two_tokens_one_secret(config: ClientConfig, user: User) -> None:
    """The older of two Tokens gets the Secret they both want; the other one gets it after it."""
    await user.put_key()
    shared = {"name": "shared", "key": "TOKEN"}
    await user.put_token("adam", secretRef=shared)
    await user.put_token("zoe", secretRef=shared)
    async with operating(config, user.namespace) as operator:
        await user.until("Issued", "adam")
        await user.until("SecretConflict", "zoe")
        assert "Token 'adam'" in await user.message("zoe")
        assert (await user.claims("shared", "TOKEN")).user == "adam"
        await user.client.delete(Token, "adam", user.namespace)
        adam = Referrer("token", Key(user.namespace, "adam"))
        await eventually(lambda: not operator.references.wanted(adam), "the operator knows")
        # What the garbage collector does, which this API server has not.
        await user.client.delete(Secret, "shared", user.namespace)
        await user.until("Issued", "zoe")
        assert (await user.claims("shared", "TOKEN")).user == "zoe"


async def made_by_go(user: User, key: Secret, value: str, *, immutable: bool) -> Secret:
    """Create the Secret as Slinky slurm-operator does: with an update, owned by the Secret with the key."""
    owner = {
        "apiVersion": "v1",
        "kind": "Secret",
        "name": KEY_NAME,
        "uid": key.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    body = {
        "metadata": {**user.meta(NAME), "labels": {"old": "1"}, "ownerReferences": [owner]},
        "type": "Opaque",
        "immutable": immutable,
        "data": {"SLURM_JWT": encoded(value)},
    }
    return await user.client.create(Secret, body, field_manager="manager")


@pytest.mark.parametrize("refresh", [True, False])
async def test_a_secret_of_the_go_operator(config: ClientConfig, user: User, refresh: bool) -> None:  # noqa: FBT001 - pytest's
    """A Secret of Slinky is adopted with its token: the Token owns it instead of the key."""
    key = await user.put_key()
    value = mint(KEY, "alice", (await user.put_token(refresh=refresh)).lifetime(), Clock()())
    former = await made_by_go(user, key, value, immutable=not refresh)
    token = await user.client.get(Token, "alice", user.namespace)
    async with operating(config, user.namespace) as operator:
        await user.until("Issued")
        secret = await user.secret()
        assert secret is not None
        assert secret.metadata.uid == former.metadata.uid
        assert await user.value() == value
        assert [owner.uid for owner in secret.metadata.owner_references] == [token.metadata.uid]
        assert secret.metadata.labels[LABEL_TOKEN_SECRET] == "true"
        # What Slinky slurm-operator alone had set goes where the server lets it.
        assert ("old" in secret.metadata.labels) is not refresh
        await eventually(lambda: operator.rests("alice", namespace=user.namespace), "nothing is written")
    async with operating(config, user.namespace) as again:
        await eventually(again.references_wanted, "the Token was looked at")
        await again.reconcile_again("alice", namespace=user.namespace)
        assert again.writes == []


async def test_a_secret_of_the_go_operator_that_is_being_deleted(config: ClientConfig, user: User) -> None:
    """A Secret that has no label of ours yet and is about to go is waited for, and a new one follows."""
    key = await user.put_key()
    token = await user.put_token()
    await made_by_go(user, key, mint(KEY, "alice", token.lifetime(), Clock()()), immutable=False)
    await edit(user, finalizers=["example.com/wait"])
    await user.client.delete(Secret, NAME, user.namespace)
    async with operating(config, user.namespace):
        await user.until("SecretTerminating")
        await edit(user, finalizers=None)
        await user.until("Issued")


async def test_a_locked_secret_of_the_go_operator_is_replaced_when_deleted(
    config: ClientConfig, user: User
) -> None:
    """Who deletes a useless immutable Secret, as the condition advises, gets a new one, whoever made it."""
    key = await user.put_key()
    token = await user.put_token(refresh=False)
    await made_by_go(user, key, mint(b"other", "alice", token.lifetime(), Clock()()), immutable=True)
    async with operating(config, user.namespace):
        await user.until("KeyRotated")
        assert f"delete Secret {NAME!r}" in await user.message()
        await user.client.delete(Secret, NAME, user.namespace)
        await user.until("Issued")


async def edit(user: User, **metadata: Any) -> None:
    """Change the metadata of the Secret, as somebody else."""
    await user.client.patch(
        Secret, NAME, user.namespace, {"metadata": metadata}, type=PatchType.MERGE, field_manager="them"
    )


async def test_after_the_take_over_it_is_renewed(config: ClientConfig, user: User) -> None:
    """A Secret that was adopted is renewed like any other."""
    key = await user.put_key()
    token = await user.put_token()
    await made_by_go(user, key, mint(KEY, "alice", token.lifetime(), Clock()()), immutable=False)
    async with operating(config, user.namespace):
        await user.until("Issued")
        await user.put_key(b"another")

        async def renewed() -> bool:
            return signed_by(await user.value(), b"another")

        await eventually(renewed, "a token of the new key")


async def test_an_orphan_is_taken_back(config: ClientConfig, user: User) -> None:
    """After a Token was deleted without its Secret, a new Token of that name takes both Secret and token."""
    await user.put_key()
    await user.put_token()
    async with operating(config, user.namespace):
        await user.until("Issued")
    value = await user.value()
    await user.client.delete(Token, "alice", user.namespace)
    orphaned = {"metadata": {"ownerReferences": None}}
    await user.client.patch(Secret, NAME, user.namespace, orphaned, type=PatchType.MERGE)
    token = await user.put_token()
    async with operating(config, user.namespace):
        await user.until("Issued")
        secret = await user.secret()
        assert secret is not None
        assert [owner.uid for owner in secret.metadata.owner_references] == [token.metadata.uid]
        assert await user.value() == value


async def test_a_write_that_is_refused(config: ClientConfig, kube_box: Box, user: User) -> None:
    """A Secret that the cluster's policy refuses is a condition and an Event, and is tried again."""
    await user.put_key()
    policy = refusing(user.namespace)
    kube_box.kubectl("apply", "-f", "-", stdin=json.dumps(policy))
    try:

        async def refused() -> bool:
            probe = {"metadata": user.meta("probe-jwt")}
            try:
                await user.client.create(Secret, probe, dry_run=True)
            except Exception:  # noqa: BLE001 - whichever way it says no
                return True
            return False

        await eventually(refused, "the policy works")
        await user.put_token()
        async with operating(config, user.namespace):
            await user.until("SecretWriteFailed")
            assert "'alice-jwt-alice'" in await user.message()
            kube_box.kubectl("delete", "-f", "-", stdin=json.dumps(policy))
            await user.until("Issued")
        assert ("Warning", "CreateFailed", "Create") in await user.events()
    finally:
        kube_box.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=json.dumps(policy))


def refusing(namespace: str) -> dict[str, Any]:
    """Return a policy by which Secrets for tokens are refused in one namespace."""
    name = f"no-tokens-{namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
    match = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    allowed = {"expression": "!object.metadata.name.contains('-jwt')", "message": "no tokens here"}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [allowed],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": match},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [policy, binding]}


async def test_a_deleted_token_takes_its_secret_along(kube_box_factory: BoxFactory) -> None:
    """When a Token is deleted, Kubernetes removes the credential; the Secret with the key stays."""
    box = kube_box_factory(controller_manager=True)
    install_crds(box)
    await_kinds(box)
    # The garbage collector learns of new kinds when it starts, and then only every half minute.
    box.stop("kube-controller-manager", kill=True)
    box.start("kube-controller-manager")
    config = load_config(str(operator_kubeconfig(box)))
    async with Client(load_config(str(box.kubeconfig))) as client, operating(config, "default"):
        user = User(client, "default")
        await user.put_key()
        await user.put_token()
        await user.until("Issued")
        await client.delete(Token, "alice", "default")

        async def gone() -> bool:
            return await user.secret() is None

        await eventually(gone, "the Secret is gone")
        assert await user.secret(KEY_NAME) is not None


async def test_nothing_is_issued_for_a_token_that_is_gone(config: ClientConfig, user: User) -> None:
    """While the cache still has a deleted Token, its Secret is not created again."""
    await user.put_key()
    async with operating(config, user.namespace) as operator:
        gone = await user.put_token()
        await user.until("Issued")
        await user.client.delete(Token, "alice", user.namespace)
        store = operator.manager.informer(Token).store
        await eventually(lambda: gone.key not in store, "the deletion arrives")
        await user.client.delete(Secret, NAME, user.namespace)
        before = [*operator.writes]
        store.put(gone)
        assert await operator.tokens.reconcile(gone.key) is None
        assert operator.writes == before
        assert await user.secret() is None


async def test_no_token_is_told(config: ClientConfig, user: User, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither logs nor Events nor conditions contain a token or a key, whatever happens."""
    secret_key = b"a-key-that-nobody-may-see-0123456"
    await user.put_key(secret_key)
    await user.put_token()
    values: set[str] = set()
    async with operating(config, user.namespace):
        await user.until("Issued")
        values.add(await user.value())
        await user.put_token(lifetime="0s")
        await user.until("InvalidSpec")
        await user.put_token(lifetime="1h")
        await user.until("Issued")
        values.add(await user.value())
        await user.client.delete(Secret, KEY_NAME, user.namespace)
        await user.until("KeyMissing")
    path = f"/apis/events.k8s.io/v1/namespaces/{user.namespace}/events"
    events = await user.client.raw("GET", path)
    token = await user.client.raw("GET", Token.RESOURCE.path(user.namespace, "alice"))
    captured = capfd.readouterr()
    told = captured.out + captured.err + events.decode() + token.decode()
    assert "alice" in told
    assert len(values) == 2
    for hidden in (*values, secret_key.decode(), base64.b64encode(secret_key).decode()):
        assert hidden not in told
        assert hidden.rpartition(".")[2] not in told
