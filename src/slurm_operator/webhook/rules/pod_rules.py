"""Rules about the pods that an object asks for.

A pod is validated as it would be created: the operator's own, merged with the user's. That shows what the
user's part alone does not, such as a mount of a volume that only the operator's part could have. A mistake is
blamed on the field it came from: `spec.slurmd` for the operator's container of that name, the place in the
template's list for any other.

What is in a pod is as odd as a user can write it. So the shapes come first (`shapes`); no pod is tried that
is not made of lists and maps where there should be some.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.kube.models.kinds import PodSpec
from slurm_operator.objects.desired import invalid
from slurm_operator.webhook.rules import shapes
from slurm_operator.webhook.rules.findings import CauseType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from slurm_operator.webhook.rules.findings import Findings

_WHERE = "spec.template.spec"
_LISTS = ("initContainers", "containers")


def check_wishes(template: dict[str, Any], own: Mapping[str, dict[str, Any]], findings: Findings) -> bool:
    """Validate what a user wrote about pods; return whether a pod can be rendered from it.

    `own` is what he wrote about the operator's containers, by field.
    """
    good = [shapes.fits(wish, shapes.ContainerShape, path, findings) for path, wish in own.items()]
    good.append(shapes.fits(template, shapes.PodShape, _WHERE, findings))
    _check_names(template, findings)
    return all(good)


def _check_names(spec: Mapping[str, Any], findings: Findings) -> None:
    """Refuse what a merge would hide: two containers, or two volumes, of one name in the user's own lists."""
    seen: dict[str, str] = {}
    for field in _LISTS:
        for index, item in _maps(spec.get(field)):
            name, path = item.get("name"), f"{_WHERE}.{field}[{index}].name"
            if isinstance(name, str) and name in seen:
                findings.deny(
                    path,
                    f"{name!r} is also the name of {seen[name]}; give each container its own name",
                    CauseType.DUPLICATE,
                )
            elif isinstance(name, str):
                seen[name] = f"{field}[{index}]"
    names = [item.get("name") for _, item in _maps(spec.get("volumes"))]
    for name, count in Counter(name for name in names if isinstance(name, str)).items():
        if count > 1:
            findings.deny(
                f"{_WHERE}.volumes",
                f"{name!r} is the name of {count} volumes; give each volume its own name",
                CauseType.DUPLICATE,
            )


def check_pod(
    pod: Mapping[str, Any],
    own: Mapping[str, str],
    template: Mapping[str, Any],
    findings: Findings,
    claims: Collection[str] = (),
) -> None:
    """Validate a pod as it would be created; `own` are the fields of the operator's containers, by name."""
    findings.attempt(lambda: _decode(pod))
    volumes = {item.get("name") for _, item in _maps(pod.get("volumes"))} | set(claims)
    names: Counter[str] = Counter()
    places = _places(own, template)
    for container in containers(pod):
        name = str(container.get("name"))
        names[name] += 1
        path = places.get(name, _WHERE)
        for mount in mounted(container):
            if mount not in volumes:
                findings.deny(
                    f"{path}.volumeMounts",
                    f"{mount!r} is not a volume of the pod; add it to {_WHERE}.volumes, or correct the name",
                )
        if not container.get("image"):
            findings.warn(path, "has no image; pods are not created without one")
    for name, count in names.items():
        if count > 1:
            findings.deny(
                f"{_WHERE}.initContainers",
                f"{name!r} is the name of another container of the pod; choose another name",
                CauseType.DUPLICATE,
            )


def check_requests(pod: Mapping[str, Any], name: str, path: str, findings: Findings) -> None:
    """Warn of a container without memory requests: the kubelet ends its pod first when memory is short."""
    holders = [pod, *(item for item in containers(pod) if item.get("name") == name)]
    resources = [item.get("resources") or {} for item in holders]
    if not any("memory" in (item.get(kind) or {}) for item in resources for kind in ("requests", "limits")):
        findings.warn(
            f"{path}.resources",
            "requests no memory, so its pods, with the jobs in them, are evicted first when their node runs "
            "out of memory; set resources.limits.memory, or at least resources.requests.memory",
        )


def _decode(pod: Mapping[str, Any]) -> None:
    try:
        msgspec.convert(pod, PodSpec)
    except msgspec.ValidationError as error:
        raise invalid(_WHERE, f"is not a valid pod spec: {error}") from None


def containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all containers of a pod."""
    for field in _LISTS:
        for _, item in _maps(pod.get(field)):
            yield item


def mounted(container: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the volumes that a container uses, as folders or as devices."""
    for field in ("volumeMounts", "volumeDevices"):
        for _, item in _maps(container.get(field)):
            if isinstance(name := item.get("name"), str):
                yield name


def _places(own: Mapping[str, str], template: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields in which containers were asked for, by their names."""
    places = dict(own)
    for field in _LISTS:
        for index, item in _maps(template.get(field)):
            places[str(item.get("name"))] = f"{_WHERE}.{field}[{index}]"
    return places


def _maps(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the items of a list that are maps, with their places; anything else has none."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield index, item
