"""Slurm's own scheduler decides which workers run: from zero to as many as a job needs, and back."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from scripts.demo_cluster import RELEASE
from tests.support.e2e.elastic import (
    HELD,
    IDLE_SECONDS,
    MOST,
    NAME,
    POD,
    SCALING,
    SPEC,
    completed,
    condition,
    elastic,
    let_end,
    powered_down,
    states,
    submit,
    timeline,
    told,
)
from tests.support.e2e.slurm_cluster import SBATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.e2e.slurm_cluster import Site

# Slurm gives one or the other to a job that asks for more nodes than its partition has.
TOO_MANY = ("PartitionNodeLimit", "PartitionConfig")
# From another node than its own, each task of the job step says where it is.
ON_THREE_NODES = "test $(srun --mem=16 hostname | sort -u | wc -l) -eq 3 && sleep 2"


def test_a_job_starts_its_workers_and_idle_ones_go(site: Site) -> None:
    """At zero a job of three nodes gets three pods, runs on all of them, and they go when they are idle."""
    with elastic(site, SPEC):
        site.until(lambda: powered_down(site), "Slurm has three nodes that are powered down")
        began = time.monotonic()
        job = submit(site, "--nodes=3", "--constraint=fast", f"--wrap={ON_THREE_NODES}")
        steps = timeline(site, job, began)
        assert told(site, job, "Restarts") == "0"
        gone = site.until(lambda: not site.pods(POD), "the idle workers are gone")
        site.until(lambda: powered_down(site), "all nodes are powered down")
        site.until(lambda: condition(site) == "3 powered down", "the NodeSet says so")
        site.figures.append(f"          autoscaling, since submit: {steps}; pods gone {gone:.1f} s later")


@pytest.mark.long
def test_a_burst_of_fifty_jobs(site: Site) -> None:
    """Fifty jobs at once need three workers, each of them once; every job runs once."""
    with elastic(site, SPEC):
        site.until(lambda: powered_down(site), "Slurm has three nodes that are powered down")
        line = " ".join((*SBATCH, "--partition=elastic", "--job-name=burst", "--wrap='sleep 1'"))
        began = time.monotonic()
        site.cluster.slurm("sh", "-c", f"for one in $(seq 50); do {line} || exit 1; done")
        uids: set[str] = set()

        def ended() -> bool:
            uids.update(pod["metadata"]["uid"] for pod in site.pods(POD).values())
            waiting = site.cluster.slurm("squeue", "--noheader", "--name=burst", "--format=%i")
            return not waiting.split()

        site.until(ended, "all jobs have ended")
        seconds = time.monotonic() - began
        shown = site.cluster.slurm("scontrol", "--oneliner", "show", "jobs").splitlines()
        jobs = [job for job in shown if "JobName=burst" in job]
        assert len(jobs) == 50
        assert all("JobState=COMPLETED" in job and "Restarts=0" in job for job in jobs)
        assert len(uids) == MOST
        site.until(lambda: powered_down(site), "all nodes are powered down")
        site.figures.append(f"          autoscaling: 50 jobs of 1 s on 3 workers in {seconds:.1f} s")


@contextmanager
def fake_gpus(site: Site) -> Iterator[None]:
    """Let Slurm know GPUs, and slurmd find two of them; then set everything back."""
    devices = "".join(f"Name=gpu Type=fake File=/dev/{name}\n" for name in ("null", "zero"))
    set_up = ("--set", "controller.extraConfMap.GresTypes=gpu", "--set", f"configFiles.gres\\.conf={devices}")
    site.settled(2)
    site.cluster.install(RELEASE, "slurm", site.cluster.namespace, "--reuse-values", *set_up)
    config = ("scontrol", "show", "config")
    try:
        site.until(lambda: "gpu" in _gres_types(site.cluster.slurm(*config)), "Slurm knows GPUs")
        site.settled(2)
        yield
    finally:
        site.cluster.run("helm", "rollback", RELEASE, "--namespace", site.cluster.namespace)
        site.until(lambda: "gpu" not in _gres_types(site.cluster.slurm(*config)), "Slurm has no GPUs")
        site.settled(2)


def _gres_types(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("GresTypes"))


@pytest.mark.long
def test_gres_and_features_are_honoured(site: Site) -> None:
    """Slurm powers up the node that has what a job asks for, and the job gets its devices."""
    other = "slurm-worker-other"
    one = {**SCALING, "maxReplicas": 1}
    gpus = SPEC | {"autoscaling": one, "extraConf": "CPUs=1 RealMemory=64 Features=fast Gres=gpu:fake:2"}
    plain = SPEC | {
        "autoscaling": one,
        "extraConf": "CPUs=1 RealMemory=64 Features=slow",
        "template": {"spec": {**SPEC["template"]["spec"], "hostname": "other-"}},
    }
    run = ("timeout", "110", "srun", "--mem=16", "--chdir=/tmp")
    with fake_gpus(site), elastic(site, gpus):
        site.make_nodeset(other, plain)
        both = {"elastic-0": "idle~", "other-0": "idle~"}
        # The records of other workers that are gone are in this partition, too.
        site.until(lambda: both.items() <= states(site, "all").items(), "Slurm has both, powered down")
        show = ("sh", "-c", "echo $(hostname) $CUDA_VISIBLE_DEVICES")
        assert site.cluster.slurm(*run, "--gres=gpu:fake:2", *show).split() == ["elastic-0", "0,1"]
        assert not site.pods(f"app.kubernetes.io/instance={other}")
        assert site.cluster.slurm(*run, "--constraint=slow", "hostname").split() == ["other-0"]
        shown = site.cluster.slurm("sh", "-c", "sbatch --gres=gpu:fake:3 --wrap=true 2>&1 || true")
        assert "Requested node configuration is not available" in shown
        site.cluster.kubectl("delete", "nodeset", other, "--timeout=100s")


@pytest.mark.long
def test_what_a_job_cannot_get(site: Site) -> None:
    """More nodes than there are, a pod that fits nowhere, and idle workers that are kept."""
    nowhere = {"nodeSelector": {"no": "such-node"}}
    template = {"spec": {**SPEC["template"]["spec"], **nowhere}}
    scaling = SCALING | {"resumeTimeoutSeconds": 30}
    with elastic(site, SPEC | {"template": template, "autoscaling": scaling}):
        site.until(lambda: powered_down(site), "Slurm has three nodes that are powered down")
        many = submit(site, "--nodes=4", "--wrap=true")
        site.until(lambda: told(site, many, "Reason") in TOO_MANY, "it asks for too many")
        job = submit(site, "--wrap=true")
        site.until(lambda: len(site.pods(POD)) == 1, "its pod is created")
        site.until(
            lambda: "node affinity/selector" in degraded(site), "the NodeSet has the scheduler's message"
        )
        site.until(
            lambda: int(told(site, job, "Restarts")) >= 1, "Slurm requeues it when its pod comes too late"
        )
        site.until(lambda: powered_down(site), "the pod is gone, and the node can be used again")
        # Pods that are created from now on fit.
        fits = {"spec": {"nodeSelector": None}}
        site.patch({"template": fits, "autoscaling": SCALING | {"minReplicas": 1}}, NAME)
        site.until(lambda: told(site, job) == "COMPLETED", "the job runs when a pod can")
        site.until(lambda: len(site.pods(POD)) == 1, "one worker is kept")
        time.sleep(2 * IDLE_SECONDS)
        assert len(site.pods(POD)) == 1
        site.cluster.slurm("scancel", many)


def degraded(site: Site) -> str:
    """Return what the NodeSet says is wrong."""
    found = site.nodeset(NAME)["status"]["conditions"]
    return next(str(one["message"]) for one in found if one["type"] == "Degraded")


@pytest.mark.long
def test_switching_it_on_and_off_disturbs_no_job(site: Site) -> None:
    """Workers that run jobs keep them; their records are replaced when they are idle."""
    plain = {key: value for key, value in SPEC.items() if key != "autoscaling"} | {"replicas": 2}
    with elastic(site, plain):
        site.settled(2, NAME)
        job = site.start_job("elastic-0")
        site.patch({"autoscaling": SCALING}, NAME)
        job.until(lambda: states(site).get("elastic-2") == "idle~", "Slurm has a node more")
        job.until(lambda: states(site).get("elastic-1") == "idle~", "the idle worker is powered down")
        job.assert_unharmed()
        job.end()
        site.until(lambda: powered_down(site), "so is the other one")
        other = submit(site, f"--wrap={HELD}")
        site.until(lambda: told(site, other) == "RUNNING", "a job runs on a worker that was powered up")
        site.patch({"autoscaling": {**SCALING, "maxReplicas": 1}}, NAME)
        site.until(lambda: [*states(site)] == ["elastic-0"], "the nodes above the maximum are gone")
        site.patch({"autoscaling": None, "replicas": 2}, NAME)
        site.until(lambda: site.nodeset(NAME)["status"].get("readyReplicas") == 2, "there are two workers")
        assert told(site, other) == "RUNNING"
        let_end(site, other, 0)
        site.settled(2, NAME)
        site.until(lambda: "CLOUD" not in site.cluster.slurm("scontrol", "show", "nodes"), "all is as before")


@pytest.mark.long
def test_a_maximum_below_a_busy_worker(site: Site) -> None:
    """The worker above the maximum keeps its job and goes later; a higher maximum brings it back."""
    with elastic(site, SPEC):
        site.until(lambda: powered_down(site), "Slurm has three nodes that are powered down")
        job = submit(site, "--nodelist=elastic-2", f"--wrap={HELD}")
        site.until(lambda: told(site, job) == "RUNNING", "a job runs on the last worker")
        site.patch({"autoscaling": SCALING | {"maxReplicas": 1}}, NAME)
        site.until(
            lambda: states(site) == {"elastic-0": "idle~", "elastic-2": "drng"},
            "the free node is gone, the busy one is drained",
        )
        assert told(site, job) == "RUNNING"
        let_end(site, job, 2)
        site.until(lambda: states(site) == {"elastic-0": "idle~"}, "the last one is gone, too")
        site.patch({"autoscaling": SCALING}, NAME)
        site.until(lambda: powered_down(site), "Slurm has three nodes again")
        completed(site, submit(site, "--nodelist=elastic-2", "--wrap=true"))


@pytest.mark.long
def test_a_nodeset_is_deleted_while_its_workers_are_up(site: Site) -> None:
    """Idle workers go at once with their NodeSet, and leave no record in Slurm."""
    with elastic(site, SPEC | {"autoscaling": SCALING | {"minReplicas": 1}}):
        site.until(lambda: "idle" in states(site).values(), "a worker is up")
        began = time.monotonic()
        site.cluster.kubectl("delete", "nodeset", NAME, "--timeout=100s")
        seconds = time.monotonic() - began
        site.figures.append(f"          autoscaling: a NodeSet with a worker is gone after {seconds:.1f} s")
        site.make_nodeset(NAME, SPEC)
