"""When the pipe of slurmd's log is closed to jobs, and that nothing restarts for it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from slurm_operator.api import wellknown
from slurm_operator.objects import scripts
from slurm_operator.objects.migration import settle
from slurm_operator.objects.pod_parts import share_files
from slurm_operator.objects.slurm_conf import SlurmCluster
from slurm_operator.objects.slurmctld import stateful_set
from slurm_operator.objects.slurmd import worker_template
from tests.support.objects.golden_cases import DOMAIN
from tests.support.objects.resources import controller, found, node_set


def user(number: int, **more: Any) -> dict[str, Any]:
    return {"securityContext": {"runAsUser": number, **more}}


@pytest.mark.parametrize(
    ("pod", "slurmd", "logfile", "shared"),
    [
        ({}, {}, {}, True),
        (user(7), {}, {}, True),
        ({}, user(7), user(7), True),
        (user(7), {}, user(7), True),
        ({}, user(7), {}, False),
        ({}, {}, user(7), False),
        (user(7), user(0), {}, False),
        ({"securityContext": {"fsGroup": 9}}, user(0), user(7), True),
        ({"securityContext": None}, {"securityContext": None}, {}, True),
    ],
)
def test_who_shares_files(
    pod: dict[str, Any],
    slurmd: dict[str, Any],
    logfile: dict[str, Any],
    shared: bool,  # noqa: FBT001 - the answer
) -> None:
    """Two containers share files if they run as one user, or if the volumes of the pod have a group."""
    assert share_files(pod, slurmd, logfile) is shared


def _script(**spec: Any) -> str:
    template = worker_template(node_set("gpu", **spec), controller(), found(), cluster_domain=DOMAIN)
    (sidecar,) = template.spec["initContainers"]
    text: str = sidecar["command"][-1]
    return text


def test_workers_have_a_closed_pipe() -> None:
    """Only a slurmd of another user than its sidecar's, without a common group, gets an open one."""
    assert _script() == scripts.LOGFILE
    assert _script(slurmd=user(7)) == scripts.LOGFILE_OPEN
    assert _script(slurmd=user(7), template={"spec": {"securityContext": {"fsGroup": 7}}}) == scripts.LOGFILE


def test_slurmctld_is_not_restarted_for_it() -> None:
    """A slurmctld that runs with the script of before keeps it until something else changes."""
    item = settle(stateful_set(SlurmCluster(controller()), found()), None)
    live = copy.deepcopy(item)
    live["spec"]["template"]["spec"]["initContainers"][0]["command"][-1] = scripts.LOGFILE_OPEN
    core, _, _ = live["metadata"]["annotations"][wellknown.ANNOTATION_TEMPLATE_HASH].partition(".")
    live["metadata"]["annotations"][wellknown.ANNOTATION_TEMPLATE_HASH] = f"{core}.ofthetextbefore"
    desired = stateful_set(SlurmCluster(controller()), found())
    assert desired["spec"]["template"] != live["spec"]["template"]
    assert settle(desired, live)["spec"]["template"] == live["spec"]["template"]
