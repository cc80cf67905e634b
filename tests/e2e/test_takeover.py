"""Migrating a cluster of Slinky slurm-operator in which pods and a job run.

On a Kubernetes of its own, without an operator and with an audit log: of all requests that change something,
it has those of our operator, one by one.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.console import Stopwatch
from scripts.demo_cluster import (
    NAMESPACE,
    OPERATOR_NAMESPACE,
    Cluster,
    images,
    install_operator,
    is_ready,
    real_box,
)
from tests.support.e2e.slinky_cluster import LOGIN, NODESET, WORKER, Reference, database, marks, statuses
from tests.support.e2e.slurm_cluster import Job, Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kubebox import Box
    from tests.fixtures.golden import Manifest

pytestmark = pytest.mark.timeout(1500)

GO_OPERATOR, USER = "manager", "kubectl-client-side-apply"
CUSTOM = {"accounting/acct", "controller/slurm", f"loginset/{LOGIN}", f"nodeset/{NODESET}", "restapi/slurm"}
BUDGET = "poddisruptionbudgets/slurm-workers-pdb-slurm"
# Made by Kubernetes for others of these, or last.
_NOT_CREATED = ("PersistentVolumeClaim", "Pod")
# What an operator at rest writes: that it is alive, and what happened.
_NO_CONTENT = ("leases", "events")
_READS = {"diag", "jobs", "nodes", "partitions", "ping", "reservations"}
_SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


# ---------------------------------------------------------------------------------------- what the other left


def create(site: Site, items: Iterable[Manifest], field_manager: str) -> dict[tuple[str, str], str]:
    """Create objects in the name of somebody, and return their UIDs."""
    text = "\n---\n".join(json.dumps(item) for item in items)
    form = '--output=jsonpath={.kind} {.metadata.name} {.metadata.uid}{"\\n"}'
    command = ("create", "--filename=-", form, f"--field-manager={field_manager}")
    lines = site.cluster.kubectl(*command, stdin=text).splitlines()
    return {(kind, name): uid for kind, name, uid in map(str.split, lines)}


def patch(site: Site, what: str, content: Manifest, *more: str) -> None:
    """Change something in the name of Slinky slurm-operator."""
    kind = "strategic" if what.startswith("pod/") else "merge"
    manager = f"--field-manager={GO_OPERATOR}"
    site.cluster.kubectl("patch", what, f"--type={kind}", manager, f"--patch={json.dumps(content)}", *more)


def set_up(site: Site) -> Job:
    """Make the cluster as Slinky slurm-operator had made it, and start a job in it."""
    reference = Reference(NAMESPACE)
    site.cluster.kubectl("create", "namespace", NAMESPACE)
    uids = create(site, reference.inputs, USER)
    create(site, database(), USER)
    for item in reference.made:
        for owner in item["metadata"].get("ownerReferences", ()):
            owner["uid"] = uids[owner["kind"], owner["name"]]
    made = [item for item in reference.made if item["kind"] not in _NOT_CREATED]
    # slurmctld does not start without slurmdbd, and is then waited for by Kubernetes, ever longer.
    first = [item for item in made if _is_of(item, "Accounting")]
    create(site, first, GO_OPERATOR)
    runs(site, "statefulset/acct-accounting")
    create(site, [item for item in made if item not in first], GO_OPERATOR)
    site.until(lambda: site.uid("slurm-controller-0"), "slurmctld has a pod")
    patch(
        site,
        "pod/slurm-controller-0",
        {"metadata": {"labels": {"controller.slinky.slurm.net/active": "true"}}},
    )
    create(site, [reference.one("Pod", WORKER)], GO_OPERATOR)
    for name in ("statefulset/slurm-controller", "deployment/slurm-restapi", f"deployment/{LOGIN}"):
        runs(site, name)
    site.until(lambda: is_ready(site.cluster.get("pod", WORKER)), "the worker runs")
    job = site.start_job(WORKER)
    tell(site, reference, uids["NodeSet", NODESET], job)
    return job


def tell(site: Site, reference: Reference, nodeset_uid: str, job: Job) -> None:
    """Write what Slinky slurm-operator writes while a job runs: on the pod, on Slurm's node, in statuses."""
    asked = site.cluster.slurm("squeue", "--noheader", f"--jobs={job.identity}", "--format=%S %C")
    start, taken = asked.split()
    full = taken == site.cluster.slurm("sinfo", "--noheader", "--format=%c").strip()
    written = marks(site.cluster.get("pod", WORKER), nodeset_uid, start, full=full)
    patch(site, f"pod/{WORKER}", written.metadata)
    patch(site, f"pod/{WORKER}", written.status, "--subresource=status")
    site.cluster.slurm("scontrol", "update", f"nodename={WORKER}", f"comment={written.comment}")
    for what, content in statuses(reference):
        patch(site, what, content, "--subresource=status")


def runs(site: Site, name: str) -> None:
    """Wait until all pods of a workload are ready."""

    def so() -> bool:
        found = site.cluster.get(name)
        return bool(found.get("status", {}).get("readyReplicas", 0) == found["spec"]["replicas"])

    site.until(so, f"{name} runs")


def _is_of(item: Manifest, kind: str) -> bool:
    return any(owner["kind"] == kind for owner in item["metadata"].get("ownerReferences", ()))


@pytest.fixture(scope="module")
def left(kube_programs: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Hand out the running job of a cluster that Slinky slurm-operator left, with nobody looking after it."""
    del kube_programs
    say = Stopwatch(sys.stderr)
    with real_box(None, images(say), say, nodes=2, audit=True) as box:
        cluster = Cluster(box.kubeconfig, tmp_path_factory.mktemp("takeover"), say, login=LOGIN)
        cluster.install("slurm-operator-crds", "slurm-operator-crds", OPERATOR_NAMESPACE)
        yield set_up(Site(box, cluster, ""))


# --------------------------------------------------------------------------------------------- what ours does


@dataclass(frozen=True)
class Write:
    """One request of our operator that may change something."""

    verb: str
    what: str
    manager: str
    code: int


def writes(box: Box) -> list[Write]:
    """Return what our operator has sent so far, but for its lease and Events."""
    found = []
    for line in box.audit_log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        target = entry.get("objectRef", {})
        ours = entry["user"]["username"].startswith(f"system:serviceaccount:{OPERATOR_NAMESPACE}:")
        if not ours or entry["verb"] in ("get", "list", "watch") or target.get("resource") in _NO_CONTENT:
            continue
        what = "/".join(filter(None, (target["resource"], target.get("name"), target.get("subresource"))))
        manager = re.search(r"fieldManager=([\w-]+)", entry["requestURI"])
        found.append(
            Write(entry["verb"], what, manager[1] if manager else "", entry["responseStatus"]["code"])
        )
    return found


def samples(site: Site) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield the metrics of our operator."""
    pods = site.cluster.get("pods", "--namespace", OPERATOR_NAMESPACE)["items"]
    (pod,) = (pod for pod in pods if pod["metadata"]["labels"]["app.kubernetes.io/name"] == "slurm-operator")
    path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
    for line in site.cluster.kubectl("get", "--raw", path).splitlines():
        if (found := _SAMPLE.fullmatch(line)) is not None:
            yield found[1], dict(_LABEL.findall(found[2])), float(found[3])


def reconciles(site: Site) -> Counter[str]:
    """Return how many reconciles each controller has ended, if nothing is under way or waits."""
    counts: Counter[str] = Counter()
    for name, labels, value in samples(site):
        if name in ("workqueue_depth", "workqueue_unfinished_work_seconds") and value:
            return Counter()
        if name == "controller_runtime_reconcile_total":
            counts[labels["controller"].removesuffix("-controller")] += int(value)
    return counts


def reconciled_again(site: Site, mark: str) -> None:
    """Touch each custom resource as `kubectl apply` does, and wait until its controller has looked at it."""
    site.until(lambda: reconciles(site), "every controller rests")
    before = reconciles(site)
    # Of all annotations only this one is passed on to nobody.
    content = {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": mark}}}
    for what in CUSTOM:
        kind, _, name = what.partition("/")
        site.cluster.patch(kind, name, content)
    kinds = {what.partition("/")[0] for what in CUSTOM}
    site.until(
        lambda: all(reconciles(site)[kind] > before[kind] for kind in kinds),
        "every controller reconciled again",
    )


def pods(site: Site) -> dict[str, Any]:
    """Return who each pod is and how often its containers were started again."""
    found = site.cluster.get("pods")["items"]
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            {one["name"]: one["restartCount"] for one in pod["status"]["containerStatuses"]},
        )
        for pod in found
    }


def objects(site: Site) -> set[str]:
    """Return everything that an operator makes or looks after."""
    kinds = (
        "slurm,services,configmaps,secrets,statefulsets,deployments,poddisruptionbudgets,controllerrevisions"
    )
    return set(site.cluster.kubectl("get", kinds, "--output=name").split())


def test_pods_and_jobs_do_not_notice_a_new_operator(left: Job) -> None:
    """No pod is touched, no node drained, the job ends well, and only what is ours to write is written."""
    site = left.site
    running, made = pods(site), objects(site)
    install_operator(site.cluster)
    for what in CUSTOM:
        site.until(lambda what=what: is_ready(site.cluster.get(what)), what)  # type: ignore[misc]
    # One reconcile may still be on its way when all say that they are ready.
    reconciled_again(site, "first")

    sent = writes(site.box)
    assert {write.verb for write in sent} == {"patch"}
    assert {write.what for write in sent if write.code == 200} == {
        *_statuses(),
        *_children(),
        *_of_nodesets(),
        # Its labels only: the keys stay.
        "secrets/login-ssh-host-keys",
    }
    handed = Counter(write.what for write in sent if write.manager == "slurm-operator-takeover")
    # One request exchanges the two fields of the budget of which it can have only one.
    assert handed == Counter([*_children(), BUDGET])
    assert objects(site) == made

    reconciled_again(site, "second")
    assert writes(site.box)[len(sent) :] == []
    assert {
        labels["operation"] for name, labels, _ in samples(site) if "slurm_requests_total" in name
    } <= _READS

    assert pods(site) == running
    left.assert_unharmed()
    left.end()


def _statuses() -> set[str]:
    """Name what says how things are."""
    return {f"{kind}s/{name}/status" for kind, _, name in (what.partition("/") for what in CUSTOM)}


def _children() -> set[str]:
    """Name what Slinky slurm-operator made and ours looks after: its fields change hands once."""
    services = ("acct-accounting", LOGIN, "slurm-controller", "slurm-controller-internal", "slurm-restapi",
                "slurm-workers-slurm")  # fmt: skip
    return {
        *(f"services/{name}" for name in services),
        "configmaps/slurm-config",
        f"configmaps/{LOGIN}-ssh-config",
        "secrets/acct-accounting",
        "statefulsets/acct-accounting",
        "statefulsets/slurm-controller",
        "deployments/slurm-restapi",
        f"deployments/{LOGIN}",
        BUDGET,
    }


def _of_nodesets() -> set[str]:
    """Name what a NodeSet needs besides: its finalizer, labels by which its revision is found, protection."""
    revision = next(item for item in Reference(NAMESPACE).made if item["kind"] == "ControllerRevision")
    workers = {
        f"pods/{item['metadata']['name']}" for item in Reference(NAMESPACE).made if item["kind"] == "Pod"
    }
    return {f"nodesets/{NODESET}", f"controllerrevisions/{revision['metadata']['name']}", *workers}
