"""Autoscaling while parts of the system are killed, fail over, or lose the field that asks for it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from kubebox.errors import BoxError
from tests.support.e2e.elastic import (
    HELD,
    MOST,
    NAME,
    POD,
    SCALING,
    SPEC,
    completed,
    elastic,
    let_end,
    powered_down,
    states,
    submit,
    told,
    without_autoscaling,
)

if TYPE_CHECKING:
    from tests.support.e2e.slurm_cluster import Site

pytestmark = pytest.mark.long

# The same moments again: E2E_SEED=123 make test-long
SEED = int(os.environ.get("E2E_SEED") or random.SystemRandom().randrange(10**6))
RESUMES: Final = 30
_JOB: Final = re.compile(r"(?:^|\s)(JobId|JobState|Restarts)=(\S*)")
SLURMCTLD: Final = "app.kubernetes.io/name=slurmctld"
VICTIMS: Final = (
    ("slinky", "app.kubernetes.io/name=slurm-operator", "slurm-operator"),
    ("slurm", SLURMCTLD, "slurmctld"),
    ("slurm", "app.kubernetes.io/name=slurmrestd", "slurmrestd"),
)


def pods_of(site: Site, namespace: str, selector: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.cluster.get(
        "pods", f"--selector={selector}", "--namespace", namespace
    )["items"]
    return found


def end_back_off(site: Site) -> None:
    """Replace pods that the kubelet no longer starts at once: here no one kills them every minute."""
    for namespace, selector, _ in VICTIMS:
        for pod in pods_of(site, namespace, selector):
            waiting = [one["state"].get("waiting", {}) for one in pod["status"].get("containerStatuses", ())]
            if any(one.get("reason") == "CrashLoopBackOff" for one in waiting):
                name = pod["metadata"]["name"]
                site.cluster.kubectl("delete", "pod", name, "--namespace", namespace, "--wait=false")


class Watched:
    """What became of jobs and pods: slurmctld forgets a job five minutes after its end."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.jobs: dict[str, tuple[str, str]] = {}
        """State and number of restarts, by the number of the job."""
        self.uids: set[str] = set()
        self.drains = 0
        """How often slurmctld has drained a node because it had given the number of a job twice."""

    def submit(self, nodes: int) -> None:
        """Submit a job."""

        def submitted() -> bool:
            self.jobs[submit(self._site, f"--nodes={nodes}", "--wrap=sleep 3")] = ("", "0")
            return True

        self._site.until(submitted, "a job is submitted")

    def look(self) -> bool:
        """Note what there is to see, and return whether all jobs have run."""
        self.uids.update(pod["metadata"]["uid"] for pod in self._site.pods(POD).values())
        for line in self._site.cluster.slurm("scontrol", "--oneliner", "show", "jobs").splitlines():
            shown = dict(_JOB.findall(line))
            if shown.get("JobId") in self.jobs:
                self.jobs[shown["JobId"]] = (shown["JobState"], shown["Restarts"])
        self._undrain()
        return all(state == "COMPLETED" for state, _ in self.jobs.values())

    def _undrain(self) -> None:
        """Undo Slurm's own drains, as an administrator does.

        A slurmctld that is killed may forget the last job, which runs on; the next job gets its number, and
        slurmctld drains the node that refuses it.
        """
        for line in self._site.cluster.slurm("scontrol", "--oneliner", "show", "nodes").splitlines():
            if "Reason=Duplicate jobid" in line:
                name = line.partition("NodeName=")[2].split()[0]
                self._site.cluster.slurm("scontrol", "update", f"nodename={name}", "state=undrain")
                self.drains += 1

    def look_for(self, seconds: float) -> None:
        """Note what there is to see for a while; without an answer there is nothing."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(BoxError):
                self.look()
            time.sleep(1.0)


@pytest.mark.timeout(3000)
def test_resumes_survive_what_is_killed(site: Site) -> None:
    """Whichever of operator, slurmctld and slurmrestd is killed, each job runs, and all ends at zero."""
    chance = random.Random(SEED)  # noqa: S311 - to choose moments
    site.figures.append(f"          autoscaling: killed with E2E_SEED={SEED}")
    scaling = SCALING | {"idleSeconds": 5, "suspendTimeoutSeconds": 10}
    watched = Watched(site)
    kills = dict.fromkeys((program for *_, program in VICTIMS), 0)
    with elastic(site, SPEC | {"autoscaling": scaling}):
        site.until(lambda: powered_down(site), "Slurm has three nodes that are powered down")
        while len(watched.uids) < RESUMES:
            watched.submit(chance.randint(1, MOST))
            watched.look_for(chance.uniform(1, 20))
            namespace, selector, program = chance.choice(VICTIMS)
            kills[program] += sum(site.kill(pod, program) for pod in pods_of(site, namespace, selector))
            watched.look_for(chance.uniform(1, 30))
            end_back_off(site)
        site.until(watched.look, "each job has run")
        site.until(lambda: powered_down(site), "all nodes are powered down, and no pod is left")
    again = sum(restarts != "0" for _, restarts in watched.jobs.values())
    shown = ", ".join(f"{program} {times}" for program, times in kills.items())
    site.figures.append(
        f"          autoscaling: {len(watched.uids)} resumes, {len(watched.jobs)} jobs, {again} of them "
        f"started more than once, {watched.drains} drains by Slurm for a number given twice; killed: {shown}"
    )


def test_a_failover_of_slurmctld_during_a_resume(site: Site, pair: Site) -> None:
    """The standby goes on with the resume: the job runs on three workers, which then go."""
    site.scale(0)
    site.until(lambda: not site.pods(), "the other cluster has no worker")
    with elastic(pair, SPEC, workers=1):
        pair.until(lambda: powered_down(pair), "Slurm has three nodes that are powered down")
        job = submit(pair, "--nodes=3", "--wrap=srun --mem=16 hostname && sleep 2")
        pair.until(lambda: "mix#" in states(pair).values() or pair.pods(POD), "the nodes power up")
        began = time.monotonic()
        first = pair.pods(SLURMCTLD)["slurm-controller-0"]
        assert pair.kill(first, "slurmctld", signal.SIGSTOP)
        pair.until(lambda: told(pair, job), "the standby knows the job")
        over = time.monotonic() - began
        completed(pair, job)
        ended = time.monotonic() - began
        again = told(pair, job, "Restarts")
        # Unless its kubelet has done so by now.
        pair.kill(first, "slurmctld")
        pair.until(lambda: powered_down(pair), "all nodes are powered down, and no pod is left")
        pair.figures.append(
            f"          autoscaling: slurmctld hangs during a resume: standby answers after {over:.1f} s, "
            f"the job of three nodes has run after {ended:.1f} s, {again} restarts"
        )
    site.scale(2)
    site.settled(2)


def test_a_crd_that_prunes_the_field_ends_autoscaling(site: Site) -> None:
    """With a CRD that lacks the field, `replicas` counts after the next change; the job ends by itself."""
    crd = site.cluster.get("crd", "nodesets.slinky.slurm.net")
    ours = json.dumps(crd)
    with elastic(site, SPEC | {"replicas": 2}):
        site.until(lambda: powered_down(site), "Slurm has three nodes that are powered down")
        job = submit(site, "--nodelist=elastic-0", f"--wrap={HELD}")
        site.until(lambda: told(site, job) == "RUNNING", "a job runs on the first worker")
        try:
            site.cluster.kubectl("replace", "--filename=-", stdin=without_autoscaling(json.loads(ours)))
            site.until(lambda: "autoscaling" not in site.nodeset(NAME)["spec"], "the field is pruned")
            # Kubernetes tells no watch that a field is pruned, only of changes to the object.
            site.cluster.kubectl("annotate", "nodeset", NAME, "example.com/changed=yes")
            site.until(lambda: len(site.pods(POD)) == 2, "there are as many workers as replicas says")
            assert told(site, job) == "RUNNING"
            let_end(site, job, 0)
            site.until(
                lambda: "CLOUD" not in site.cluster.slurm("scontrol", "show", "nodes"), "no record is left"
            )
            site.settled(2, NAME)
        finally:
            restored = json.loads(ours)
            restored["metadata"].pop("resourceVersion")
            site.cluster.kubectl("replace", "--filename=-", stdin=json.dumps(restored))

        def kept() -> bool:
            site.patch({"autoscaling": SCALING}, NAME)
            return "autoscaling" in site.nodeset(NAME)["spec"]

        # The API server serves the new schema a moment after it has stored it.
        site.until(kept, "the field is kept")
        # For minutes it serves watches with the schema before; an upgrade of the operator starts it anew.
        for pod in pods_of(site, *VICTIMS[0][:2]):
            site.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--namespace", VICTIMS[0][0])
        site.until(lambda: powered_down(site), "the field counts again")
