"""The ways to ask for the end of a worker: cordon, drain, evict, delete."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.errors import BoxError
from scripts.demo_cluster import NODESET, OPERATOR_NAMESPACE, RELEASE
from slurm_operator.api import wellknown
from tests.support.e2e.slurm_cluster import DEADLINE
from tests.support.job_killed import JobKilled

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from tests.support.e2e.slurm_cluster import Site

FIRST, SECOND = f"{NODESET}-0", f"{NODESET}-1"
_OPERATOR = ("--namespace", OPERATOR_NAMESPACE)
_WORKERS_ONLY = ("--pod-selector=app.kubernetes.io/name=slurmd", "--force", "--delete-emptydir-data")
_MERGE = "application/merge-patch+json"
# Fine enough for a figure in tenths of a second.
_GLANCE = 0.05


@dataclass(frozen=True)
class Worker:
    """One pod of a NodeSet, not the one that takes its place later."""

    site: Site
    name: str
    uid: str
    node: str

    @classmethod
    def of(cls, site: Site, name: str) -> Worker:
        """Return the worker that a pod is just now."""
        pod = site.cluster.get("pod", name)
        return cls(site, name, pod["metadata"]["uid"], pod["spec"]["nodeName"])

    def pod(self) -> dict[str, Any] | None:
        """Return the pod; None if it is gone, or another one has its name."""
        with self.site.box.api() as api:
            reply = api.request("GET", self._path)
        if reply.status == HTTPStatus.NOT_FOUND:
            return None
        if not reply.ok:
            raise BoxError(f"{self.name}: {reply.status} {reply.text()}")
        found: dict[str, Any] = reply.json()
        return found if found["metadata"]["uid"] == self.uid else None

    def stays(self) -> bool:
        """Return whether the pod exists and is not being deleted."""
        pod = self.pod()
        return pod is not None and "deletionTimestamp" not in pod["metadata"]

    def protected(self) -> bool:
        """Return whether the pod stays and has the label that the budget selects."""
        pod = self.pod()
        return (
            pod is not None
            and "deletionTimestamp" not in pod["metadata"]
            and pod["metadata"]["labels"].get(wellknown.LABEL_POD_PROTECT) == "true"
        )

    def assert_stays(self) -> None:
        """Check that a worker with a running job has not been taken from it."""
        if not self.stays():
            raise JobKilled(f"{self.name} was deleted while a job ran in it")

    def released(self) -> float:
        """Wait until the worker is no longer protected, and return for how many seconds."""
        began = time.monotonic()
        while self.protected():
            if time.monotonic() > began + DEADLINE:
                pytest.fail(f"{self.name} is still protected after {DEADLINE:g} s", pytrace=False)
            time.sleep(_GLANCE)
        return time.monotonic() - began

    def evict(self) -> int:
        """Ask once for an eviction, as `kubectl drain` does every few seconds; return the status."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": self.name, "namespace": self.site.cluster.namespace},
            "deleteOptions": {"preconditions": {"uid": self.uid}},
        }
        with self.site.box.api(timeout=60.0) as api:
            return api.request("POST", f"{self._path}/eviction", eviction).status

    def assert_not_evicted(self) -> None:
        """Check that an eviction is refused by the budget, and that the worker stays."""
        status = self.evict()
        if status == HTTPStatus.CREATED:
            raise JobKilled(f"{self.name} was evicted while a job ran in it")
        assert status == HTTPStatus.TOO_MANY_REQUESTS
        self.assert_stays()

    def goes_when_evicted(self) -> bool:
        """Ask for an eviction once more, and return whether the worker goes or is gone."""
        self.evict()
        return not self.stays()

    def delete(self) -> str:
        """Ask to delete the pod, and return what is printed; BoxError carries the refusal."""
        return self.site.cluster.kubectl("delete", "pod", self.name, "--wait=false")

    def drain(self) -> AbstractContextManager[subprocess.Popen[str]]:
        """Start `kubectl drain` of the worker's node."""
        command = ("drain", self.node, *_WORKERS_ONLY, f"--timeout={2 * DEADLINE:g}s")
        return self.site.cluster.started("kubectl", *command)

    def cordon(self, *, undo: bool = False) -> None:
        """Cordon the worker's node, or uncordon it, in one request."""
        with self.site.box.api() as api:
            content = {"spec": {"unschedulable": not undo}}
            reply = api.request("PATCH", f"/api/v1/nodes/{self.node}", content, content_type=_MERGE)
        assert reply.ok, reply.text()

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.site.cluster.namespace}/pods/{self.name}"


def assert_drained(draining: subprocess.Popen[str]) -> None:
    """Wait until a `kubectl drain` is through, and check that it was content."""
    said, _ = draining.communicate(timeout=2 * DEADLINE)
    assert draining.returncode == 0, said


@contextmanager
def no_operator(site: Site) -> Iterator[None]:
    """Run without the operator; its webhook stays."""
    scale = ("scale", "deployment/slurm-operator", *_OPERATOR)
    selector = ("--selector=app.kubernetes.io/name=slurm-operator", "--output=name", *_OPERATOR)
    site.cluster.kubectl(*scale, "--replicas=0")
    try:
        site.until(lambda: not site.cluster.kubectl("get", "pods", *selector), "the operator is stopped")
        yield
    finally:
        site.cluster.kubectl(*scale, "--replicas=1")
    rollout = ("rollout", "status", "deployment/slurm-operator", *_OPERATOR, "--timeout=100s")
    site.cluster.kubectl(*rollout)


@contextmanager
def no_slurmrestd(site: Site) -> Iterator[None]:
    """Run without slurmrestd."""
    selector = "app.kubernetes.io/name=slurmrestd"
    site.cluster.patch("restapi", RELEASE, {"spec": {"replicas": 0}})
    try:
        site.until(lambda: not site.pods(selector), "slurmrestd is stopped")
        yield
    finally:
        site.cluster.patch("restapi", RELEASE, {"spec": {"replicas": 1}})


def p95(samples: Sequence[float]) -> float:
    """Return the smallest sample that 95 % of all do not exceed."""
    return sorted(samples)[-(-len(samples) * 95 // 100) - 1]


def note(site: Site, what: str, samples: Sequence[float]) -> None:
    """Add the 95th percentile of some times to the report."""
    site.figures.append(
        f"{p95(samples):6.1f} s  {what} (p95 of {len(samples)}, the longest {max(samples):.1f} s)"
    )
