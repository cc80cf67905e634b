"""Whose token it is, and what they may see: the questions and how the answers are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurm_operator.status_api.viewers import Scope, Viewer, access_question, read_token_reply, token_question

NAME = "system:serviceaccount:slinky:slurm-operator-viewer"
USER = {"username": NAME, "uid": "u", "groups": ["g"]}


def reply(**status: Any) -> bytes:
    return json.dumps({"kind": "TokenReview", "status": status}).encode()


def test_the_question_names_the_audience() -> None:
    """A token for the API server itself must not be accepted, so the audience is asked for."""
    assert token_question("t")["spec"] == {"token": "t", "audiences": ["slurm-operator"]}


def test_a_user_is_known_only_with_the_audience() -> None:
    """An authenticated token for another audience, or for none that is named, is refused."""
    assert read_token_reply(reply(authenticated=True, user=USER, audiences=["slurm-operator"])) == Viewer(
        username=NAME, uid="u", groups=("g",)
    )


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "audiences": ["slurm-operator"], "user": USER},
        {"authenticated": True, "user": USER},
        {"authenticated": True, "user": USER, "audiences": []},
        {"authenticated": True, "user": USER, "audiences": ["https://kubernetes.default.svc"]},
        {"authenticated": True, "user": {}, "audiences": ["slurm-operator"]},
    ],
)
def test_every_other_reply_is_nobody(status: dict[str, Any]) -> None:
    """Whatever is missing, the token is not accepted."""
    assert read_token_reply(reply(**status)) is None


def test_the_permission_is_to_list_nodesets() -> None:
    """The user of the token is reviewed, with all that an authorizer may look at."""
    user = Viewer(username="u", uid="1", groups=("a",), extra={"k": ["v"]})
    spec = access_question(user, "team")["spec"]
    assert spec["resourceAttributes"] == {
        "group": "slinky.slurm.net",
        "resource": "nodesets",
        "verb": "list",
        "namespace": "team",
    }
    assert (spec["user"], spec["uid"], spec["groups"], spec["extra"]) == ("u", "1", ["a"], {"k": ["v"]})


def test_a_scope_has_what_it_names() -> None:
    """Everything has every namespace; some namespaces have those; an empty one has nothing."""
    assert "a" in Scope(everything=True)
    some = Scope(everything=False, namespaces=frozenset({"a"}))
    assert ("a" in some, "b" in some, some.empty) == (True, False, False)
    assert Scope(everything=False).empty
