"""Which Pod Security level a namespace needs for which daemon, as the API server enforces it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kubebox import BoxError
from slurm_operator.objects import login, slurmctld, slurmdbd, slurmrestd
from slurm_operator.objects.slurm_conf import SlurmCluster
from slurm_operator.objects.slurmd import worker_template
from tests.support.objects.golden_cases import DOMAIN
from tests.support.objects.resources import accounting, controller, found, loginset, node_set, restapi

if TYPE_CHECKING:
    from kubebox import Box

IMAGE = {"image": "i"}
LEVELS = ("restricted", "baseline", "privileged")
# As SECURITY.md has it.
NEEDED = {
    "slurmctld": "baseline",
    "slurmdbd": "baseline",
    "slurmrestd": "baseline",
    "login": "baseline",
    "slurmd": "privileged",
    "slurmd without privileges": "baseline",
    "slurmd with a folder of the node": "privileged",
    "slurmctld, hardened": "restricted",
    "slurmdbd, hardened": "restricted",
    "slurmrestd, hardened": "restricted",
}
HARDENED = IMAGE | {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
PROFILE = {"spec": {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}}
UNPRIVILEGED = {"securityContext": {"privileged": False, "capabilities": {"$patch": "delete"}}}


def specs() -> dict[str, dict[str, Any]]:
    """Return the spec of each daemon's pods, with nothing in it that a user asked for but images."""
    cluster = SlurmCluster(controller(slurmctld=IMAGE, logfile=IMAGE, persistence={"enabled": False}))
    made = {
        "slurmctld": slurmctld.stateful_set(cluster, found()),
        "slurmdbd": slurmdbd.stateful_set(accounting(slurmdbd=IMAGE), found()),
        "slurmrestd": slurmrestd.deployment(restapi(slurmrestd=IMAGE), cluster, found()),
        "login": login.deployment(
            loginset(login=IMAGE, initconf=IMAGE), cluster.controller, found(), cluster_domain=DOMAIN
        ),
    }
    hardened = SlurmCluster(
        controller(slurmctld=HARDENED, logfile=HARDENED, persistence={"enabled": False}, template=PROFILE)
    )
    made |= {
        "slurmctld, hardened": slurmctld.stateful_set(hardened, found()),
        "slurmdbd, hardened": slurmdbd.stateful_set(accounting(slurmdbd=HARDENED, template=PROFILE), found()),
        "slurmrestd, hardened": slurmrestd.deployment(
            restapi(slurmrestd=HARDENED, template=PROFILE), hardened, found()
        ),
    }
    folder = {"spec": {"volumes": [{"name": "dcgm", "hostPath": {"path": "/var/lib/dcgm"}}]}}
    without = IMAGE | UNPRIVILEGED
    workers: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "slurmd": (IMAGE, {}),
        "slurmd without privileges": (without, {}),
        "slurmd with a folder of the node": (without, folder),
    }
    return {name: item["spec"]["template"]["spec"] for name, item in made.items()} | {
        name: worker_template(
            node_set("gpu", slurmd=container, logfile=IMAGE, template=template),
            cluster.controller,
            found(),
            cluster_domain=DOMAIN,
        ).spec
        for name, (container, template) in workers.items()
    }


@pytest.mark.parametrize("daemon", NEEDED)
def test_the_level_that_a_daemon_needs(kube_box: Box, kube_namespace: str, daemon: str) -> None:
    """The API server admits a daemon's pod at the level that SECURITY.md names, and at none below."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": kube_namespace},
        # The names in it are of a namespace that only unit tests have.
        "spec": {name: value for name, value in specs()[daemon].items() if name != "dnsConfig"},
    }
    admitted = []
    for level in LEVELS:
        label = f"pod-security.kubernetes.io/enforce={level}"
        kube_box.kubectl("label", "namespace", kube_namespace, label, "--overwrite")
        try:
            kube_box.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(body))
        except BoxError as error:
            assert "violates PodSecurity" in str(error)  # noqa: PT017 - else the pod itself is wrong
        else:
            admitted.append(level)
    assert admitted[0] == NEEDED[daemon]
