"""What is made from the NodeSets of a recorded case, and the Kubernetes nodes of the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import NodeSet
from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.kube.manifests.revisions import go_json, hash_revision
from slurm_operator.kube.models.kinds import Node, Pod
from slurm_operator.objects import slurmd, slurmd_shared
from slurm_operator.objects.slurmd_claims import claims
from slurm_operator.objects.slurmd_identity import WorkerIdentity, numbered, of_node
from slurm_operator.objects.slurmd_revision import revision_data
from tests.support.objects.golden_cases import DOMAIN, World

if TYPE_CHECKING:
    from slurm_operator.objects.desired import Manifest

# On these the recording ran, and no annotation was on them.
KUBE_NODES = ("kwok-00001", "kwok-00003")


def node(name: str = "n1", **metadata: Any) -> Node:
    return msgspec.convert({"metadata": {"name": name} | metadata}, Node)


def existing(manifest: Manifest, **spec: Any) -> Pod:
    """Return a pod that we made as the API server gives it back."""
    body = manifest | {
        "metadata": manifest["metadata"] | {"uid": f"uid-{manifest['metadata']['name']}"},
        "spec": manifest["spec"] | spec,
    }
    return msgspec.convert(body, Pod)


def revision_hash(nodeset: NodeSet) -> str:
    return hash_revision(go_json(revision_data(nodeset)), 0)


def nodesets(world: World) -> list[NodeSet]:
    """Return the NodeSets of a case, each with a UID of its own."""
    return [
        msgspec.structs.replace(
            item, metadata=msgspec.structs.replace(item.metadata, uid=f"uid-{item.metadata.name}")
        )
        for item in world.all(NodeSet)
    ]


def workers(world: World, nodeset: NodeSet) -> list[WorkerIdentity]:
    """Return the workers that the recording has: numbered ones, or those of its Kubernetes nodes."""
    if nodeset.spec.scaling_mode == ScalingMode.STATEFUL_SET:
        return [numbered(nodeset, ordinal) for ordinal in range(nodeset.spec.replicas)]
    names = {
        item["spec"]["hostname"]: item["metadata"]["name"]
        for item in world.case.made
        if item["kind"] == "Pod"
    }
    return [of_node(node(kube_node), names[kube_node]) for kube_node in KUBE_NODES]


def made_from(world: World) -> list[Manifest]:
    """Return all objects made from the NodeSets of a case, but for revisions."""
    everyone = nodesets(world)
    found: dict[tuple[str, str], Manifest] = {}
    for nodeset in everyone:
        shared = slurmd_shared.desired(nodeset, everyone, ssh_in_use=False)
        template = slurmd.worker_template(nodeset, world.controller, world.found, cluster_domain=DOMAIN)
        objects = list(shared.objects)
        for worker in workers(world, nodeset):
            objects += claims(nodeset, worker.claim_identity)
            objects.append(slurmd.pod(template, worker, revision_hash(nodeset)))
        found |= {(item["kind"], item["metadata"]["name"]): item for item in objects}
    return list(found.values())
