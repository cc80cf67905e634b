from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api import NodeSet
from slurm_operator.api.nodeset import NodeSetSpec
from slurm_operator.api.shared import LocalObjectReference, PodTemplate
from slurm_operator.controllers.shared.node_events import SlurmNodeEvent, nodeset_keys, nodeset_mapper
from slurm_operator.kube.models.meta import Key, ObjectMeta
from slurm_operator.kube.models.store import Store
from slurm_operator.kube.runtime.controller import Controller
from slurm_operator.kube.runtime.sources import Channel
from slurm_operator.objects.slurmd_marks import PodInfo, pod_info
from slurm_operator.slurm.model.records import Node

CONTROLLER = Key("slurm", "main")


def nodeset(name: str, hostname: str = "", *, controller: str = "main", namespace: str = "slurm") -> NodeSet:
    spec: dict[str, Any] = {"hostname": hostname} if hostname else {}
    return NodeSet(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=NodeSetSpec(
            controller_ref=LocalObjectReference(name=controller), template=PodTemplate(spec=spec)
        ),
    )


def comment(pod: str, name: str = "", namespace: str = "slurm") -> str:
    info = {"namespace": namespace, "podName": pod, "node": "kube-1"}
    return json.dumps(info | ({"nodeSetName": name} if name else {}))


def event(new: Node | None, old: Node | None = None) -> SlurmNodeEvent:
    found = new or old
    assert found is not None
    return SlurmNodeEvent(CONTROLLER, found.name, old, new)


GPU, GPU_LARGE, CPU = nodeset("gpu"), nodeset("gpu-large"), nodeset("cpu", "worker-")
ALL = (GPU, GPU_LARGE, CPU)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Node(name="x", comment=comment("p", "gpu")), ["gpu"]),
        (Node(name="gpu-large-0", comment=comment("p", "gpu"), features=("cpu",)), ["gpu"]),
        (Node(name="gpu-0", comment=comment("p", "deleted")), []),
        (Node(name="gpu-0", comment=comment("p", "gpu", namespace="elsewhere")), []),
        (Node(name="x", comment=comment("gpu-large-3")), ["gpu-large"]),
        (Node(name="x", comment=comment("gpu-3")), ["gpu"]),
        (Node(name="x", comment=comment("gpu-3", namespace="elsewhere")), []),
        (Node(name="kube-7", features=("gpu-large",)), ["gpu-large"]),
        (Node(name="kube-7", active_features=("worker",)), ["cpu"]),
        (Node(name="gpu-0", features=("gpu-large", "worker")), ["gpu-large", "cpu"]),
        (Node(name="gpu-large-0"), ["gpu-large"]),
        (Node(name="gpu-0", comment="checked by Bob"), ["gpu"]),
        (Node(name="worker-12"), ["cpu"]),
        (Node(name="cpu-12"), []),
        (Node(name="bare-metal-1"), []),
    ],
)
def test_a_node_finds_its_nodeset(node: Node, expected: list[str]) -> None:
    """The comment decides; without one the feature does; without that the longest prefix of the name."""
    assert [key.name for key in nodeset_keys(event(node), ALL)] == expected
    assert nodeset_keys(event(None, node), ALL) == nodeset_keys(event(node), ALL)


def test_both_versions_of_a_node_count() -> None:
    """A node that moved from one NodeSet to another concerns both, each once."""
    old, new = Node(name="x", comment=comment("p", "gpu")), Node(name="x", comment=comment("p", "cpu"))
    assert nodeset_keys(event(new, old), ALL) == (GPU.key, CPU.key)
    assert nodeset_keys(event(new, new), ALL) == (CPU.key,)


@given(st.text())
def test_any_comment_can_be_read(text: str) -> None:
    """Whatever people write into a comment, it is ours or it is not; it never fails."""
    assert pod_info(text) is None or isinstance(pod_info(text), PodInfo)
    assert pod_info('{"namespace":' + text) is None or text


def test_the_comment_is_that_of_the_go_operator() -> None:
    """The JSON has the keys of Slinky slurm-operator, in its order, and leaves out what is empty."""
    info = PodInfo("slurm", "gpu-0", "kube-1", "gpu", "u-1")
    assert msgspec.json.encode(info).decode() == (
        '{"namespace":"slurm","podName":"gpu-0","node":"kube-1","nodeSetName":"gpu","nodeSetUID":"u-1"}'
    )
    old = '{"namespace":"slurm","podName":"gpu-0","node":""}'
    assert pod_info(old) == PodInfo("slurm", "gpu-0", "")
    assert msgspec.json.encode(PodInfo("slurm", "gpu-0", "")).decode() == old


async def test_events_become_keys_in_a_queue() -> None:
    """A change in Slurm is a reconcile of the NodeSet it concerns, and a storm of them is one."""
    store: Store[NodeSet] = Store()
    mapper = nodeset_mapper(store)
    for one in (*ALL, nodeset("gpu", controller="other", namespace="other")):
        store.put(one)
    channel: Channel[SlurmNodeEvent] = Channel()
    looked: list[Key] = []
    done = asyncio.Event()

    async def reconcile(key: Key) -> None:
        looked.append(key)
        if key == CPU.key:
            done.set()

    controller = Controller("nodeset", reconcile).watch_channel(channel, mapper)
    for number in range(100):
        channel.send(event(Node(name=f"gpu-{number}", state=("IDLE",))))
    channel.send(event(Node(name="bare-metal-1")))
    channel.send(event(Node(name="worker-0")))
    running = asyncio.create_task(controller.run())
    async with asyncio.timeout(60):
        await done.wait()
    await controller.stop(1.0)
    await running
    assert looked == [GPU.key, CPU.key]
