"""Every rule of every kind, by the pure functions."""

from __future__ import annotations

import pytest

from slurm_operator.webhook.rules import wanted
from slurm_operator.webhook.rules.admission import validate
from slurm_operator.webhook.rules.world import Unreadable, Wanted, World
from tests.support.webhook.rule_cases import HA, Case, key, manifest, read
from tests.support.webhook.rule_results import validated
from tests.support.webhook.rule_table import ALLOWED, DENIED, WARNED


@pytest.mark.parametrize("case", DENIED, ids=str)
def test_denied(case: Case) -> None:
    """A mistake is refused by the path of its field, and the message names what is wrong."""
    errors, _ = validated(case)
    assert [error.path for error in errors] == [case.path], errors
    assert case.named in errors[0].message


@pytest.mark.parametrize("case", WARNED, ids=str)
def test_warned(case: Case) -> None:
    """What is odd but works is admitted with a warning that names the field."""
    errors, warnings = validated(case)
    assert errors == ()
    (warning,) = warnings
    assert warning.startswith(f"{case.path}: ")
    assert case.named in warning


@pytest.mark.parametrize("case", ALLOWED, ids=str)
def test_allowed(case: Case) -> None:
    """What works is admitted in silence."""
    assert validated(case) == ((), ())


def test_what_could_not_be_looked_at_is_refused() -> None:
    """A lookup without an answer is never taken for a good one."""
    files = read(manifest("Controller", {"configFileRefs": [{"name": "files"}]}))
    (error,), _ = validate(files, None, World(config_maps={"files": Unreadable("no answer; try again")}))
    assert (error.path, "no answer; try again" in error.message) == ("spec.configFileRefs[0]", True)
    shared = read(manifest("Controller", HA))
    (error,), _ = validate(shared, None, World(claims={"state": Unreadable("no answer")}))
    assert error.path == "spec.persistence.existingClaim"


def test_what_could_not_be_compared_is_told() -> None:
    """Without an answer about other NodeSets one is admitted with a warning: the operator looks, too."""
    errors, (warning,) = validate(read(manifest("NodeSet")), None, World(node_sets=Unreadable("no answer")))
    assert errors == ()
    assert warning.startswith("spec.template.spec.hostname: ")
    assert warning.endswith(": no answer")


def test_only_what_rules_ask_about_is_wanted() -> None:
    """Files, the claim of standbys, other NodeSets and workers of another key are looked at, and no more."""
    plain = read(
        manifest("Controller", {"prologScriptRefs": [{"name": "p"}], "persistence.existingClaim": "c"})
    )
    assert wanted(plain) == wanted(read(manifest("RestApi"))) == Wanted()
    assert wanted(read(manifest("NodeSet"))) == Wanted(node_sets=True)
    full = wanted(read(manifest("Controller", HA | {"configFileRefs": [{"name": "a"}, {"name": "b"}]})))
    assert full == Wanted(frozenset({"a", "b"}), frozenset({"state"}))
    for kind in ("Controller", "Accounting"):
        old = read(manifest(kind))
        other = read(manifest(kind, {"slurmKeyRef": key("secret", "other")}))
        assert wanted(other, old) == Wanted(clusters=True)
        assert wanted(other, other) == wanted(other) == Wanted()


def test_secrets_are_not_quoted() -> None:
    """What a line of configuration sets is not repeated: it may be a password."""
    case = Case("Accounting", {"extraConf": "StoragePass=hunter2\nStorageHost=elsewhere"})
    errors, warnings = validated(case)
    assert len(errors) == 2
    assert "hunter2" not in f"{errors}{warnings}"


def test_a_task_plugin_of_the_user_stands_beside_memory_limits() -> None:
    """The operator sets one where the chart marks a new cluster, and gives way to the user's."""
    body = manifest("Controller", {"extraConf": "TaskPlugin=task/none"})
    body["metadata"]["annotations"] = {"slinky.slurm.net/constrain-memory": "true"}
    errors, _ = validate(read(body), None, World())
    assert errors == ()
