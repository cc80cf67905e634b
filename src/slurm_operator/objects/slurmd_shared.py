"""NodeSet: the objects beside the worker pods.

The Service that gives workers their names in DNS, and the PodDisruptionBudget that protects them,
belong to all NodeSets of a Slurm cluster together. Every one of them owns both and none controls them: they
go when the last NodeSet goes. One that is being deleted owns them only if no other one stays: Kubernetes may
delete what it owns before it, and takes it from the owners of what has others. The ConfigMap for sshd is a
NodeSet's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import wellknown
from slurm_operator.objects import labels, services
from slurm_operator.objects.desired import Assembly, Desired, Manifest, ObjectName
from slurm_operator.objects.slurmd_identity import SLURMD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.api import NodeSet
    from slurm_operator.kube.models.kinds import PodDisruptionBudget


# More pods than there can be. With `maxUnavailable: 0` Kubernetes compares the healthy pods with the scale of
# the NodeSets, not with the pods that the budget selects, and allows evictions during any scale-in; and a pod
# that is not Ready could be evicted while enough others are.
_ALL = 2**31 - 1


def desired(nodeset: NodeSet, siblings: Iterable[NodeSet], *, ssh_in_use: bool) -> Desired:
    """Return the objects beside the pods; `siblings` are all NodeSets of the namespace, this one included.

    `ssh_in_use` says whether some pod still mounts sshd's configuration, which then stays: a kubelet that
    starts anew must find it.
    """
    owners = _owners(nodeset, siblings)
    assembly = Assembly()
    assembly.build(lambda: service(nodeset, owners))
    assembly.build(lambda: disruption_budget(nodeset, owners))
    if nodeset.spec.ssh.enabled:
        assembly.build(lambda: ssh_config(nodeset))
    elif not ssh_in_use:
        assembly.unwanted.append(ObjectName("v1", "ConfigMap", nodeset.ssh_config_name))
    return assembly.done()


def shared(nodeset: NodeSet, siblings: Iterable[NodeSet]) -> list[Manifest]:
    """Return the objects that all workers of the Slurm cluster share."""
    owners = _owners(nodeset, siblings)
    return [service(nodeset, owners), disruption_budget(nodeset, owners)]


def service(nodeset: NodeSet, owners: list[dict[str, Any]]) -> Manifest:
    """Return the Service over all workers of the Slurm cluster."""
    return services.headless_service(
        {
            "name": nodeset.worker_service_name,
            "namespace": nodeset.metadata.namespace,
            "labels": labels.recommended({}),
            "ownerReferences": owners,
        },
        port_name=SLURMD.name,
        port=wellknown.PORT_SLURMD,
        selector={
            wellknown.LABEL_APP_NAME: SLURMD.name,
            wellknown.LABEL_CLUSTER: nodeset.spec.controller_ref.name,
        },
    )


def disruption_budget(nodeset: NodeSet, owners: list[dict[str, Any]]) -> Manifest:
    """Return the budget that forbids the eviction of every protected worker."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": nodeset.worker_pdb_name,
            "namespace": nodeset.metadata.namespace,
            "labels": labels.recommended({}),
            "ownerReferences": owners,
        },
        "spec": {
            "minAvailable": _ALL,
            "selector": {
                "matchLabels": {
                    wellknown.LABEL_POD_PROTECT: wellknown.TRUE,
                    wellknown.LABEL_CLUSTER: nodeset.spec.controller_ref.name,
                }
            },
        },
    }


def protects(nodeset: NodeSet, budget: PodDisruptionBudget) -> bool:
    """Return whether a budget forbids the eviction of every protected worker of a NodeSet, and stays."""
    wanted = disruption_budget(nodeset, [])["spec"]
    selector = budget.spec.selector
    return (
        not budget.deleting
        and budget.spec.min_available == wanted["minAvailable"]
        and selector is not None
        and not selector.match_expressions
        and selector.match_labels == wanted["selector"]["matchLabels"]
    )


def ssh_config(nodeset: NodeSet) -> Manifest:
    """Return the ConfigMap with the configuration of sshd."""
    metadata = labels.object_metadata(nodeset, SLURMD, nodeset.ssh_config_name)
    metadata["labels"][wellknown.LABEL_CLUSTER] = nodeset.spec.controller_ref.name
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": False,
        "data": {wellknown.FILE_SSHD_CONFIG: sshd_config(nodeset)},
    }


def sshd_config(nodeset: NodeSet) -> str:
    """Return the configuration of sshd on workers: keys and passwords of users, as PAM and SSSD have it."""
    return (
        "#\n### GENERAL ###\n"
        f"Include {wellknown.DIR_SSH}/sshd_config.d/*.conf\n"
        "UsePAM yes\n"
        "Subsystem sftp internal-sftp\n"
        "AuthenticationMethods publickey password\n"
        f"#\n### EXTRA CONFIG ###\n{nodeset.spec.ssh.extra_sshd_config}\n"
    )


def _owners(nodeset: NodeSet, siblings: Iterable[NodeSet]) -> list[dict[str, Any]]:
    mine = (nodeset.metadata.namespace, nodeset.spec.controller_ref.name)
    found = {
        item.metadata.name: item
        for item in (*siblings, nodeset)
        if (item.metadata.namespace, item.spec.controller_ref.name) == mine
    }
    staying = {name: item for name, item in found.items() if not item.deleting}
    # What blocks the deletion of its owner is deleted first.
    blocks = bool(staying)
    return [
        {
            **{key: value for key, value in labels.owner_reference(item).items() if key != "controller"},
            "blockOwnerDeletion": blocks,
        }
        for _, item in sorted((staying or found).items())
    ]
