"""Whether a node is one for a NodeSet: node selector, node affinity and taints, as Kubernetes reads them.

The answer depends on four fields of the pod template and on the node, and on nothing else. So a `Fit` is
made once for a NodeSet and then asked about each node; it needs no pod, no template, and no other object.
Two NodeSets that place their workers alike have equal Fits.

There are three questions, because "not now" and "never" are different things. A node that is cordoned, not
ready or short of memory has taints that Kubernetes sets and takes away by itself. It admits no new worker for
that, but a worker that is there stays, and one that is pinned to it waits for it.

Workers tolerate the taints of a node that does not answer, without a limit in time. Kubernetes gives other
pods five minutes and then deletes them, to start them elsewhere. A kubelet that has lost the API server for
longer says nothing about the jobs beside it, and would end them on its return; and a worker cannot start
elsewhere while its name is taken. Workers of a node that is gone are removed because it is gone.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.shared import PodTemplate
from slurm_operator.kube.models.kinds import PodSpec, Taint, Toleration
from slurm_operator.objects import pod_parts
from slurm_operator.objects.desired import invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slurm_operator.api import NodeSet
    from slurm_operator.kube.models.kinds import Node, Pod
    from slurm_operator.kube.models.meta import LabelSelectorRequirement
    from slurm_operator.kube.models.pod import NodeSelectorTerm

_PLACING = ("affinity", "nodeName", "nodeSelector", "tolerations")
_NO_EXECUTE = "NoExecute"
_KEEPS_OUT = frozenset({"NoSchedule", _NO_EXECUTE})
_SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# Set by Kubernetes while a condition lasts, and by `kubectl cordon`.
_PASSING: Final = frozenset(
    {
        *_SILENT,
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/unschedulable",
    }
)
# Set by cluster-autoscaler and Karpenter on a node that they are about to remove.
_REMOVAL_TAINTS: Final = frozenset(
    {"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}
)
_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
# Numbers of labels and taints are those of Go's int64.
_MAX_DIGITS = 19


def cordoned(node: Node) -> bool:
    """Return whether a node is to take no more work: by `kubectl cordon`, or by an autoscaler's taint."""
    return node.spec.unschedulable or any(taint.key in _REMOVAL_TAINTS for taint in node.spec.taints)


def out_of_service(node: Node) -> bool:
    """Return whether a person has declared that nothing runs on a node any more.

    As for Kubernetes itself, the taint counts only on a node that is not ready.
    """
    ready = node.condition("Ready")
    marked = any(taint.key == _OUT_OF_SERVICE for taint in node.spec.taints)
    return marked and (ready is None or ready.status != "True")


def driven_away(pod: Pod, node: Node, *, at_last: bool = False) -> bool:
    """Return whether a node has a NoExecute taint that a pod does not tolerate at all; `at_last`: for ever.

    One that is tolerated for some seconds is tolerated here at first: Kubernetes says when they are over.
    """
    tolerates = _tolerated_for_ever if at_last else _tolerated
    return any(
        taint.effect == _NO_EXECUTE
        and taint.key not in _SILENT
        and not tolerates(taint, pod.spec.tolerations)
        for taint in node.spec.taints
    )


def tolerations() -> list[dict[str, Any]]:
    """Return the taints that every worker tolerates, besides those that its user names."""
    return [
        {"key": wellknown.TAINT_WORKER, "operator": "Equal", "effect": wellknown.TAINT_WORKER_EFFECT},
        *({"key": key, "operator": "Exists", "effect": _NO_EXECUTE} for key in _SILENT),
    ]


def overdue_tolerations(pod: Pod) -> list[dict[str, Any]] | None:
    """Return all tolerations that an existing pod should have, if some that it needs are missing.

    Kubernetes lets tolerations be added to a pod and their seconds be changed, and obeys the first one that
    matches a taint. So those for a silent node come first, in the place of the pod's own with a limit.
    """
    missing = _with_missing(pod.spec.tolerations)
    return None if missing is None else [msgspec.to_builtins(item) for item in missing]


# All workers of a NodeSet have the same few tolerations.
@functools.lru_cache(maxsize=256)
def _with_missing(there: tuple[Toleration, ...]) -> tuple[Toleration, ...] | None:
    if all(_tolerated_for_ever(Taint(key=key, effect=_NO_EXECUTE), there) for key in _SILENT):
        return None
    ours = tuple(Toleration(key=key, operator="Exists", effect=_NO_EXECUTE) for key in _SILENT)
    others = (item for item in there if msgspec.structs.replace(item, toleration_seconds=None) not in ours)
    return (*ours, *others)


def _tolerated(taint: Taint, there: Iterable[Toleration]) -> bool:
    return any(_tolerates(item, taint) for item in there)


def _tolerated_for_ever(taint: Taint, there: Iterable[Toleration]) -> bool:
    first = next((item for item in there if _tolerates(item, taint)), None)
    return first is not None and first.toleration_seconds is None


def node_fit(nodeset: NodeSet) -> Fit:
    """Return what decides on which nodes a NodeSet's workers belong."""
    wish = nodeset.spec.template.spec
    template = PodTemplate(spec={name: wish[name] for name in _PLACING if name in wish})
    merged = pod_parts.pod_spec({"tolerations": tolerations()}, template)
    try:
        spec = msgspec.convert(merged, PodSpec)
    except msgspec.ValidationError as error:
        raise invalid("spec.template.spec", f"cannot be read: {error}") from None
    required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    return Fit(
        node_name=spec.node_name,
        selector=tuple(sorted((spec.node_selector or {}).items())),
        terms=None if required is None else required.node_selector_terms,
        tolerations=spec.tolerations,
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """Asked about one node after the other; `terms` are alternatives, and None means no condition."""

    node_name: str
    selector: tuple[tuple[str, str], ...]
    terms: tuple[NodeSelectorTerm, ...] | None
    tolerations: tuple[Toleration, ...]

    def admits(self, node: Node) -> bool:
        """Return whether a new worker may go there now.

        Where nothing runs any more it would be removed again, whatever it tolerates.
        """
        return (
            self._matches(node)
            and not self._repelled(node.spec.taints, _KEEPS_OUT)
            and not out_of_service(node)
        )

    def keeps(self, node: Node) -> bool:
        """Return whether a worker that is there may stay: only a taint with NoExecute drives it away."""
        return self._matches(node) and not self._repelled(node.spec.taints, {_NO_EXECUTE})

    def suits(self, node: Node) -> bool:
        """Return whether a worker belongs there, though the node may not admit it at this moment."""
        lasting = (taint for taint in node.spec.taints if taint.key not in _PASSING)
        return self._matches(node) and not self._repelled(lasting, _KEEPS_OUT)

    def _repelled(self, taints: Iterable[Taint], effects: Iterable[str]) -> bool:
        return any(taint.effect in effects and not _tolerated(taint, self.tolerations) for taint in taints)

    def _matches(self, node: Node) -> bool:
        labels, name = node.metadata.labels, node.metadata.name
        return (
            self.node_name in ("", name)
            and all(labels.get(key) == value for key, value in self.selector)
            and (self.terms is None or any(_term_matches(term, labels, name) for term in self.terms))
        )


def _term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Return whether one alternative holds; one without conditions never does."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(item, labels) for item in term.match_expressions) and all(
        _holds(item, {"metadata.name": name}) for item in term.match_fields
    )


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    test = _OPERATORS.get(requirement.operator)
    return test is not None and test(labels.get(requirement.key), requirement.values)


def _compare(value: str | None, values: tuple[str, ...]) -> int:
    """Return the sign of the difference of two numbers; 0 also where one of them is none."""
    left, right = _number(value), _number(values[0]) if len(values) == 1 else None
    return 0 if left is None or right is None else (left > right) - (left < right)


def _number(text: str | None) -> int | None:
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isdecimal() and digits.isascii() and len(digits) <= _MAX_DIGITS else None


_OPERATORS: Final[dict[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compare(value, values) > 0,
    "Lt": lambda value, values: _compare(value, values) < 0,
}


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Gt":
            return _compare(taint.value, (toleration.value,)) > 0
        case "Lt":
            return _compare(taint.value, (toleration.value,)) < 0
    return False
