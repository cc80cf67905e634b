"""The end of everything; these tests come last, as nothing is left for others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scripts.demo_cluster import NAMESPACE, OPERATOR_NAMESPACE, PATIENCE, RELEASE

if TYPE_CHECKING:
    from tests.support.e2e.slurm_cluster import Site

KINDS = (
    "pods,statefulsets,deployments,services,configmaps,secrets,poddisruptionbudgets,controllerrevisions,slurm"
)
# Made by Kubernetes in every namespace.
OTHERS = {"configmap/kube-root-ca.crt"}


def left(site: Site, kinds: str, *where: str) -> set[str]:
    return set(site.cluster.kubectl("get", kinds, "--output=name", *where).split()) - OTHERS


def test_deleted_namespace_leaves_no_worker(site: Site) -> None:
    """Kubernetes may not delete a protected worker, and does once the operator has given it up.

    With the namespace the Controller goes, too, so nothing is drained.
    """
    site.settled(2)
    where = "--namespace=leaving"
    site.cluster.kubectl("create", "namespace", "leaving")
    controller = site.cluster.get("controller", RELEASE)
    keys = (controller["spec"]["slurmKeyRef"]["name"], controller["spec"]["jwtKeyRef"]["name"])
    controller["spec"].pop("accountingRef", None)
    worker = site.nodeset()
    worker["spec"] |= {"replicas": 1, "controllerRef": {"name": RELEASE}}
    files = (one["name"] for one in controller["spec"].get("configFileRefs", ()))
    needed = [
        *(site.cluster.get("secret", name) for name in keys),
        *(site.cluster.get("configmap", name) for name in files),
    ]
    for item in (*needed, controller, worker):
        made = {key: item[key] for key in ("apiVersion", "kind", "spec", "data", "type") if key in item}
        made["metadata"] = {"name": item["metadata"]["name"]}
        site.cluster.kubectl("create", where, "--filename=-", stdin=json.dumps(made))

    def protected() -> bool:
        found = site.cluster.get("pods", where, "--selector=nodeset.slinky.slurm.net/pod-protect=true")
        return [one["status"]["phase"] for one in found["items"]] == ["Running"]

    site.until(protected, "the worker runs, and is protected")
    site.cluster.kubectl("delete", "namespace", "leaving", "--wait=false")
    names = ("get", "namespace", "leaving", "--ignore-not-found", "--output=name")
    site.until(lambda: not site.cluster.kubectl(*names), "the namespace is gone")
    site.settled(2)


def test_uninstalled_slurm_leaves_its_volumes(site: Site) -> None:
    """Slurm goes whole, a running job with it, and leaves only the state of slurmctld and the database.

    A NodeSet that is deleted alone waits for its jobs; with its Controller there is no Slurm left to ask, nor
    any job that could end well.
    """
    site.settled(2)
    site.start_job()
    site.cluster.run("helm", "uninstall", RELEASE, "--namespace", NAMESPACE, timeout=PATIENCE)
    site.until(lambda: not left(site, KINDS), "nothing is left")
    claims = left(site, "persistentvolumeclaims")
    assert {name.partition("/")[2] for name in claims} == {
        "statesave-slurm-controller-0",
        "data-slurm-mariadb-0",
    }


def test_uninstalled_operator_leaves_the_definitions(site: Site) -> None:
    """Of the operator itself nothing is left, and the definitions stay, and with them anybody's clusters."""
    site.cluster.run(
        "helm", "uninstall", "slurm-operator", "--namespace", OPERATOR_NAMESPACE, timeout=PATIENCE
    )
    mine = "--selector=app.kubernetes.io/part-of=slurm-operator"
    wide = (
        "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings"
    )
    inside = "pods,deployments,services,secrets,configmaps,roles,rolebindings,serviceaccounts"
    site.until(
        lambda: not left(site, wide, mine) | left(site, inside, mine, "--namespace", OPERATOR_NAMESPACE),
        "nothing of the operator is left",
    )
    kinds = site.cluster.kubectl("api-resources", "--api-group=slinky.slurm.net", "--output=name")
    assert "nodesets.slinky.slurm.net" in kinds.split()
