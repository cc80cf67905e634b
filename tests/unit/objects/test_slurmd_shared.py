"""The objects beside the worker pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from slurm_operator.objects import slurmd_shared
from slurm_operator.objects.desired import ObjectName
from tests.support.objects.resources import node_set

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet

SSH = {"enabled": True, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}


def of_cluster(name: str, controller: str) -> NodeSet:
    return node_set(name, controllerRef={"name": controller})


def test_shared_objects_belong_to_all_sets_of_the_cluster() -> None:
    """Service and budget are owned by every NodeSet of the Slurm cluster, by name, and controlled by none."""
    elsewhere = node_set("far")
    elsewhere = msgspec.structs.replace(
        elsewhere, metadata=msgspec.structs.replace(elsewhere.metadata, namespace="other")
    )
    others = [node_set("gpu"), of_cluster("x", "another"), elsewhere, node_set("cpu")]
    for mine in (others[0], node_set("new")):
        desired = slurmd_shared.desired(mine, others, ssh_in_use=False)
        assert {item["kind"] for item in desired.objects} == {"Service", "PodDisruptionBudget"}
        for item in desired.objects:
            owners = item["metadata"]["ownerReferences"]
            assert [owner["name"] for owner in owners] == sorted({"cpu", "gpu", mine.metadata.name})
            assert all(owner["blockOwnerDeletion"] and "controller" not in owner for owner in owners)


def test_every_set_makes_the_same_shared_objects() -> None:
    """NodeSets of a cluster agree about what they share, so none undoes the work of another."""
    both = [node_set("cpu"), node_set("gpu", replicas=3)]
    first, second = (slurmd_shared.desired(item, both, ssh_in_use=False) for item in both)
    assert first.objects == second.objects


def test_a_set_that_is_deleted_owns_what_it_shares_only_if_no_other_one_stays() -> None:
    """Kubernetes would delete it before the workers are drained, or take the owner off again and again."""

    def leaving(name: str) -> NodeSet:
        made = node_set(name)
        meta = msgspec.structs.replace(made.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
        return msgspec.structs.replace(made, metadata=meta)

    def owners(*sets: NodeSet) -> list[tuple[str, bool]]:
        found = [
            [
                (owner["name"], owner["blockOwnerDeletion"])
                for item in slurmd_shared.shared(mine, sets)
                for owner in item["metadata"]["ownerReferences"]
            ]
            for mine in sets
        ]
        assert all(one == found[0] for one in found)
        return found[0][: len(found[0]) // 2]

    assert owners(leaving("cpu"), node_set("gpu")) == [("gpu", True)]
    assert owners(leaving("cpu"), leaving("gpu")) == [("cpu", False), ("gpu", False)]


@pytest.mark.parametrize("mode", ["StatefulSet", "DaemonSet"])
def test_the_budget_allows_no_eviction_whatever_the_scale(mode: str) -> None:
    """The budget asks for more pods than there can be: it depends neither on the scale nor on readiness."""
    made = slurmd_shared.desired(node_set("gpu", scalingMode=mode), [], ssh_in_use=False)
    budget = made.find("PodDisruptionBudget", "slurm-workers-pdb-slurm")
    assert budget is not None
    assert budget["spec"] == {
        "minAvailable": 2147483647,
        "selector": {
            "matchLabels": {
                "nodeset.slinky.slurm.net/pod-protect": "true",
                "slinky.slurm.net/cluster": "slurm",
            }
        },
    }


def test_the_configuration_of_sshd_exists_with_ssh_alone() -> None:
    """sshd's ConfigMap is made with SSH, removed without it, and stays while a pod mounts it."""
    with_ssh, without = node_set("gpu", ssh=SSH), node_set("gpu")
    made = slurmd_shared.desired(with_ssh, [], ssh_in_use=True)
    assert made.find("ConfigMap", "gpu-ssh-config") is not None
    assert made.unwanted == ()
    assert slurmd_shared.desired(without, [], ssh_in_use=False).unwanted == (
        ObjectName("v1", "ConfigMap", "gpu-ssh-config"),
    )
    assert slurmd_shared.desired(without, [], ssh_in_use=True).unwanted == ()


def test_own_lines_stand_last_in_the_configuration_of_sshd() -> None:
    """What a user adds to sshd_config stands behind the operator's lines."""
    text = slurmd_shared.sshd_config(node_set("gpu", ssh=SSH | {"extraSshdConfig": "X11Forwarding yes"}))
    assert text.endswith("\n#\n### EXTRA CONFIG ###\nX11Forwarding yes\n")
