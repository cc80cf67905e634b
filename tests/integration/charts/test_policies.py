"""The NetworkPolicies of the charts, enforced by the kernel: who reaches whom.

The policies become rules of nftables as a network plugin would make them, the pods those that the operator
and the charts make: their labels, and the ports on which their containers listen. Services do not matter to
policies, which are applied after a Service's address has become that of a pod.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kubebox.nodes.rootfs import provide_node_root
from tests.fixtures.golden import Case
from tests.support.charts.helm import OPERATOR, SLURM, render
from tests.support.objects.golden_cases import world
from tests.support.objects.recorded_workers import made_from

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")

CLUSTER = "accounting.enabled=true,mariadb.enabled=true,networkPolicy.enabled=true,nodesets.a.replicas=1"
LOGIN = "loginsets.a.replicas=1,networkPolicy.operatorNamespaceLabels.kubernetes\\.io/metadata\\.name=slinky"
# slurmctld listens on the port of its Service. The others do not.
PORTS = "controller.service.port=7817,accounting.service.port=7819,restapi.service.port=8080"
ANY = 45000


class Endpoint(NamedTuple):
    """A pod, as policies see it."""

    namespace: str
    labels: dict[str, str]
    ports: tuple[int, ...]


def endpoint(namespace: str, template: dict[str, Any]) -> Endpoint:
    """Return what policies see of a pod."""
    containers = [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]
    ports = tuple(port["containerPort"] for item in containers for port in item.get("ports", ()))
    return Endpoint(namespace, template["metadata"]["labels"], ports)


def cluster(objects: list[dict[str, Any]], namespace: str) -> dict[str, Endpoint]:
    """Return the pods of a Slurm cluster by the name of their program."""
    inputs = [
        item | {"data": item.get("data") or dict.fromkeys(item["stringData"], "")}
        if item["kind"] == "Secret"
        else item
        for item in objects
        if item["kind"] != "ConfigMap"
    ]
    made = world(Case("rendered", tuple(inputs), (), ()))
    templates = [item["spec"]["template"] for item in made.workloads()]
    templates += [item for item in made_from(made) if item["kind"] == "Pod"]
    templates += [item["spec"]["template"] for item in objects if item["kind"] == "StatefulSet"]
    return {
        item["metadata"]["labels"]["app.kubernetes.io/name"]: endpoint(namespace, item) for item in templates
    }


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Return whether a label selector chooses these labels."""
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    for item in selector.get("matchExpressions", ()):
        assert item["operator"] == "In"
        if labels.get(item["key"]) not in item["values"]:
            return False
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def is_peer(peer: dict[str, Any], namespace: str, pod: Endpoint) -> bool:
    """Return whether a peer of a policy in a namespace is this pod."""
    assert peer.keys() <= {"podSelector", "namespaceSelector"}
    where = {"kubernetes.io/metadata.name": pod.namespace}
    inside = (
        matches(peer["namespaceSelector"], where)
        if "namespaceSelector" in peer
        else pod.namespace == namespace
    )
    return inside and matches(peer.get("podSelector", {}), pod.labels)


def rules(policies: Iterable[dict[str, Any]], pods: dict[str, Endpoint], addresses: dict[str, str]) -> str:
    """Return NetworkPolicies as a table of nftables: what they allow, and then nothing to their pods."""
    lines, isolated = ["ct state established,related accept"], []
    for policy in policies:
        namespace, spec = policy["metadata"]["namespace"], policy["spec"]
        assert spec["policyTypes"] == ["Ingress"]
        for name, pod in pods.items():
            if pod.namespace != namespace or not matches(spec["podSelector"], pod.labels):
                continue
            isolated.append(f"ip daddr {addresses[name]} reject with tcp reset")
            for rule in spec.get("ingress", ()):
                froms = [
                    f"ip saddr {addresses[other]} "
                    for other, peer in pods.items()
                    if any(is_peer(item, namespace, peer) for item in rule.get("from", ()))
                ]
                ports = [f"tcp dport {port['port']} " for port in rule.get("ports", ())]
                lines += [
                    f"ip daddr {addresses[name]} {source}{port}accept"
                    for source in (froms if "from" in rule else [""])
                    for port in (ports or [""])
                ]
    chain = "\n".join(["type filter hook input priority 0; policy accept;", *lines, *isolated])
    return f"table ip policies {{\nchain input {{\n{chain}\n}}\n}}\n"


def reached(
    policies: list[dict[str, Any]], pods: dict[str, Endpoint], wanted: Iterable[tuple[str, str, int]]
) -> set[tuple[str, str, int]]:
    """Return the connections between pods that are made under these policies."""
    addresses = {name: f"127.1.0.{number}" for number, name in enumerate(sorted(pods), start=1)}
    order = {
        "nft": ["chroot", str(provide_node_root(print)), "/usr/sbin/nft", "-f", "-"],
        "rules": rules(policies, pods, addresses),
        "connections": [(addresses[source], addresses[target], port) for source, target, port in wanted],
    }
    command = ["unshare", "--net", sys.executable, "-m", "tests.integration.charts.reach"]
    done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {address: name for name, address in addresses.items()}
    return {(names[source], names[target], port) for source, target, port in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def parts(helm_program: Path) -> tuple[list[dict[str, Any]], dict[str, Endpoint]]:
    """Hand out all policies, and all pods of two clusters, an operator and somebody else."""
    arguments = ("--set", CLUSTER, "--set", LOGIN, "--set", PORTS)
    objects = render(helm_program, SLURM, *arguments)
    other = render(helm_program, SLURM, *arguments, release="two")
    switches = ("--set", "networkPolicy.enabled=true,webhook.serverPort=10250")
    operator = render(helm_program, OPERATOR, *switches, release="slurm-operator", namespace="slinky")
    pods = cluster(objects, "slurm")
    pods |= {f"other {name}": pod for name, pod in cluster(other, "slurm").items()}
    pods |= {
        item["metadata"]["name"].removeprefix("slurm-"): endpoint("slinky", item["spec"]["template"])
        for item in operator
        if item["kind"] == "Deployment"
    }
    pods["stranger"] = Endpoint("slurm", {"app": "x"}, ())
    pods["impostor"] = pods["operator"]._replace(namespace="elsewhere")
    policies = [item for item in [*objects, *other, *operator] if item["kind"] == "NetworkPolicy"]
    return policies, pods


def test_what_slurm_needs_is_let_through(parts: tuple[list[dict[str, Any]], dict[str, Endpoint]]) -> None:
    """Daemons, users and the operator reach what they need, at the ports on which containers listen."""
    policies, pods = parts
    ports = {name: pod.ports[0] for name, pod in pods.items() if pod.ports}
    assert (ports["slurmctld"], ports["slurmdbd"], ports["slurmrestd"], ports["slurmd"]) == (
        7817,
        6819,
        6820,
        6818,
    )
    clients = ("slurmd", "login", "slurmrestd", "slurmdbd")
    wanted = {(client, "slurmctld", ports["slurmctld"]) for client in clients}
    wanted |= {(client, "slurmdbd", ports["slurmdbd"]) for client in ("slurmctld", "login", "slurmrestd")}
    wanted |= {("operator", "slurmrestd", ports["slurmrestd"]), ("slurmdbd", "mariadb", ports["mariadb"])}
    wanted |= {("slurmctld", "slurmd", ports["slurmd"]), ("login", "slurmd", ports["slurmd"])}
    # srun and the processes of a job use any port.
    wanted |= {("slurmd", "slurmd", ANY), ("slurmd", "login", ANY), ("slurmctld", "login", ANY)}
    wanted |= {("stranger", "login", ports["login"]), ("stranger", "operator-webhook", 10250)}
    wanted |= {("stranger", "operator", 8080), ("stranger", "operator", 8081)}
    assert wanted - reached(policies, pods, wanted) == set()


def test_others_are_kept_out(parts: tuple[list[dict[str, Any]], dict[str, Endpoint]]) -> None:
    """Other pods, other clusters of the namespace and others with the operator's labels reach no daemon."""
    policies, pods = parts
    daemons = ("slurmctld", "slurmdbd", "slurmrestd", "slurmd", "mariadb")
    clients = ("stranger", "impostor", "other slurmd", "other slurmctld", "other login")
    refused = {(client, daemon, pods[daemon].ports[0]) for client in clients for daemon in daemons}
    refused |= {("slurmctld", "mariadb", 3306), ("slurmd", "mariadb", 3306)}
    refused |= {("operator", "slurmdbd", 6819), ("operator", "slurmctld", 7817), ("operator", "slurmd", 6818)}
    refused |= {("stranger", "login", ANY), ("stranger", "slurmd", ANY), ("stranger", "operator", ANY)}
    assert reached(policies, pods, refused) == set()
    # Without policies all of them are made: they do not fail for another reason.
    assert reached([], pods, refused) == refused
