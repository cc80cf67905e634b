"""Names, hostnames and labels of workers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.slurmd_identity import (
    claim_identity_of,
    identity_labels,
    node_of,
    numbered,
    of_node,
    ordinal_of,
    overdue_labels,
)
from tests.support.objects.recorded_workers import node
from tests.support.objects.resources import node_set

P = "nodeset.slinky.slurm.net/"
OVERRIDE = f"{P}hostname-override"
TOPOLOGY = "topology.slinky.slurm.net/spec"


def pod(name: str, labels: dict[str, str] | None = None, *, stated: bool = False, **spec: Any) -> Pod:
    annotations = {f"{P}stated-name": "true"} if stated else {}
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def test_numbered_workers_have_padded_names() -> None:
    """Name, hostname, index and claims of a numbered worker have as many digits as were asked for."""
    worker = numbered(node_set("gpu", ordinalPadding=3, template={"spec": {"hostname": "big-"}}), 7)
    assert (worker.name, worker.hostname, worker.index) == ("gpu-007", "big-007", "007")
    assert worker.claim_identity == "007"
    assert (worker.node, worker.topology) == ("", None)
    assert identity_labels(worker, host_network=False) == {
        f"{P}pod-name": "gpu-007",
        f"{P}pod-index": "007",
        f"{P}pod-hostname": "big-007",
        f"{P}scaling-mode": "StatefulSet",
    }


def test_without_a_prefix_the_hostname_is_the_name() -> None:
    """A worker whose template names no hostname is called in Slurm as its pod is."""
    assert numbered(node_set("gpu"), 12).hostname == "gpu-12"


def test_a_pinned_worker_knows_its_node() -> None:
    """A worker that returns to a Kubernetes node has its topology from the start."""
    worker = numbered(node_set("gpu"), 0, node("m1", annotations={TOPOLOGY: "switch:s1"}))
    assert (worker.node, worker.topology) == ("m1", "switch:s1")


@pytest.mark.parametrize(
    ("kube_node", "annotations", "hostname"),
    [
        ("m1", {}, "m1"),
        ("m1.example.org", {}, "m1"),
        ("m1.example.org", {OVERRIDE: "big-1"}, "big-1"),
        ("m1", {OVERRIDE: ""}, "m1"),
    ],
)
def test_workers_of_nodes_are_named_after_them(
    kube_node: str, annotations: dict[str, str], hostname: str
) -> None:
    """The hostname is the first part of the Kubernetes node's name, or what its annotation says."""
    worker = of_node(node(kube_node, annotations=annotations), "ds-abcde")
    assert (worker.name, worker.hostname, worker.node) == ("ds-abcde", hostname, kube_node)
    assert (worker.claim_identity, worker.index, worker.topology) == (hostname, "", "")
    assert identity_labels(worker, host_network=True) == {
        f"{P}pod-name": "ds-abcde",
        f"{P}pod-hostname": hostname,
        f"{P}scaling-mode": "DaemonSet",
    }


@pytest.mark.parametrize("prefix", ["GPU-", "gpu_", "a b", "-gpu", "x" * 63])
def test_a_prefix_that_makes_no_hostname_is_refused(prefix: str) -> None:
    """A hostname that the API server would refuse is reported with the field that it comes from."""
    with pytest.raises(Unbuildable, match=r"spec.template.spec.hostname: .* at most 63 "):
        numbered(node_set("gpu", template={"spec": {"hostname": prefix}}), 0)


def test_a_name_that_is_too_long_is_refused() -> None:
    """Names of pods are labels, and the field to shorten is named."""
    with pytest.raises(Unbuildable, match=r"metadata.name: "):
        numbered(node_set("x" * 62), 10)
    with pytest.raises(Unbuildable, match=r"metadata.name: .* 63 "):
        numbered(node_set("x" * 62, template={"spec": {"hostname": "a-"}}), 10)


def test_an_override_that_is_no_hostname_is_refused() -> None:
    """What an annotation says is checked, and the Kubernetes node that has it is named."""
    with pytest.raises(Unbuildable, match="hostname-override of Node 'm1'"):
        of_node(node("m1", annotations={OVERRIDE: "m1.example.org"}), "ds-abcde")


# ---------------------------------------------------------------------------------------------- existing pods

STATEFUL = {f"{P}scaling-mode": ScalingMode.STATEFUL_SET.value}
DAEMON = {f"{P}scaling-mode": ScalingMode.DAEMON_SET.value}


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (pod("gpu-0", STATEFUL, hostname="big-0"), "big-0"),
        (pod("gpu-0", STATEFUL), "gpu-0"),
        (pod("gpu-0", STATEFUL, hostname="big-0", hostNetwork=True, nodeName="m1"), "m1"),
        (pod("gpu-0", STATEFUL, hostname="big-0", hostNetwork=True), ""),
        (pod("ds-abcde", DAEMON, hostname="m1", nodeName="m1.example.org"), "m1"),
        # Only slurmd's own argument gives it another name than that of the node whose network it is on.
        (pod("ds-abcde", DAEMON, hostname="m1", hostNetwork=True, nodeName="m1.x"), "m1.x"),
        (pod("ds-abcde", DAEMON, stated=True, hostname="m1", hostNetwork=True, nodeName="m1.x"), "m1"),
        (pod("gpu-0", STATEFUL, stated=True, hostname="big-0", hostNetwork=True, nodeName="m1"), "m1"),
        (pod("gpu-0", STATEFUL, stated=True, hostname="big-0"), "big-0"),
    ],
)
def test_a_pod_tells_the_name_of_its_slurm_node(made: Pod, name: str) -> None:
    """The name in Slurm follows from the pod's own mode and spec, and is empty while it is not known."""
    assert node_of(made) == name


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [("gpu-0", 0), ("gpu-007", 7), ("gpu-large-0", None), ("gpu", None), ("gpu-", None), ("cpu-1", None),
     ("gpu--1", None), ("gpu-+1", None), ("gpu-1a", None), ("gpu-²", None), ("gpu-1234567890", None)],
)  # fmt: skip
def test_ordinals_are_read_from_names(name: str, ordinal: int | None) -> None:
    """Only the name of the set, a dash and digits make the name of a numbered worker."""
    assert ordinal_of(node_set("gpu"), name) == ordinal


def test_a_pod_keeps_its_claims_when_the_padding_changes() -> None:
    """The claims of a pod are those of the number as its own name has it."""
    assert claim_identity_of(node_set("gpu", ordinalPadding=3), pod("gpu-7", STATEFUL)) == "7"
    assert claim_identity_of(node_set("gpu"), pod("gpu-abcde", STATEFUL)) == ""
    assert claim_identity_of(node_set("gpu"), pod("gpu-abcde", DAEMON, hostname="m1")) == "m1"
    named = DAEMON | {f"{P}pod-hostname": "m1.example.org"}
    assert claim_identity_of(node_set("gpu"), pod("gpu-abcde", named, hostname="m1")) == "m1"
    assert claim_identity_of(node_set("gpu"), pod("gpu-abcde", named)) == "m1.example.org"


def test_labels_of_identity_are_completed() -> None:
    """A pod that lacks a label, or has a wrong one, gets it; one that is complete needs none."""
    gpu = node_set("gpu")
    made = pod("gpu-0", STATEFUL | {f"{P}pod-name": "", f"{P}pod-index": "0"}, hostname="gpu-0")
    assert overdue_labels(gpu, made) == {f"{P}pod-name": "gpu-0", f"{P}pod-hostname": "gpu-0"}
    worker = numbered(gpu, 0)
    whole = pod("gpu-0", identity_labels(worker, host_network=False), hostname="gpu-0")
    assert overdue_labels(gpu, whole) == {}


def test_a_worker_on_the_network_of_its_node_learns_its_name_there() -> None:
    """The label with the name in Slurm waits until the pod has been scheduled."""
    gpu = node_set("gpu")
    labels = identity_labels(numbered(gpu, 0), host_network=True)
    assert f"{P}pod-hostname" not in labels
    assert overdue_labels(gpu, pod("gpu-0", labels, hostNetwork=True)) == {}
    assert overdue_labels(gpu, pod("gpu-0", labels, hostNetwork=True, nodeName="m1")) == {
        f"{P}pod-hostname": "m1"
    }
