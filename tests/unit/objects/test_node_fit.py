"""Which Kubernetes nodes are for the workers of a NodeSet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.kube.models.kinds import Node, Pod
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.node_fit import Fit, node_fit, overdue_tolerations
from tests.support.objects.recorded_workers import node
from tests.support.objects.resources import node_set

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def fit(**template: Any) -> Fit:
    return node_fit(node_set("ds", scalingMode="DaemonSet", template={"spec": template}))


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


def tainted(*taints: tuple[str, str] | tuple[str, str, str], **labels: str) -> Node:
    """Return a Kubernetes node with taints, each a key, an effect and perhaps a value."""
    spec = {"taints": [dict(zip(("key", "effect", "value"), taint, strict=False)) for taint in taints]}
    return msgspec.convert({"metadata": {"name": "n1", "labels": labels}, "spec": spec}, Node)


def answers(asked: Fit, kube_node: Node) -> tuple[bool, bool, bool]:
    return asked.admits(kube_node), asked.keeps(kube_node), asked.suits(kube_node)


YES, NO = (True, True, True), (False, False, False)


@pytest.mark.parametrize("ready", ["True", "False", "Unknown"])
def test_a_node_that_is_out_of_service_admits_nobody(ready: str) -> None:
    """Not even those who tolerate everything: they would be removed and made again for ever."""
    kube_node = tainted(("node.kubernetes.io/out-of-service", "NoExecute"))
    status = msgspec.convert({"conditions": [{"type": "Ready", "status": ready}]}, type(kube_node.status))
    kube_node = msgspec.structs.replace(kube_node, status=status)
    assert fit(tolerations=[{"operator": "Exists"}]).admits(kube_node) == (ready == "True")


def test_without_wishes_every_node_fits() -> None:
    """A template that says nothing about Kubernetes nodes admits all of them."""
    assert answers(fit(), node()) == YES


@pytest.mark.parametrize(
    ("wishes", "fits"),
    [
        ({"nodeName": "n1"}, True),
        ({"nodeName": "n2"}, False),
        ({"nodeSelector": {"gpu": "a100"}}, True),
        ({"nodeSelector": {"gpu": "a100", "zone": "b"}}, False),
        ({"nodeSelector": {"ssd": ""}}, False),
        (affinity(expression("gpu", "In", "h100", "a100")), True),
        (affinity(expression("gpu", "In", "h100")), False),
        (affinity(expression("gpu", "NotIn", "a100")), False),
        (affinity(expression("none", "NotIn", "a100")), True),
        (affinity(expression("gpu", "Exists")), True),
        (affinity(expression("none", "Exists")), False),
        (affinity(expression("gpu", "DoesNotExist")), False),
        (affinity(expression("none", "DoesNotExist")), True),
        (affinity(expression("count", "Gt", "7")), True),
        (affinity(expression("count", "Gt", "8")), False),
        (affinity(expression("count", "Lt", "9")), True),
        (affinity(expression("count", "Lt", "-1")), False),
        (affinity(expression("gpu", "Gt", "7")), False),
        (affinity(expression("count", "Gt", "many")), False),
        (affinity(expression("count", "Gt", "1", "2")), False),
        (affinity(expression("none", "Lt", "7")), False),
        (affinity(expression("gpu", "Unheard", "a100")), False),
        (affinity(field("In", "n1")), True),
        (affinity(field("NotIn", "n1")), False),
        (affinity(field("In", "n2")), False),
        # Terms are alternatives; what is in one of them must all hold; an empty one never does.
        (affinity(expression("gpu", "In", "h100"), field("In", "n1")), True),
        (affinity(expression("gpu", "In", "h100") | field("In", "n1")), False),
        (affinity(expression("gpu", "In", "a100") | field("In", "n1")), True),
        (affinity({}), False),
        (affinity(), False),
        # Both must hold, and a preference is none.
        ({"nodeSelector": {"gpu": "a100"}} | affinity(field("In", "n2")), False),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": field("In", "n2")}]}}}, True),
    ],
)  # fmt: skip
def test_selectors_are_read_as_the_scheduler_reads_them(wishes: dict[str, Any], fits: bool) -> None:  # noqa: FBT001 - a table
    """A Kubernetes node fits if the template's name, selector and affinity all say so."""
    kube_node = node("n1", labels={"gpu": "a100", "count": "8"})
    assert answers(fit(**wishes), kube_node) == (YES if fits else NO)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "a", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "b", "operator": "Exists"}, False),
        ({"key": "a", "value": "5"}, True),
        ({"key": "a", "operator": "Equal", "value": "6"}, False),
        ({"key": "a", "operator": "Gt", "value": "4"}, True),
        ({"key": "a", "operator": "Gt", "value": "5"}, False),
        ({"key": "a", "operator": "Lt", "value": "6"}, True),
        ({"key": "a", "operator": "Lt", "value": "x"}, False),
        ({"key": "a", "operator": "Unheard", "value": "5"}, False),
    ],
)
def test_tolerations_are_read_as_the_scheduler_reads_them(
    toleration: dict[str, Any],
    tolerated: bool,  # noqa: FBT001 - a table
) -> None:
    """A taint keeps workers out unless one toleration matches its key, value and effect."""
    kube_node = tainted(("a", "NoSchedule", "5"))
    assert fit(tolerations=[toleration]).admits(kube_node) is tolerated


@pytest.mark.parametrize(
    ("kube_node", "wanted"),
    [
        (tainted(("a", "PreferNoSchedule")), YES),
        (tainted(("a", "NoSchedule")), (False, True, False)),
        (tainted(("a", "NoExecute")), NO),
        (tainted(("nodeset.slinky.slurm.net/worker", "NoExecute")), YES),
        (tainted(("nodeset.slinky.slurm.net/worker", "NoExecute", "x")), NO),
        (tainted(("node.kubernetes.io/unschedulable", "NoSchedule")), (False, True, True)),
        (tainted(("node.kubernetes.io/memory-pressure", "NoSchedule")), (False, True, True)),
        (
            tainted(
                ("node.kubernetes.io/unreachable", "NoSchedule"),
                ("node.kubernetes.io/unreachable", "NoExecute"),
            ),
            (False, True, True),
        ),
        (tainted(("node.kubernetes.io/out-of-service", "NoExecute", "nodeshutdown")), NO),
    ],
)
def test_not_now_is_not_never(kube_node: Node, wanted: tuple[bool, bool, bool]) -> None:
    """A passing taint admits nobody and drives nobody away; a lasting one does what its effect says."""
    assert answers(fit(), kube_node) == wanted


def test_workers_of_both_modes_stay_on_a_silent_node() -> None:
    """A node that does not answer keeps its workers, numbered ones too, and takes no new ones."""
    silent = tainted(("node.kubernetes.io/unreachable", "NoExecute"))
    both = tainted(
        ("node.kubernetes.io/not-ready", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute")
    )
    for asked in (node_fit(node_set("gpu")), fit()):
        assert asked.keeps(silent)
        assert asked.keeps(both)
        assert not asked.admits(both)


# -------------------------------------------------------------------------------------------- existing pods

SILENT = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute"}
    for name in ("not-ready", "unreachable")
]
OTHER = {"key": "a", "operator": "Equal", "value": "x", "effect": "NoExecute", "tolerationSeconds": 60}


def running(*tolerations: dict[str, Any]) -> Pod:
    """Return a pod with these tolerations."""
    return msgspec.convert({"metadata": {"name": "p"}, "spec": {"tolerations": tolerations}}, Pod)


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ([], SILENT),
        ([OTHER], [*SILENT, OTHER]),
        ([OTHER, *({**item, "tolerationSeconds": 300} for item in SILENT)], [*SILENT, OTHER]),
        ([SILENT[0], {**SILENT[1], "tolerationSeconds": 0}], SILENT),
        # The first that matches counts: a limit behind ours does nothing, one before it does.
        ([*SILENT, {**SILENT[0], "tolerationSeconds": 300}], None),
        (
            [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}, *SILENT],
            [*SILENT, {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}],
        ),
        ([{"operator": "Exists"}], None),
        ([OTHER, *SILENT], None),
        ([{**item, "effect": ""} for item in SILENT], None),
        ([{**item, "effect": "NoSchedule"} for item in SILENT], [
            *SILENT, *({**item, "effect": "NoSchedule"} for item in SILENT)
        ]),
    ],
)  # fmt: skip
def test_existing_pods_learn_to_tolerate_a_silent_node(
    there: list[dict[str, Any]], wanted: list[dict[str, Any]] | None
) -> None:
    """A pod that Kubernetes would delete after some minutes gets both tolerations, and only once."""
    assert overdue_tolerations(running(*there)) == wanted
    if wanted is not None:
        assert overdue_tolerations(running(*wanted)) is None


def test_own_tolerations_do_not_replace_ours() -> None:
    """A user's tolerations are added to the operator's."""
    asked = fit(tolerations=[{"key": "a", "operator": "Exists"}])
    assert (
        answers(asked, tainted(("a", "NoExecute"), ("nodeset.slinky.slurm.net/worker", "NoExecute"))) == YES
    )


def test_equal_wishes_make_equal_fits() -> None:
    """Only what places a worker matters, so NodeSets that agree in that can share a Fit."""
    one = fit(nodeSelector={"a": "1", "b": "2"}, hostname="x-", priorityClassName="high")
    two = fit(nodeSelector={"b": "2", "a": "1"}, containers=[{"image": "no name"}])
    assert one == two
    assert hash(one) == hash(two)
    assert one != fit(nodeSelector={"a": "1"})


@pytest.mark.parametrize(
    "template",
    [
        {"nodeSelector": {"a": 1}},
        {"nodeSelector": ["a"]},
        {"tolerations": {"key": "a"}},
        {"tolerations": [{"key": 1}]},
        affinity({"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]}),
    ],
)
def test_a_mistake_is_named(template: dict[str, Any]) -> None:
    """What cannot be read is reported with the field, and never taken for no wish at all."""
    with pytest.raises(Unbuildable, match=r"spec\.template\.spec"):
        fit(**template)
