"""What is made from an Accounting, beyond its equality with the reference (integration/objects)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from slurm_operator.objects import slurmdbd
from slurm_operator.objects.content_references import Found
from tests.support.objects.resources import accounting, found

HASH = "slinky.slurm.net/slurmdbd-conf-hash"


def _template(content: Found, **spec: Any) -> dict[str, Any]:
    made = slurmdbd.desired(accounting(**spec), content).find("StatefulSet", "acct-accounting")
    assert made is not None
    template: dict[str, Any] = made["spec"]["template"]
    return template


def test_an_external_slurmdbd_needs_nothing() -> None:
    """With an external slurmdbd nothing is made or asked for, and what was made before is unwanted."""
    external = accounting(external=True, externalConfig={"host": "h", "port": 1})
    desired = slurmdbd.desired(external, Found())
    assert desired.objects == ()
    assert desired.problems == ()
    assert {item.kind for item in desired.unwanted} == {"StatefulSet", "Service", "Secret"}
    assert slurmdbd.references(external).secrets == frozenset()


def test_difference_1_another_password_is_another_pod() -> None:
    """A rotated database password reaches slurmdbd.conf and restarts slurmdbd."""
    before, after = found(), found({"db": {"password": b"new"}})
    assert (
        _template(before)["metadata"]["annotations"][HASH]
        != _template(after)["metadata"]["annotations"][HASH]
    )
    secret = slurmdbd.config_secret(accounting(), after)
    assert "StoragePass=new\n" in base64.b64decode(secret["data"]["slurmdbd.conf"]).decode()
    assert slurmdbd.references(accounting()).secrets == {"auth-slurm", "auth-jwt", "db"}


def test_difference_1_another_key_set_is_another_pod() -> None:
    """A changed key set restarts slurmdbd; it is mounted under its usual name."""
    spec = {"jwksKeyRef": {"name": "x", "key": "f"}}
    one, other = _template(found(x={"f": "1"}), **spec), _template(found(x={"f": "2"}), **spec)
    name = "slinky.slurm.net/referenced-files-hash"
    assert one["metadata"]["annotations"][name] != other["metadata"]["annotations"][name]
    assert one["metadata"]["annotations"][HASH] == other["metadata"]["annotations"][HASH]
    sources = one["spec"]["volumes"][0]["projected"]["sources"]
    assert sources[-1] == {"configMap": {"name": "x", "items": [{"key": "f", "path": "jwks.json"}]}}


def test_the_templates_metadata_reaches_the_pod() -> None:
    """Labels and annotations of the pod template are on the pods, as its documentation says."""
    metadata = _template(found(), template={"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})[
        "metadata"
    ]
    assert metadata["labels"]["a"] == "b"
    assert metadata["annotations"]["c"] == "d"


@pytest.mark.parametrize(
    ("secret", "kinds", "field"),
    [
        ("db", {"Service"}, "spec.storageConfig.passwordKeyRef"),
        ("auth-slurm", {"Service", "Secret"}, "spec.slurmKeyRef"),
        ("auth-jwt", {"Service", "Secret"}, "spec.jwtKeyRef"),
    ],
)
def test_difference_10_a_missing_secret_holds_back_only_what_needs_it(
    secret: str, kinds: set[str], field: str
) -> None:
    """What does not depend on a missing Secret is made, and the problem names the field, once."""
    desired = slurmdbd.desired(accounting(), found({secret: None}))
    assert {item["kind"] for item in desired.objects} == kinds
    assert [problem.field for problem in desired.problems] == [field]


def test_no_password_in_problems_or_reprs() -> None:
    """A password that cannot be written appears nowhere in what is said about it."""
    desired = slurmdbd.desired(accounting(), found({"db": {"password": b"hunter2\nx"}}))
    assert desired.problems
    assert "hunter2" not in repr(desired)
