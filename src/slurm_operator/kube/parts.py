"""Small structs that several kinds have in common."""

from __future__ import annotations

from slurm_operator.kube.meta import Condition, Part

IntOrString = int | str


class LabelSelectorRequirement(Part, frozen=True):
    """One expression of a selector, over labels or fields."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Part, frozen=True):
    """Selects objects by label."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class ObjectReference(Part, frozen=True):
    """Points at an object of any kind."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


def find_condition(conditions: tuple[Condition, ...] | None, kind: str) -> Condition | None:
    """Return the condition of a type, if there is one."""
    return next((condition for condition in conditions or () if condition.type == kind), None)
