"""What can and cannot be changed about the volume of slurmctld once it exists.

A StatefulSet's claim templates are fixed for its life; the API server refuses every other one, and with it
the whole update. So an existing StatefulSet keeps its templates, and its pods keep the volume that they have:
slurmctld is not restarted for a change that cannot be made. What the user now wants otherwise is reported.
One wish can be granted, where the storage class allows it: more space, by growing the claims themselves.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NamedTuple

from slurm_operator.api.reasons import Reason
from slurm_operator.kube.manifests.semantics import canonical, canonical_quantity
from slurm_operator.objects.desired import Manifest, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_WHERE = "spec.persistence"
_DEFAULTS = {"volumeMode": "Filesystem"}  # filled in by the API server


class Growth(NamedTuple):
    """A claim that should ask for more space."""

    claim: str
    storage: str


def keep_claims(
    workload: Manifest, live: Sequence[Mapping[str, Any]], volumes: Sequence[Mapping[str, Any]] = ()
) -> tuple[Manifest, tuple[Problem, ...]]:
    """Return the StatefulSet with the claim templates that it already has, and what they lack.

    `volumes` are those that its pods have now.
    """
    wanted = {item["metadata"]["name"]: item for item in workload["spec"].get("volumeClaimTemplates", ())}
    existing = {item["metadata"]["name"]: item for item in live}
    problems = [
        problem
        for name in wanted.keys() | existing.keys()
        for problem in _unfulfilled(wanted.get(name), existing.get(name))
    ]
    spec = {key: value for key, value in workload["spec"].items() if key != "volumeClaimTemplates"}
    if missing := wanted.keys() - existing.keys():
        spec["template"] = _with_volumes(
            spec["template"], lambda mounted: _restored(mounted, volumes, missing)
        )
    if existing.keys() - wanted.keys():
        # A claim template makes the volume of its name.
        spec["template"] = _with_volumes(
            spec["template"], lambda mounted: [one for one in mounted if one["name"] not in existing]
        )
    kept = [dict(item) for item in live]
    return {**workload, "spec": spec | ({"volumeClaimTemplates": kept} if kept else {})}, tuple(problems)


def _with_volumes(
    template: Manifest, change: Callable[[list[Mapping[str, Any]]], list[Mapping[str, Any]]]
) -> Manifest:
    pod = template["spec"]
    return {**template, "spec": {**pod, "volumes": change(pod.get("volumes", []))}}


def _restored(
    mounted: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]], missing: Collection[str]
) -> list[Mapping[str, Any]]:
    """Return volumes with those of before that no claim template makes, in the order of before."""
    order = {one["name"]: index for index, one in enumerate(before)}
    found = [*mounted, *(one for one in before if one["name"] in missing)]
    return sorted(found, key=lambda one: order.get(one["name"], len(order)))


def growths(workload: Manifest, requested: Mapping[str, str]) -> tuple[Growth, ...]:
    """Return the claims that ask for less than the templates; `requested` is what each claim asks for now."""
    found = []
    for template in workload["spec"].get("volumeClaimTemplates", ()):
        wanted = template["spec"]["resources"]["requests"]["storage"]
        for ordinal in range(workload["spec"]["replicas"]):
            claim = f"{template['metadata']['name']}-{workload['metadata']['name']}-{ordinal}"
            if claim in requested and _amount(wanted) > _amount(requested[claim]):
                found.append(Growth(claim, str(wanted)))
    return tuple(found)


def _unfulfilled(wanted: Mapping[str, Any] | None, live: Mapping[str, Any] | None) -> list[Problem]:
    if wanted is None or live is None:
        now = "with its own PersistentVolumeClaim" if live else "without a PersistentVolumeClaim"
        return [_fixed(_WHERE, f"slurmctld was created {now}, which cannot be changed")]
    ours, theirs = _comparable(wanted), _comparable(live)
    less, more = ours.pop("storage"), theirs.pop("storage")
    problems = [
        _fixed(
            f"{_WHERE}.{name}", "cannot be changed after the PersistentVolumeClaim of slurmctld was created"
        )
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
    if less < more:
        problems.append(
            _fixed(
                f"{_WHERE}.resources",
                "a PersistentVolumeClaim cannot shrink; request its current size or more",
            )
        )
    return problems


def _comparable(claim: Mapping[str, Any]) -> dict[str, Any]:
    spec = _DEFAULTS | canonical(dict(claim["spec"]))
    resources = dict(spec.pop("resources", {}))
    requests = dict(resources.pop("requests", {}))
    storage = _amount(requests.pop("storage", "0"))
    rest = {"resources": [resources, requests]} if resources or requests else {}
    return {**spec, **rest, "storage": storage}


def _amount(quantity: Any) -> Decimal:
    try:
        return Decimal(str(canonical_quantity(quantity)))
    except InvalidOperation:
        return Decimal(0)


def _fixed(where: str, message: str) -> Problem:
    return Problem(Reason.IMMUTABLE_FIELD, where, message)
