"""The images fulfil the contract: what the operator renders runs, and a job runs on it."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.console import Stopwatch
from kubebox.errors import BoxError
from kubebox.images.slurm import provide_slurm_images, slurm_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox import Box

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).resolve().parents[3]
_DEADLINE = 300.0
_API = "slinky.slurm.net/v1beta1"
_OPERATOR = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "operator"},
    "spec": {
        "selector": {"matchLabels": {"app": "operator"}},
        "template": {
            "metadata": {"labels": {"app": "operator"}},
            "spec": {
                "containers": [
                    {
                        "name": "operator",
                        "image": "kubebox.local/slurm-operator:dev",
                        "command": ["slurm-operator"],
                        "args": ["manager", "--leader-elect=false"],
                        "securityContext": {"runAsNonRoot": True, "readOnlyRootFilesystem": True},
                    }
                ]
            },
        },
    },
}


def secret(name: str, key: str) -> dict[str, Any]:
    data = {key: secrets.token_urlsafe(48)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def custom(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def image(name: str) -> dict[str, str]:
    return {"image": slurm_image(name)}


def slurm() -> list[dict[str, Any]]:
    """Return a Slurm cluster of a controller, a REST server and two workers."""
    here = {"controllerRef": {"name": "slurm"}}
    return [
        secret("auth", "slurm.key"),
        secret("jwt", "jwt.key"),
        # Test machines lend nobody their control groups.
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "files"},
            "data": {"cgroup.conf": "CgroupPlugin=disabled\n"},
        },
        custom(
            "Controller",
            "slurm",
            slurmKeyRef={"name": "auth", "key": "slurm.key"},
            jwtKeyRef={"name": "jwt", "key": "jwt.key"},
            slurmctld=image("slurmctld"),
            logfile=image("tools"),
            configFileRefs=[{"name": "files"}],
            extraConf="ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none",
        ),
        custom("RestApi", "slurm", **here, slurmrestd=image("slurmrestd")),
        custom(
            "NodeSet",
            "worker",
            **here,
            replicas=2,
            slurmd={**image("slurmd"), "resources": {"limits": {"cpu": "1", "memory": "512Mi"}}},
            logfile=image("tools"),
            partition={"enabled": True, "config": "Default=YES"},
        ),
    ]


def apply(box: Box, objects: list[dict[str, Any]]) -> None:
    box.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(item) for item in objects))


def until(box: Box, attempt: Callable[[], str], wanted: Callable[[str], bool]) -> str:
    deadline = time.monotonic() + _DEADLINE
    answer = ""
    while time.monotonic() < deadline:
        try:
            if wanted(answer := attempt()):
                return answer
        except BoxError as error:
            answer = str(error)
        time.sleep(1)
    pytest.fail(f"{answer}\n{box.kubectl('get', 'pods,events', '-A')}", pytrace=False)


def test_a_job_runs_across_workers_that_the_operator_made(kube_box_factory: Callable[..., Box]) -> None:
    """Operator, slurmctld, slurmrestd and two slurmd run as pods, and a job runs on both workers at once."""
    made = subprocess.run(
        [sys.executable, "scripts/images.py", "operator"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home())},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    images = (str(provide_slurm_images(Stopwatch())), made.stdout.strip())
    box = kube_box_factory(
        nodes=2, controller_manager=True, scheduler=True, images=images, ready_timeout=300.0
    )
    box.kubectl("apply", "--server-side", "-f", str(ROOT / "charts" / "slurm-operator-crds" / "templates"))
    box.kubectl(
        "create",
        "clusterrolebinding",
        "all",
        "--clusterrole=cluster-admin",
        "--serviceaccount=default:default",
    )
    apply(box, [_OPERATOR, *slurm()])

    def ready_workers() -> str:
        return box.kubectl("get", "nodeset", "worker", "-o", "jsonpath={.status.readyReplicas}")

    until(box, ready_workers, lambda answer: answer == "2")
    inside = ("exec", "slurm-controller-0", "-c", "slurmctld", "--")

    def job() -> str:
        command = ("timeout", "30", "srun", "--nodes=2", "--chdir=/tmp", "hostname")
        return box.kubectl(*inside, *command)

    output = until(box, job, lambda answer: len(answer.split()) == 2)
    assert sorted(output.split()) == ["worker-0", "worker-1"]
    known = box.kubectl(*inside, "scontrol", "show", "node", "worker-0")
    assert "RealMemory=512" in known
    assert "Features=worker" in known or "AvailableFeatures=worker" in known
