"""Who owns which field: giving single fields to the caretaker."""

from __future__ import annotations

from typing import Any

from slurm_operator.kube.manifests.managed_fields import FieldsEntry, claim

CARETAKER = "slurm-operator-takeover"
PATH = ("spec", "maxUnavailable")


def entry(manager: str, operation: str = "Update", subresource: str = "", **spec: Any) -> FieldsEntry:
    fields = {"f:spec": {f"f:{name}": value for name, value in spec.items()}}
    return FieldsEntry(
        manager=manager,
        operation=operation,
        subresource=subresource,
        api_version="policy/v1",
        fields_v1=fields,
    )


def owned(entries: list[FieldsEntry] | None) -> dict[tuple[str, str], Any]:
    assert entries is not None
    return {(one.manager, one.operation): one.fields_v1 for one in entries}


def test_a_field_goes_to_the_caretaker_alone() -> None:
    """Every owner loses the field and keeps the others; one that had nothing else is gone."""
    entries = [
        entry("manager", maxUnavailable={}, selector={}),
        entry("kubectl-edit", maxUnavailable={}),
        entry("slurm-operator", "Apply", minAvailable={}),
    ]
    assert owned(claim(entries, [PATH], CARETAKER)) == {
        (CARETAKER, "Apply"): {"f:spec": {"f:maxUnavailable": {}}},
        ("manager", "Update"): {"f:spec": {"f:selector": {}}},
        ("slurm-operator", "Apply"): {"f:spec": {"f:minAvailable": {}}},
    }


def test_what_the_caretaker_had_stays_with_it() -> None:
    """A claim after one that ended half-way adds to the caretaker's fields."""
    entries = [entry(CARETAKER, "Apply", selector={}), entry("manager", maxUnavailable={})]
    assert owned(claim(entries, [PATH], CARETAKER)) == {
        (CARETAKER, "Apply"): {"f:spec": {"f:selector": {}, "f:maxUnavailable": {}}}
    }


def test_nothing_is_claimed_that_is_not_owned() -> None:
    """Without an owner of the field there is nothing to do; a status belongs to whoever writes it."""
    assert claim([entry("manager", selector={})], [PATH], CARETAKER) is None
    assert claim([entry("disruption", subresource="status", maxUnavailable={})], [PATH], CARETAKER) is None
