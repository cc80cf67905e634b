"""The cluster under test: pods, processes, nodes, jobs, and what is missing until it is at rest."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from faultlab.torture.submissions import FIELDS, read_records
from kubebox.errors import BoxError
from kubebox.procs import ProcessId
from scripts.demo_cluster import NODESET, OPERATOR_NAMESPACE, RELEASE, ROOT, Cluster, is_ready

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable

    from faultlab.torture.submissions import Record
    from kubebox import Box

Json = dict[str, Any]

WORKERS: Final = "app.kubernetes.io/name=slurmd"
SPARE: Final = "slurm-worker-spare"
TAINT: Final = "torture"
REASON: Final = "torture"
PROTECTED: Final = "nodeset.slinky.slurm.net/pod-protect"
OPERATOR: Final = "slurm-operator"
_NAME: Final = "app.kubernetes.io/name"
_CUT_SECONDS: Final = 30.0
_MIB: Final = 1024


class Postponed(BoxError):  # noqa: N818 - no error: it is done when its turn comes again
    """An action makes no sense now, or would end jobs by its own definition."""


class Stage:
    """A box with real nodes, and the Slurm cluster that is installed on it."""

    def __init__(self, box: Box, cluster: Cluster) -> None:
        self.box = box
        self.cluster = cluster

    # --- Kubernetes

    def pods(self, selector: str, namespace: str | None = None) -> dict[str, Json]:
        """Return pods by name."""
        where = ("--namespace", namespace or self.cluster.namespace)
        items = self.cluster.get("pods", f"--selector={selector}", *where)["items"]
        return {item["metadata"]["name"]: item for item in items}

    def pod_of(self, app: str) -> Json:
        """Return a pod of a daemon, of the operator or of its webhook, that runs."""
        namespace = OPERATOR_NAMESPACE if app.startswith(OPERATOR) else None
        for pod in self.pods(f"{_NAME}={app}", namespace).values():
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                return pod
        raise Postponed(f"there is no running {app}")

    def worker(self, number: int) -> Json:
        """Return one of the workers that run."""
        found = [
            pod
            for _, pod in sorted(self.pods(WORKERS).items())
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]
        if not found:
            raise Postponed("there is no running worker")
        return found[number % len(found)]

    def node(self, number: int) -> str:
        """Return the name of one of the nodes."""
        names = sorted(item["metadata"]["name"] for item in self.cluster.get("nodes")["items"])
        return str(names[number % len(names)])

    def exists(self, kind: str, name: str) -> bool:
        """Return whether there is such an object."""
        return bool(self.cluster.kubectl("get", kind, name, "--ignore-not-found", "--output=name").strip())

    def evict(self, pod: Json) -> int:
        """Ask once for an eviction, and return the status of the answer."""
        meta = pod["metadata"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        try:
            with self.box.api(timeout=60.0) as api:
                return api.request("POST", path, body).status
        except (OSError, http.client.HTTPException) as error:
            raise BoxError(f"eviction: {error}") from None

    def names(self) -> list[str]:
        """Return all objects of both namespaces, as `kubectl get --output=name` prints them."""
        listed = ("api-resources", "--namespaced", "--verbs=list", "--output=name")
        kinds = ",".join(self.cluster.kubectl(*listed).split())
        return [
            name
            for namespace in (self.cluster.namespace, OPERATOR_NAMESPACE)
            for name in self.cluster.kubectl(
                "get", kinds, "--output=name", "--namespace", namespace, "--ignore-not-found"
            ).split()
        ]

    # --- processes

    def processes(self, pod: Json, program: str) -> list[ProcessId]:
        """Return the processes of a program in the containers of a pod."""
        uid, name = pod["metadata"]["uid"], program.encode()
        found = (
            ProcessId.of(int(entry.name))
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _is_of(entry, uid, name)
        )
        return [process for process in found if process is not None]

    def send(self, pod: Json, program: str, how: signal.Signals) -> list[ProcessId]:
        """Send a program of a pod a signal, and return the processes that got it."""
        reached = [process for process in self.processes(pod, program) if process.signal(how)]
        if not reached:
            raise Postponed(f"{program} of {pod['metadata']['name']} does not run")
        return reached

    def operator_memory(self) -> float:
        """Return the resident memory of the operator in MiB; 0 if it does not run."""
        sizes = [0.0]
        for process in self.processes(self.pod_of(OPERATOR), OPERATOR):
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                sizes += [
                    int(line.split()[1]) / _MIB for line in status.splitlines() if line.startswith("VmRSS")
                ]
        return max(sizes)

    def cut(self, pod: Json, addresses: Iterable[str], *, mend: bool = False) -> None:
        """Cut a pod off from addresses, or connect it again."""
        machine = json.loads(next(self.box.state.glob("nodes/*/machine.json")).read_text(encoding="utf-8"))
        processes = self.processes(pod, OPERATOR)
        if not processes:
            raise Postponed("the operator does not run")
        words = (machine["rootfs"], str(processes[0].pid), "mend" if mend else "cut", *addresses)
        done = subprocess.run(  # noqa: S603 - a program of this package
            [sys.executable, "-m", "faultlab.torture.netcut", *words],
            capture_output=True,
            text=True,
            timeout=_CUT_SECONDS,
            check=False,
            cwd=ROOT,
        )
        if done.returncode != 0:
            raise BoxError(f"netcut: {done.stderr.strip()}")

    def rest_addresses(self) -> list[str]:
        """Return where slurmrestd is reached: its Service and its pods."""
        service = self.cluster.get("service", f"{RELEASE}-restapi")["spec"]["clusterIP"]
        pods = self.pods(f"{_NAME}=slurmrestd").values()
        found = [service, *(pod["status"].get("podIP") for pod in pods)]
        return [address for address in found if address and address != "None"]

    # --- Slurm

    def jobs(self) -> tuple[int, int]:
        """Return how many jobs run and how many are pending."""
        states = self.cluster.slurm("squeue", "--noheader", "--array", "--format=%T", timeout=30.0).split()
        return sum(state in ("RUNNING", "COMPLETING") for state in states), states.count("PENDING")

    def records(self, since: str) -> list[Record]:
        """Return what accounting knows about the jobs of the run."""
        command = ("sacct", "--allocations", "--duplicates", "--parsable2", "--noheader", "--array")
        what = (f"--starttime={since}", "--endtime=now", f"--format={','.join(FIELDS)}")
        return read_records(self.cluster.slurm(*command, *what))

    def drained_by_us(self) -> list[str]:
        """Return the Slurm nodes that were drained with scontrol in this run."""
        lines = self.cluster.slurm("sinfo", "--noheader", "--Node", "--format=%N|%E").splitlines()
        return sorted({line.partition("|")[0] for line in lines if line.partition("|")[2].strip() == REASON})

    def resume(self, node: str) -> None:
        """Resume a Slurm node, unless its worker is about to be removed: a new job would not be protected."""
        for pod in self.pods(WORKERS).values():
            if slurm_name(pod) == node and pod["metadata"].get("labels", {}).get(PROTECTED) != "true":
                raise Postponed(f"{node} is about to be removed")
        self.cluster.slurm("scontrol", "update", f"nodename={node}", "state=resume")

    # --- rest

    def missing(self, replicas: int) -> str:
        """Return what is missing until everything is as it should be; empty if nothing is."""
        if self.exists("nodeset", SPARE):
            return f"NodeSet {SPARE} still exists"
        nodeset = self.cluster.get("nodeset", NODESET)
        if lacking := unready(nodeset, replicas):
            return lacking
        others = self.cluster.get("accountings,controllers,loginsets,restapis")["items"]
        waiting = [f"{one['kind']} {one['metadata']['name']}" for one in others if not is_ready(one)]
        running, pending = self.jobs()
        if waiting or running or pending:
            return f"not ready: {', '.join(waiting) or 'nothing'}; {running} jobs run, {pending} are pending"
        return ""


def unready(nodeset: Json, replicas: int) -> str:
    """Return why a NodeSet is not at rest with that many workers; empty if it is."""
    status = nodeset.get("status", {})
    if status.get("observedGeneration") != nodeset["metadata"]["generation"]:
        return "the NodeSet's status is behind"
    counts = {key: status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")}
    usable = status.get("slurmIdle", 0) + status.get("slurmAllocated", 0)
    if {*counts.values(), usable} != {replicas} or status.get("slurmDrain"):
        return f"the NodeSet wants {replicas} workers: {counts}, usable in Slurm {usable}"
    return ""


def slurm_name(pod: Json) -> str:
    """Return the name that a worker has in Slurm."""
    spec = pod["spec"]
    return str(
        spec["nodeName"] if spec.get("hostNetwork") else spec.get("hostname") or pod["metadata"]["name"]
    )


def _is_of(process: Path, uid: str, program: bytes) -> bool:
    """Return whether a process of this machine runs a program in a container of the pod with this UID."""
    try:
        inside = uid in (process / "cgroup").read_text(encoding="utf-8")
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    # A script is called by its interpreter.
    return inside and program in {word.rpartition(b"/")[2] for word in words[:3]}
