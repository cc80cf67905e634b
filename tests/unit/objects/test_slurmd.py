"""The pod of a worker."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.objects.content_references import References
from slurm_operator.objects.desired import Manifest, Unbuildable
from slurm_operator.objects.node_fit import overdue_tolerations
from slurm_operator.objects.slurmd import WorkerTemplate, content_changed, pod, references, worker_template
from slurm_operator.objects.slurmd_claims import claims_of
from slurm_operator.objects.slurmd_identity import (
    WorkerIdentity,
    node_of,
    numbered,
    of_node,
    ordinal_of,
    overdue_labels,
)
from tests.support.objects.golden_cases import DOMAIN, WORLDS, World
from tests.support.objects.recorded_workers import existing, node, nodesets
from tests.support.objects.resources import controller, found, node_set

SSH = {"enabled": True, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TOPOLOGY = "topology.slinky.slurm.net/spec"
HASHES = {f"slinky.slurm.net/{name}-hash" for name in ("slurm-key", "sshd-conf", "sssd-conf")}


def template(secrets: dict[str, dict[str, bytes] | None] | None = None, **spec: Any) -> WorkerTemplate:
    return worker_template(node_set("gpu", **spec), controller(), found(secrets), cluster_domain=DOMAIN)


def made(worker: WorkerIdentity | None = None, **spec: Any) -> Manifest:
    built = template(**spec)
    return pod(built, worker or numbered(built.nodeset, 0), "abc")


def container(name: str = "slurmd", **spec: Any) -> dict[str, Any]:
    both = [*made(**spec)["spec"]["containers"], *made(**spec)["spec"]["initContainers"]]
    return named(both)[name]


def named(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in items}


def _slurmd(**wish: Any) -> dict[str, Any]:
    """Return a pod template that changes the container slurmd."""
    return {"spec": {"containers": [{"name": "slurmd"} | wish]}}


# ------------------------------------------------------------------------------------------- a user's wishes


def test_what_a_user_sets_wins_also_false_and_zero() -> None:
    """An explicit false, 0 or empty text replaces what the operator would set."""
    context = {"privileged": False, "runAsUser": 0, "runAsNonRoot": False}
    item = container(
        slurmd={
            "securityContext": context,
            "env": [{"name": "POD_CPUS", "value": ""}],
            "volumeMounts": [{"name": "slurm-etc", "mountPath": "/etc/slurm", "readOnly": False}],
            "startupProbe": {"initialDelaySeconds": 0, "failureThreshold": 0},
        }
    )
    assert context.items() <= item["securityContext"].items()
    assert item["securityContext"]["capabilities"]["add"][0] == "BPF"
    assert named(item["env"])["POD_CPUS"]["value"] == ""
    assert item["volumeMounts"][0] == {"name": "slurm-etc", "mountPath": "/etc/slurm", "readOnly": False}
    assert item["startupProbe"]["failureThreshold"] == 0
    assert made(template={"spec": {"enableServiceLinks": True}})["spec"]["enableServiceLinks"] is True


def test_arguments_are_added() -> None:
    """A user's arguments stand behind the operator's."""
    args = container(slurmd={"args": ["-vvv"]})["args"]
    assert args[:4] == ["-Z", "--conf-server", "slurm-controller.NS:6817", "--conf"]
    assert args[5:] == ["-N", "gpu-0", "--instance-id", "$(SLINKY_POD_UID)", "-vvv"]


def test_tolerations_and_affinity_add_up() -> None:
    """What a user tolerates or keeps away from comes on top of what the operator needs."""
    mine = {"key": "nvidia.com/gpu", "operator": "Exists"}
    term = {"labelSelector": {}, "topologyKey": "rack"}
    spec = made(
        template={"spec": {"tolerations": [mine], "affinity": {"podAntiAffinity": {REQUIRED: [term]}}}}
    )["spec"]
    assert spec["tolerations"] == [*made()["spec"]["tolerations"], mine]
    terms = spec["affinity"]["podAntiAffinity"][REQUIRED]
    assert [item["topologyKey"] for item in terms] == ["rack", "kubernetes.io/hostname"]


def test_workers_find_each_other_whatever_else_is_searched() -> None:
    """Domains that a user wants searched come before the one in which workers have their names."""
    ours = "slurm-workers-slurm.NS.svc.cluster.local"
    wish = {"options": [{"name": "ndots", "value": "2"}], "searches": ["example.org", ours]}
    assert made()["spec"]["dnsConfig"] == {"searches": [ours]}
    assert made(template={"spec": {"dnsConfig": wish}})["spec"]["dnsConfig"] == wish


def test_workers_share_a_node_only_if_asked() -> None:
    """Each worker keeps others away from its Kubernetes node, unless the NodeSet oversubscribes."""
    (term,) = made()["spec"]["affinity"]["podAntiAffinity"][REQUIRED]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert "affinity" not in made(oversubscribeNode=True)["spec"]


def test_labels_that_selectors_need_cannot_be_changed() -> None:
    """The operator's labels win over those of the template; its annotations are the template's and ours."""
    metadata = made(
        template={
            "metadata": {
                "labels": {"team": "x", "app.kubernetes.io/name": "mine", "slinky.slurm.net/cluster": "x"},
                "annotations": {"note": "n"},
            }
        }
    )["metadata"]
    assert metadata["labels"] == {
        "team": "x",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/instance": "gpu",
        "app.kubernetes.io/managed-by": "slurm-operator",
        "app.kubernetes.io/name": "slurmd",
        "app.kubernetes.io/part-of": "slurm",
        "controller.kubernetes.io/hash": "abc",
        "nodeset.slinky.slurm.net/pod-hostname": "gpu-0",
        "nodeset.slinky.slurm.net/pod-index": "0",
        "nodeset.slinky.slurm.net/pod-name": "gpu-0",
        "nodeset.slinky.slurm.net/pod-protect": "true",
        "nodeset.slinky.slurm.net/scaling-mode": "StatefulSet",
        "slinky.slurm.net/cluster": "slurm",
    }
    assert metadata["annotations"].keys() == {
        "note",
        "nodeset.slinky.slurm.net/stated-name",
        "kubectl.kubernetes.io/default-container",
        "slinky.slurm.net/slurm-key-hash",
    }


def test_a_template_asks_for_the_removal_of_no_pod() -> None:
    """Each new worker would be removed as soon as it is made."""
    asks = {wellknown.ANNOTATION_REMOVAL_REQUESTED: "true", "note": "n"}
    item = made(template={"metadata": {"annotations": asks}})
    assert wellknown.ANNOTATION_REMOVAL_REQUESTED not in item["metadata"]["annotations"]
    assert item["metadata"]["annotations"]["note"] == "n"


def test_annotations_of_the_set_do_not_reach_its_pods() -> None:
    """Annotations that tools write on a NodeSet are not copied into its pods."""
    gpu = node_set("gpu")
    annotated = msgspec.structs.replace(
        gpu, metadata=msgspec.structs.replace(gpu.metadata, annotations={"tool": "1"}, labels={"team": "x"})
    )
    built = worker_template(annotated, controller(), found(), cluster_domain=DOMAIN)
    assert "tool" not in built.annotations
    assert built.labels["team"] == "x"


def test_ssh_brings_its_port_and_files() -> None:
    """With SSH the pod has sshd's port, its configuration and that of SSSD; without it, none of these."""
    item, spec = container(ssh=SSH), made(ssh=SSH)["spec"]
    assert [port["name"] for port in item["ports"]] == ["slurmd", "ssh"]
    assert [mount["mountPath"] for mount in item["volumeMounts"]] == [
        "/etc/slurm",
        "/var/log/slurm",
        "/etc/ssh/sshd_config",
        "/etc/sssd/sssd.conf",
    ]
    assert {"ssh-config", "sssd-conf"} <= named(spec["volumes"]).keys()
    assert len(container()["volumeMounts"]) == len(made()["spec"]["volumes"]) == 2


def test_an_external_slurmctld_is_where_it_says() -> None:
    """Workers of an external cluster fetch their configuration from the host and port given."""
    outside = controller(external=True, externalConfig={"host": "slurm.example.org", "port": 7000})
    built = worker_template(node_set("gpu"), outside, found(), cluster_domain=DOMAIN)
    assert "slurm.example.org:7000" in built.spec["containers"][0]["args"]


def test_memory_is_kept_for_slurmd_in_clusters_that_say_so() -> None:
    """Only a Controller with the annotation makes workers offer less than their limit."""
    nodeset = node_set("gpu", slurmd={"resources": {"limits": {"memory": "10Gi"}}})
    limited = controller({"annotations": {"slinky.slurm.net/constrain-memory": "true"}})
    for owner, memory in ((controller(), "10240"), (limited, "9728")):
        built = worker_template(nodeset, owner, found(), cluster_domain=DOMAIN)
        assert named(built.spec["containers"][0]["env"])["POD_MEMORY"]["value"] == memory


def test_the_node_goes_down_before_the_pod_ends() -> None:
    """The container tells Slurm before it stops, unless the user has something better to do."""
    command = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:2] == ["/usr/bin/sh", "-c"]
    assert named(container()["env"])["SLINKY_GRACE_SECONDS"]["value"] == "30"
    long = container(template={"spec": {"terminationGracePeriodSeconds": 3600}})
    assert named(long["env"])["SLINKY_GRACE_SECONDS"]["value"] == "3600"
    mine = {"preStop": {"exec": {"command": ["/bin/true"]}}}
    assert container(slurmd={"lifecycle": mine})["lifecycle"] == mine


# ----------------------------------------------------------------------------------------- place and volumes


def test_a_worker_is_bound_to_its_node_by_name() -> None:
    """A worker of a Kubernetes node can go only there, whatever else the template requires."""
    affinity = {
        REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
    }
    wish = {"nodeName": "m9", "affinity": {"nodeAffinity": affinity}}
    by_name = {"key": "metadata.name", "operator": "In", "values": ["m1.x"]}
    here = {"nodeSelectorTerms": [{"matchFields": [by_name]}]}
    gpu = node_set("gpu")
    for worker in (of_node(node("m1.x"), "gpu-abcde"), numbered(gpu, 0, node("m1.x"))):
        spec = made(worker, template={"spec": wish})["spec"]
        assert "nodeName" not in spec
        assert spec["affinity"]["nodeAffinity"] == affinity | {REQUIRED: here}
        assert spec["affinity"]["podAntiAffinity"]
    unbound = made(template={"spec": wish})["spec"]
    assert unbound["nodeName"] == "m9"
    assert unbound["affinity"]["nodeAffinity"] == affinity


def test_workers_tolerate_a_silent_node_for_ever() -> None:
    """A kubelet that does not answer is no reason to delete a worker, in either scaling mode."""
    daemon = made(of_node(node("m1"), "gpu-abcde"), scalingMode="DaemonSet")
    for item in (daemon, made()):
        assert [(one["key"], one.get("tolerationSeconds")) for one in item["spec"]["tolerations"][1:]] == [
            ("node.kubernetes.io/not-ready", None),
            ("node.kubernetes.io/unreachable", None),
        ]
        assert overdue_tolerations(existing(item)) is None


def test_workers_are_protected_from_their_creation() -> None:
    """A new worker has the label of the budget before any job can start, unless protection is off."""
    label = "nodeset.slinky.slurm.net/pod-protect"
    wish = {"metadata": {"labels": {label: "false"}}}
    for item in (
        made(),
        made(of_node(node("m1"), "gpu-abcde"), scalingMode="DaemonSet"),
        made(template=wish),
    ):
        assert item["metadata"]["labels"][label] == "true"
    assert label not in made(workloadDisruptionProtection=False)["metadata"]["labels"]


def test_no_probe_restarts_a_container_with_jobs() -> None:
    """slurmd has a startup and a readiness probe; a liveness probe is there only if a user wants it."""
    item = container()
    assert {"startupProbe", "readinessProbe"} <= item.keys()
    assert "livenessProbe" not in item
    mine = {"tcpSocket": {"port": 6818}, "failureThreshold": 100}
    for wish in ({"slurmd": {"livenessProbe": mine}}, {"template": _slurmd(livenessProbe=mine)}):
        assert container(**wish)["livenessProbe"] == mine | {"periodSeconds": 10}
    patient = container(slurmd={"livenessProbe": {"failureThreshold": 100}})["livenessProbe"]
    assert patient == {
        "httpGet": {"path": "/livez", "port": "slurmd"},
        "periodSeconds": 10,
        "failureThreshold": 100,
    }


@pytest.mark.parametrize(
    ("annotations", "of_template", "wanted"),
    [
        ({TOPOLOGY: "switch:s1"}, {TOPOLOGY: "mine"}, "switch:s1"),
        ({}, {TOPOLOGY: "mine"}, "mine"),
        ({}, {}, ""),
    ],
)
def test_the_topology_is_there_from_the_start(
    annotations: dict[str, str], of_template: dict[str, str], wanted: str
) -> None:
    """A pod whose Kubernetes node is known has its topology, else that of the template."""
    worker = of_node(node("m1", annotations=annotations), "gpu-abcde")
    item = made(worker, template={"metadata": {"annotations": of_template}})
    assert item["metadata"]["annotations"][TOPOLOGY] == wanted
    assert TOPOLOGY not in made()["metadata"]["annotations"]


def test_pods_do_not_change_what_they_are_made_from() -> None:
    """Making a pod leaves the template as it was, for the next one."""
    built = template(
        volumeClaimTemplates=[{"metadata": {"name": "data"}}], template={"spec": {"nodeName": "x"}}
    )
    before = copy.deepcopy((built.labels, built.annotations, built.spec))
    first = pod(built, numbered(built.nodeset, 0), "abc")
    again = copy.deepcopy(first)
    pod(built, of_node(node("m1", annotations={TOPOLOGY: "t"}), "gpu-abcde"), "def")
    assert (built.labels, built.annotations, built.spec) == before
    assert first == again


# ------------------------------------------------------------------------------------------- what is missing


@pytest.mark.parametrize(
    ("secrets", "spec", "field"),
    [
        ({"auth-slurm": None}, {}, "spec.slurmKeyRef of the Controller"),
        ({"auth-slurm": {}}, {}, "spec.slurmKeyRef of the Controller"),
        ({"sssd": None}, {"ssh": SSH}, "spec.ssh.sssdConfRef"),
        ({}, {"extraConf": "Weight"}, "spec.extraConf"),
        ({}, {"slurmd": {"args": "x"}}, "spec.slurmd.args"),
        ({}, {"template": {"spec": {"tolerations": {}}}}, "spec.template.spec.tolerations"),
    ],
)
def test_nothing_is_built_from_less(secrets: Any, spec: dict[str, Any], field: str) -> None:
    """Without all it needs there is no template, and the field to look at is named."""
    with pytest.raises(Unbuildable) as raised:
        template(secrets, **spec)
    assert [problem.field for problem in raised.value.problems] == [field]


def test_all_that_is_missing_is_told_at_once() -> None:
    """One look shows every Secret that has to be made."""
    with pytest.raises(Unbuildable) as raised:
        template({"auth-slurm": None, "sssd": None}, ssh=SSH)
    assert len(raised.value.problems) == 2


def test_an_optional_file_may_be_missing() -> None:
    """An SSSD configuration that is optional does not hold workers back."""
    optional = {**SSH, "sssdConfRef": {"name": "none", "key": "k", "optional": True}}
    built = template(ssh=optional)
    assert built.hashes["slinky.slurm.net/sssd-conf-hash"] == ""


def test_only_what_is_used_is_watched() -> None:
    """The key is needed always, the configuration of SSSD with SSH, and the rest never."""
    assert references(node_set("gpu", ssh=SSH), controller()) == References(frozenset({"auth-slurm", "sssd"}))
    off = SSH | {"enabled": False}
    assert references(node_set("gpu", ssh=off), controller()) == References(frozenset({"auth-slurm"}))
    assert references(node_set("gpu"), None) == References()


# ----------------------------------------------------------------------------------------- outdated contents


@pytest.mark.parametrize(
    ("secrets", "ssh"),
    [
        ({"auth-slurm": {"slurm.key": b"new"}}, SSH),
        ({"sssd": {"sssd.conf": b"new"}}, SSH),
        ({}, SSH | {"extraSshdConfig": "X11Forwarding yes"}),
    ],
)
def test_new_contents_outdate_a_pod(secrets: Any, ssh: dict[str, Any]) -> None:
    """A pod that read another key or another configuration of SSH or SSSD is told by its hashes."""
    built = template(ssh=SSH)
    assert built.hashes.keys() == HASHES
    annotations = pod(built, numbered(built.nodeset, 0), "abc")["metadata"]["annotations"]
    assert not content_changed(annotations, built.hashes)
    assert content_changed(annotations, template(secrets, ssh=ssh).hashes)


def test_a_hash_that_is_not_there_tells_nothing() -> None:
    """A pod of an operator that wrote no such hash is not replaced for that."""
    assert not content_changed({}, template(ssh=SSH).hashes)


# ------------------------------------------------------------------------------------------------- migration

_RECORDED = [(world, item) for world in WORLDS.values() for item in world.case.made if item["kind"] == "Pod"]


@pytest.mark.parametrize(
    ("world", "recorded"), _RECORDED, ids=[item["metadata"]["name"] for _, item in _RECORDED]
)
def test_pods_of_the_reference_are_understood(world: World, recorded: Manifest) -> None:
    """A running pod of Slinky is complete and current: its labels, claims and contents are ours."""
    running = msgspec.convert(recorded, Pod)
    owner = recorded["metadata"]["ownerReferences"][0]["name"]
    (nodeset,) = (item for item in nodesets(world) if item.metadata.name == owner)
    built = worker_template(nodeset, world.controller, world.found, cluster_domain=DOMAIN)
    assert not content_changed(running.metadata.annotations, built.hashes)
    assert overdue_labels(nodeset, running) == {}
    assert node_of(running) == running.metadata.labels["nodeset.slinky.slurm.net/pod-hostname"]
    assert claims_of(nodeset, running) == running.claims
    if nodeset.spec.scaling_mode == ScalingMode.STATEFUL_SET:
        ordinal = ordinal_of(nodeset, running.metadata.name)
        assert ordinal is not None
        assert numbered(nodeset, ordinal).name == running.metadata.name
