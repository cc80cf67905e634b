"""The Secret of a Token: what is in it, and whose it is."""

from __future__ import annotations

import msgspec
import pytest

from slurm_operator.api import Token
from slurm_operator.api.reasons import Reason
from slurm_operator.api.wellknown import LABEL_TOKEN_SECRET
from slurm_operator.controllers.token.token_plan import CannotIssue, Keep, Restore, older_rival
from slurm_operator.controllers.token.token_secret import desired, former_owners
from slurm_operator.objects.labels import recommended
from slurm_operator.slurm.web_token import signed_by
from tests.fixtures.golden import CASES
from tests.support.controllers.token_cases import (
    KEY,
    a_key,
    a_token,
    cannot_issue,
    decided,
    issued,
    made_by_go,
    secret,
    written,
)

# --- whose Secret it is


def test_a_secret_of_somebody_else() -> None:
    """A Secret that we did not make is never written, whatever is in it, and nothing of it is told."""
    token = a_token()
    mine = secret(
        {"metadata": {"name": token.secret_name, "namespace": "slurm", "uid": "u"}}, {"SLURM_JWT": b"x"}
    )
    helm = msgspec.structs.replace(
        mine, metadata=msgspec.structs.replace(mine.metadata, labels={"app.kubernetes.io/managed-by": "Helm"})
    )
    for live in (mine, helm):
        decision = decided(token, live)
        assert cannot_issue(decision) is Reason.SECRET_CONFLICT
        assert isinstance(decision, CannotIssue)
        assert decision.claims is None
        assert "no owner" in decision.message


def test_a_secret_of_another_controller() -> None:
    """Neither our label nor a good token makes a Secret ours while something else controls it."""
    token = a_token()
    for owner in (
        {"apiVersion": "v1", "kind": "Secret", "name": "another-key", "uid": "uid-x", "controller": True},
        {
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": "Token",
            "name": "alice",
            "uid": "old",
            "controller": True,
        },
    ):
        decision = decided(token, written(token, issued(), ownerReferences=[owner]))
        assert cannot_issue(decision) is Reason.SECRET_CONFLICT
        assert isinstance(decision, CannotIssue)
        assert f"{owner['kind']} '{owner['name']}'" in decision.message


@pytest.mark.parametrize("refresh", [True, False])
def test_a_secret_of_the_go_operator(refresh: bool) -> None:  # noqa: FBT001 - pytest's
    """A Secret that Slinky slurm-operator made is adopted with the token in it."""
    token, value = a_token(refresh=refresh), issued()
    live = made_by_go(token, value)
    decision = decided(token, live)
    assert isinstance(decision, Restore)
    assert decision.value == value
    assert former_owners(live, a_key()) == {"uid-key"}
    assert not former_owners(written(token, value), a_key())


def test_an_orphan() -> None:
    """A Secret with our label that nobody controls any more is taken back."""
    token, value = a_token(), issued()
    assert isinstance(decided(token, written(token, value, ownerReferences=[])), Restore)


def test_a_secret_of_another_type() -> None:
    """A Secret whose type we cannot change is not ours, label or not."""
    token = a_token()
    live = msgspec.structs.replace(written(token, issued(), ownerReferences=[]), type="kubernetes.io/tls")
    assert cannot_issue(decided(token, live)) is Reason.SECRET_CONFLICT


def test_on_its_way_out() -> None:
    """While our Secret is being deleted nothing is written to it."""
    token = a_token()
    live = written(token, issued(), deletionTimestamp="2026-11-15T12:00:00Z")
    assert cannot_issue(decided(token, live)) is Reason.SECRET_TERMINATING


# --- two Tokens, one Secret


def test_the_older_token_wins() -> None:
    """Of two Tokens that want one Secret the older one gets it, and of two equally old the first by name."""
    same = {"secretRef": {"name": "shared", "key": "k"}}
    older = a_token(name="z", uid="1", meta={"creationTimestamp": "2026-01-01T00:00:00Z"}, **same)
    newer = a_token(name="b", uid="2", meta={"creationTimestamp": "2026-01-02T00:00:00Z"}, **same)
    twin = a_token(name="a", uid="3", meta={"creationTimestamp": "2026-01-02T00:00:00Z"}, **same)
    other = a_token(name="c", uid="4", meta={"creationTimestamp": "2025-01-02T00:00:00Z"})
    dying = a_token(
        name="d",
        uid="5",
        meta={"creationTimestamp": "2025-01-02T00:00:00Z", "deletionTimestamp": "2025-01-02T00:00:00Z"},
        **same,
    )
    everybody = [older, newer, twin, other, dying]
    assert [older_rival(token, everybody) for token in (older, newer, twin)] == ["", "z", "z"]
    assert [older_rival(token, [newer, twin]) for token in (newer, twin)] == ["a", ""]


def test_the_younger_token_waits() -> None:
    """The younger one makes no Secret and takes none over, but keeps one that it has already."""
    token, value = a_token(), issued()
    assert cannot_issue(decided(token, None, rival="older")) is Reason.SECRET_CONFLICT
    assert cannot_issue(decided(token, made_by_go(token, value), rival="older")) is Reason.SECRET_CONFLICT
    assert isinstance(decided(token, written(token, value), rival="older"), Keep)


# --- the Secret


def test_the_secrets_of_the_reference() -> None:
    """The Secrets are those that Slinky slurm-operator was seen to make, but for the owner and our labels."""
    case = next(case for case in CASES if case.name == "10-tokens")
    made = {item["metadata"]["name"]: item for item in case.made if item["kind"] == "Secret"}
    tokens = [
        msgspec.convert({"metadata": {**item["metadata"], "uid": "u"}, "spec": item["spec"]}, Token)
        for item in case.stored
        if item["kind"] == "Token"
    ]
    assert {token.secret_name for token in tokens} == set(made)
    for token in tokens:
        ours, theirs = desired(token, "x"), made[token.secret_name]
        assert set(ours["data"]) == set(theirs["data"])
        assert {key: ours[key] for key in ("type", "immutable")} == {
            key: theirs[key] for key in ("type", "immutable")
        }
        assert ours["metadata"]["labels"] == recommended({LABEL_TOKEN_SECRET: "true"})
        (owner,), (former,) = ours["metadata"]["ownerReferences"], theirs["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], former["kind"]) == ("Token", token.metadata.name, "Secret")
        assert {owner["controller"], owner["blockOwnerDeletion"]} == {True}


def test_what_is_copied() -> None:
    """The Token's labels and annotations are copied, except kubectl's note, and never over our label."""
    token = a_token(
        meta={
            "labels": {"team": "a", LABEL_TOKEN_SECRET: "no"},
            "annotations": {"note": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        }
    )
    metadata = desired(token, "x")["metadata"]
    assert metadata["labels"] == recommended({"team": "a", LABEL_TOKEN_SECRET: "true"})
    assert metadata["annotations"] == {"note": "1"}


def test_no_secret_in_a_decision() -> None:
    """No repr of a decision shows the key or the token."""
    token, value = a_token(), issued()
    shown = repr([decided(token, None), decided(token, written(token, value, labels={}))])
    assert KEY.decode() not in shown
    assert value not in shown
    assert signed_by(value, KEY)
