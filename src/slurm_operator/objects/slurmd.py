"""NodeSet: the pod of a worker, in which slurmd and the jobs run.

Everything that all workers of a NodeSet have in common is built once, as a `WorkerTemplate`; `pod` then gives
it a name, a hostname, volumes and a place. So a thousand pods cost one merge of the user's wishes, not a
thousand. The pods share the parts that do not differ, and are not to be changed.

Nothing of this goes into the revision of a NodeSet (`slurmd_revision`): another version of the operator may
build other pods from the same spec, and that alone replaces no worker. What a worker reads only once, though,
must reach it some day: the pods carry hashes of the key and of the files for SSH, and `content_changed` tells
when one of them is not what it was when the pod was made.

If something that a pod needs is missing there is no template at all, and the reason is raised. A pod with
less in it is never made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.api.shared import ConfigMapKeySelector
from slurm_operator.objects import (
    labels,
    node_fit,
    pod_parts,
    slurm_conf,
    slurmd_args,
    slurmd_conf,
    slurmd_shared,
)
from slurm_operator.objects.content_references import References, checksum
from slurm_operator.objects.desired import Manifest, Unbuildable, gather
from slurm_operator.objects.slurmd_claims import claim_volumes
from slurm_operator.objects.slurmd_identity import SLURMD, WorkerIdentity, identity_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api import Controller, NodeSet
    from slurm_operator.api.shared import SecretKeySelector
    from slurm_operator.objects.content_references import Found

_KEY_FIELD = "spec.slurmKeyRef of the Controller"
_SSSD_FIELD = "spec.ssh.sssdConfRef"
_SSH_PORT_NAME = "ssh"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_CAPABILITIES = ("BPF", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE")

# What is true of one pod only. A request to remove would remove each new one at once, for ever.
_NOT_OF_ALL = frozenset(
    {
        wellknown.ANNOTATION_STATED_NAME,
        wellknown.ANNOTATION_REMOVAL_REQUESTED,
        wellknown.ANNOTATION_POD_FAILURES,
    }
)
_ENV_GRACE = "SLINKY_GRACE_SECONDS"
# That of Kubernetes.
_DEFAULT_GRACE = 30

# What a worker does before it ends, for whatever reason: take no new jobs, let the steps in its container end
# for as long as Kubernetes waits, and go down, so that jobs need not wait until Slurm finds out by itself.
#
# The reason is the only mark of whose drain a drain is. So on a node that is drained it stays as it is, and
# if there is none, the one given does not say that it is ours: we would end the drain.
#
# Steps are found by the names of processes, since slurmctld may not answer. With cgroup/v2, slurmd keeps a
# `slurmstepd infinity` that is no step; a process that has ended already has no command line. The last ten
# seconds of the grace period are for the update to DOWN and for slurmd itself.
_TERMINATING = "Pod is terminating"
PRE_STOP: Final = f"""\
seconds() {{ read -r up _ </proc/uptime; echo "${{up%%.*}}"; }}
steps() {{
  for comm in /proc/[0-9]*/comm; do
    {{ read -r name <"$comm"; }} 2>/dev/null || continue
    [ "$name" = slurmstepd ] || continue
    case $({{ tr '\\0' ' ' <"${{comm%comm}}cmdline"; }} 2>/dev/null) in
      ''|*'slurmstepd infinity'*) ;;
      *) return 0 ;;
    esac
  done
  return 1
}}
end=$(($(seconds) + ${{{_ENV_GRACE}:-{_DEFAULT_GRACE}}} - 10))
node=${{{slurmd_args.ENV_NODE_NAME}:-$(hostname)}}
reason='{wellknown.REASON_PREFIX}{_TERMINATING}'
known=$(timeout 5 scontrol show node "$node" 2>/dev/null)
state=$(printf '%s\\n' "$known" | sed -n 's/^ *State=\\([^ ]*\\).*/\\1/p')
case $state in
  *DRAIN*|*FAIL*)
    given=$(printf '%s\\n' "$known" | sed -n 's/^ *Reason=\\(.*\\) \\[[^]]*\\]$/\\1/p')
    reason=${{given:-{_TERMINATING}}}
    ;;
  *)
    timeout 5 scontrol update NodeName="$node" State=DRAIN Reason="$reason"
    ;;
esac
while [ "$(seconds)" -lt "$end" ] && steps; do
  sleep 1
done
exec timeout 8 scontrol update NodeName="$node" State=DOWN Reason="$reason"
"""


# Where Slurm powers nodes up and down: a drain of a node that powers up would requeue its job, and a node
# that Slurm powers down needs neither a drain nor a reason. POWER_UP alone is no power-up (`node_changes`).
_STATES: Final = "case $state in\n"
_POWER_STATES: Final = "*POWERING_*|*POWERED_DOWN*|*NOT_RESPONDING*POWER_UP*|*POWER_UP*NOT_RESPONDING*"
POWERED_PRE_STOP: Final = PRE_STOP.replace(_STATES, f"{_STATES}  {_POWER_STATES})\n    exit 0\n    ;;\n", 1)


def pre_stop(nodeset: NodeSet) -> str:
    """Return what a worker does before it ends."""
    return POWERED_PRE_STOP if nodeset.autoscaled else PRE_STOP


@dataclass(frozen=True, slots=True)
class WorkerTemplate:
    """What the workers of a NodeSet have in common; `hashes` are those of what they read only once."""

    nodeset: NodeSet
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    hashes: Mapping[str, str]
    spec: Mapping[str, Any]


def references(nodeset: NodeSet, controller: Controller | None) -> References:
    """Return the objects whose content a worker reads only once, when it starts."""
    ssh = nodeset.spec.ssh
    names = (
        controller.slurm_key_name if controller else "",
        ssh.sssd_conf_ref.name if ssh.enabled else "",
    )
    return References(secrets=frozenset(filter(None, names)))


def worker_template(
    nodeset: NodeSet, controller: Controller, found: Found, *, cluster_domain: str
) -> WorkerTemplate:
    """Return what all workers of a NodeSet have in common."""
    hashes = _hashes(nodeset, controller, found)
    template = nodeset.spec.template
    metadata = pod_parts.template_metadata(nodeset, SLURMD, nodeset.metadata.name, template, hashes)
    spec = pod_parts.pod_spec(_pod(nodeset, controller), template)
    return WorkerTemplate(
        nodeset=nodeset,
        labels={**metadata["labels"], wellknown.LABEL_CLUSTER: nodeset.spec.controller_ref.name},
        annotations=metadata["annotations"],
        hashes=hashes,
        spec={**spec, "dnsConfig": _dns(spec, nodeset.worker_service_fqdn(cluster_domain))},
    )


def content_changed(annotations: Mapping[str, str], hashes: Mapping[str, str]) -> bool:
    """Return whether a pod with these annotations was made from other contents than those of these hashes.

    A hash that a pod lacks, because an older operator made it, tells nothing and changes nothing.
    """
    return any(annotations.get(name, value) != value for name, value in hashes.items())


def pod(template: WorkerTemplate, worker: WorkerIdentity, revision: str, *, failures: int = 0) -> Manifest:
    """Return the pod of one worker.

    `revision` is the hash of the revision that it is made from; `failures` says how many pods of this worker
    have ended in a row before it.
    """
    nodeset, spec = template.nodeset, template.spec
    host_network = bool(spec.get("hostNetwork"))
    containers = [
        slurmd_args.identified(item, worker, host_network=host_network)
        if item["name"] == SLURMD.name
        else item
        for item in spec["containers"]
    ]
    (slurmd,) = (item for item in containers if item["name"] == SLURMD.name)
    annotations = {
        **{name: value for name, value in template.annotations.items() if name not in _NOT_OF_ALL},
        **slurmd_args.marks(slurmd, worker, host_network=host_network),
    }
    if failures:
        annotations[wellknown.ANNOTATION_POD_FAILURES] = str(failures)
    if worker.topology is not None:
        # Known before the pod is scheduled, so that slurmd has it from its first start.
        annotations[wellknown.ANNOTATION_TOPOLOGY] = worker.topology or annotations.get(
            wellknown.ANNOTATION_TOPOLOGY, ""
        )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": worker.name,
            "generateName": nodeset.pod_generate_name,
            "namespace": nodeset.metadata.namespace,
            "labels": {
                **labels.recommended(template.labels),
                **identity_labels(worker, host_network=host_network),
                wellknown.LABEL_REVISION_HASH: revision,
                **_protection(nodeset),
            },
            "annotations": annotations,
            "ownerReferences": [labels.owner_reference(nodeset)],
        },
        "spec": {
            **_placed(spec, worker.node),
            "containers": containers,
            "hostname": worker.hostname,
            "volumes": claim_volumes(nodeset, worker.claim_identity, spec.get("volumes", [])),
        },
    }


def _protection(nodeset: NodeSet) -> dict[str, str]:
    """Return the label of a new worker: a job may start on it before the operator knows of any."""
    protected = nodeset.protects_workers
    return {wellknown.LABEL_POD_PROTECT: wellknown.TRUE} if protected else {}


def _placed(spec: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Bind a pod to a node, by the way of the scheduler, which minds room and taints there."""
    if not node:
        return dict(spec)
    this = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    }
    affinity = spec.get("affinity", {})
    node_affinity = {**affinity.get("nodeAffinity", {}), _REQUIRED: this}
    return {
        **{name: value for name, value in spec.items() if name != "nodeName"},
        "affinity": {**affinity, "nodeAffinity": node_affinity},
    }


# -------------------------------------------------------------------------------------------------- template


def _hashes(nodeset: NodeSet, controller: Controller, found: Found) -> dict[str, str]:
    key, ssh = controller.spec.slurm_key_ref, nodeset.spec.ssh
    builders = {wellknown.ANNOTATION_SLURM_KEY_HASH: lambda: _key_hash(key, _KEY_FIELD, found)}
    if ssh.enabled:
        text = slurmd_shared.sshd_config(nodeset)
        builders[wellknown.ANNOTATION_SSHD_CONF_HASH] = lambda: checksum(text.encode())
        builders[wellknown.ANNOTATION_SSSD_CONF_HASH] = lambda: _key_hash(
            ssh.sssd_conf_ref, _SSSD_FIELD, found
        )
    return gather(builders)


def _key_hash(ref: SecretKeySelector | None, where: str, found: Found) -> str:
    """Return the hash of one key of a Secret, and not of the others: a worker does not read them."""
    try:
        return checksum(found.secret_key(ref, where))
    except Unbuildable:
        if ref is None or not ref.optional:
            raise
        return ""


def _dns(spec: Mapping[str, Any], domain: str) -> dict[str, Any]:
    """Add the domain in which workers find each other to those that the user wants searched."""
    where = "spec.template.spec.dnsConfig"
    wish = pod_parts.take(spec, "dnsConfig", dict, "spec.template.spec")
    searches = pod_parts.take(wish, "searches", list, where)
    return {**wish, "searches": [*(item for item in searches if item != domain), domain]}


def _pod(nodeset: NodeSet, controller: Controller) -> dict[str, Any]:
    spec = nodeset.spec
    log = f"{wellknown.DIR_SLURM_LOG}/{wellknown.FILE_SLURMD_LOG}"
    return {
        **({} if spec.oversubscribe_node else {"affinity": _ALONE}),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "subdomain": nodeset.worker_service_name,
        "tolerations": node_fit.tolerations(),
        "initContainers": [
            pod_parts.container(
                pod_parts.logfile(
                    log, private=pod_parts.share_files(spec.template.spec, spec.slurmd, spec.logfile)
                ),
                spec.logfile,
                "spec.logfile",
            )
        ],
        "containers": [pod_parts.container(_slurmd(nodeset, controller), spec.slurmd, "spec.slurmd")],
        "volumes": [
            pod_parts.projected_volume(
                wellknown.VOLUME_SLURM_ETC,
                pod_parts.MODE_PRIVATE,
                pod_parts.slurm_key_file(controller.spec.slurm_key_ref),
            ),
            pod_parts.memory_volume(wellknown.VOLUME_LOGFILE),
            *(_ssh_volumes(nodeset) if spec.ssh.enabled else ()),
        ],
    }


def _ssh_volumes(nodeset: NodeSet) -> list[dict[str, Any]]:
    sshd = ConfigMapKeySelector(name=nodeset.ssh_config_name, key=wellknown.FILE_SSHD_CONFIG)
    return [
        pod_parts.projected_volume(
            wellknown.VOLUME_SSH_CONFIG,
            pod_parts.MODE_PRIVATE,
            pod_parts.config_map_file(sshd, wellknown.FILE_SSHD_CONFIG, pod_parts.MODE_PRIVATE),
        ),
        pod_parts.projected_volume(
            wellknown.VOLUME_SSSD_CONF,
            pod_parts.MODE_PRIVATE,
            pod_parts.secret_file(
                nodeset.spec.ssh.sssd_conf_ref, wellknown.FILE_SSSD_CONF, pod_parts.MODE_PRIVATE
            ),
        ),
    ]


def _slurmd(nodeset: NodeSet, controller: Controller) -> dict[str, Any]:
    alive = pod_parts.http_probe(wellknown.PATH_LIVEZ, SLURMD.name)
    ssh = nodeset.spec.ssh.enabled
    return {
        "name": SLURMD.name,
        "args": [
            "-Z",
            # Slurm takes a slurmd for the one that it waits for only if it was started after the power-up.
            *(("-b",) if nodeset.autoscaled else ()),
            "--conf-server",
            slurm_conf.conf_server(controller),
            "--conf",
            slurmd_conf.node_conf(nodeset),
            *slurmd_args.ARGUMENTS,
        ],
        "env": [
            {"name": _ENV_GRACE, "value": _grace(nodeset)},
            {
                "name": slurmd_conf.ENV_TOPOLOGY,
                "valueFrom": {
                    "fieldRef": {"fieldPath": f"metadata.annotations['{wellknown.ANNOTATION_TOPOLOGY}']"}
                },
            },
            *slurmd_conf.resource_environment(nodeset, reserve=slurm_conf.constrains_memory(controller)),
        ],
        "ports": [
            {"name": SLURMD.name, "containerPort": wellknown.PORT_SLURMD, "protocol": "TCP"},
            *((_SSH_PORT,) if ssh else ()),
        ],
        "startupProbe": pod_parts.patient(alive),
        # Only for a user who wants one: it ends every job in the container before Slurm gives slurmd up.
        **({"livenessProbe": pod_parts.patient(alive)} if _wants_liveness(nodeset) else {}),
        "readinessProbe": pod_parts.http_probe(wellknown.PATH_READYZ, SLURMD.name),
        "lifecycle": {"preStop": {"exec": {"command": ["/usr/bin/sh", "-c", pre_stop(nodeset)]}}},
        "securityContext": {"privileged": True, "capabilities": {"add": list(_CAPABILITIES)}},
        "volumeMounts": [
            {"name": wellknown.VOLUME_SLURM_ETC, "mountPath": wellknown.DIR_SLURM_ETC, "readOnly": True},
            {"name": wellknown.VOLUME_LOGFILE, "mountPath": wellknown.DIR_SLURM_LOG},
            *(_SSH_MOUNTS if ssh else ()),
        ],
    }


def _grace(nodeset: NodeSet) -> str:
    """Return how many seconds Kubernetes gives a worker to end."""
    given = nodeset.spec.template.spec.get("terminationGracePeriodSeconds")
    return str(given if isinstance(given, int) else _DEFAULT_GRACE)


def _wants_liveness(nodeset: NodeSet) -> bool:
    return any(item.get("livenessProbe") for _, item in slurmd_conf.own_container(nodeset))


# A worker takes its node for its own, and keeps other workers away from it.
_ALONE: Final[dict[str, Any]] = {
    "podAntiAffinity": {
        _REQUIRED: [
            {
                "labelSelector": {
                    "matchExpressions": [
                        {"key": wellknown.LABEL_APP_NAME, "operator": "In", "values": [SLURMD.name]}
                    ]
                },
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
_SSH_PORT: Final = {"name": _SSH_PORT_NAME, "containerPort": wellknown.PORT_SSH, "protocol": "TCP"}
_SSH_MOUNTS: Final = (
    {
        "name": wellknown.VOLUME_SSH_CONFIG,
        "mountPath": f"{wellknown.DIR_SSH}/{wellknown.FILE_SSHD_CONFIG}",
        "subPath": wellknown.FILE_SSHD_CONFIG,
        "readOnly": True,
    },
    {
        "name": wellknown.VOLUME_SSSD_CONF,
        "mountPath": wellknown.PATH_SSSD_CONF,
        "subPath": wellknown.FILE_SSSD_CONF,
        "readOnly": True,
    },
)
