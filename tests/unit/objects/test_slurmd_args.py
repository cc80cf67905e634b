"""How slurmd is told its name, and whether the name that it gets is the operator's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.objects.slurmd import pod, worker_template
from slurm_operator.objects.slurmd_args import named
from slurm_operator.objects.slurmd_identity import WorkerIdentity, node_of, numbered, of_node
from tests.support.objects.golden_cases import DOMAIN
from tests.support.objects.recorded_workers import existing, node
from tests.support.objects.resources import controller, found, node_set

STATED = "nodeset.slinky.slurm.net/stated-name"
OVERRIDE = "nodeset.slinky.slurm.net/hostname-override"
HOST = {"hostNetwork": True}


def made(worker: WorkerIdentity | None = None, **spec: Any) -> dict[str, Any]:
    """Return the pod of one worker of a NodeSet."""
    gpu = node_set("gpu", **spec)
    template = worker_template(gpu, controller(), found(), cluster_domain=DOMAIN)
    return pod(template, worker or numbered(gpu, 0), "abc")


def slurmd(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the container slurmd."""
    (item,) = (item for item in manifest["spec"]["containers"] if item["name"] == "slurmd")
    return dict(item)


def env(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the one variable of a name, as it is set."""
    (item,) = (item for item in slurmd(manifest)["env"] if item["name"] == name)
    return {key: value for key, value in item.items() if key != "name"}


# --------------------------------------------------------------------------------------- what slurmd is told

DAEMON = {"scalingMode": "DaemonSet"}


@pytest.mark.parametrize(
    ("worker", "spec", "name"),
    [
        (None, {}, "gpu-0"),
        (None, {"template": {"spec": {"hostname": "big-"}}, "ordinalPadding": 3}, "big-000"),
        (None, {"template": {"spec": {"setHostnameAsFQDN": True}}}, "gpu-0"),
        (of_node(node("m1.example.org"), "gpu-abcde"), DAEMON, "m1"),
        (of_node(node("m1", annotations={OVERRIDE: "big-1"}), "gpu-abcde"), DAEMON, "big-1"),
        (of_node(node("m1.example.org"), "gpu-abcde"), DAEMON | {"template": {"spec": HOST}}, "m1"),
    ],
)
def test_slurmd_is_told_the_name_by_which_its_pod_is_found(
    worker: WorkerIdentity | None, spec: dict[str, Any], name: str
) -> None:
    """The argument, the environment and what is read from the running pod are one and the same name."""
    item = made(worker, **spec)
    args = slurmd(item)["args"]
    assert args[5:] == ["-N", name, "--instance-id", "$(SLINKY_POD_UID)"]
    assert env(item, "SLINKY_NODE_NAME") == {"value": name}
    assert env(item, "SLINKY_POD_UID") == {"valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    assert item["metadata"]["annotations"][STATED] == "true"
    running = existing(item, nodeName="m1.example.org")
    assert node_of(running) == name
    assert item["metadata"]["labels"]["nodeset.slinky.slurm.net/pod-hostname"] == name


def test_on_the_network_of_its_node_a_numbered_worker_has_the_name_of_the_node() -> None:
    """The name is filled in by Kubernetes where the pod runs, dots and all."""
    item = made(template={"spec": HOST})
    assert slurmd(item)["args"][5:7] == ["-N", "$(SLINKY_NODE_NAME)"]
    assert env(item, "SLINKY_NODE_NAME") == {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert item["metadata"]["annotations"][STATED] == "true"
    assert node_of(existing(item, nodeName="m1.example.org")) == "m1.example.org"


@pytest.mark.parametrize(
    "spec",
    [
        {"slurmd": {"args": ["-N", "mine"]}},
        {"slurmd": {"args": ["-vvNmine"]}},
        {"slurmd": {"args": ["-v -N mine"]}},
        {"template": {"spec": {"containers": [{"name": "slurmd", "args": ["-N", "mine"]}]}}},
        {"template": {"spec": HOST}, "slurmd": {"args": ["-N", "mine"]}},
        {"template": {"metadata": {"annotations": {STATED: "true"}}}, "slurmd": {"args": ["-N", "mine"]}},
    ],
)
def test_a_name_of_the_user_is_not_stated_by_us(spec: dict[str, Any]) -> None:
    """A later -N counts for slurmd, so the pod does not say that its name is known."""
    item = made(**spec)
    assert STATED not in item["metadata"]["annotations"]
    assert "-N" in slurmd(item)["args"]


def test_other_arguments_and_variables_of_the_user_stay() -> None:
    """A user's arguments and variables are kept; those that carry the name are the operator's."""
    wish = {
        "args": ["-vv", "-L", "/var/log/N", "--extra", "-N"],
        "env": [{"name": "A", "value": "1"}, {"name": "SLINKY_NODE_NAME", "value": "x"}],
    }
    item = made(slurmd=wish)
    assert slurmd(item)["args"][-5:] == wish["args"]
    assert item["metadata"]["annotations"][STATED] == "true"
    assert env(item, "A") == {"value": "1"}
    assert env(item, "SLINKY_NODE_NAME") == {"value": "gpu-0"}


def test_workers_share_what_does_not_differ() -> None:
    """The pods of a NodeSet are made from one template, which their names do not change."""
    gpu = node_set("gpu", replicas=2)
    template = worker_template(gpu, controller(), found(), cluster_domain=DOMAIN)
    before = msgspec.json.encode(template.spec)
    names = [slurmd(pod(template, numbered(gpu, number), "abc"))["args"][6] for number in (0, 1)]
    assert names == ["gpu-0", "gpu-1"]
    assert msgspec.json.encode(template.spec) == before


# --------------------------------------------------------------------------------- reading slurmd's arguments


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], []),
        (["-Z", "-vvv", "--conf-server", "slurm:6817"], []),
        (["-N", "a"], ["a"]),
        (["-Na"], ["a"]),
        (["-DvN", "a", "-N", "b"], ["a", "b"]),
        (["-N a"], ["a"]),
        (["-N", "'a b'"], ["a b"]),
        (["-N"], [""]),
        # Arguments of other options are no options, and neither is what follows two dashes.
        (["-L", "-N", "a"], []),
        (["-L/N", "-dN", "-FN"], []),
        (["-FN", "-N", "a"], ["a"]),
        (["--conf", "'Features=a -N b'"], []),
        (["--extra", "-N", "a"], []),
        (["--extra=x", "-N", "a"], ["a"]),
        (["--instance-i", "-N", "-N", "a"], ["a"]),
        (["--systemd", "-N", "a"], ["a"]),
        (["--unheard-of", "-N", "a"], ["a"]),
        (["--", "-N", "a"], []),
        (["it's", "-N", "a"], ["a"]),
        ([7, "-N", "a"], ["a"]),
    ],
)
def test_names_are_found_as_slurmd_finds_them(arguments: list[Any], names: list[str]) -> None:
    """Short options may be in groups, have their argument attached, or come in one word with others."""
    assert [*named(arguments)] == names
