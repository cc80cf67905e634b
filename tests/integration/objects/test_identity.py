"""Who a worker is in Slurm, by the arguments of its pod and the entry point of our image, on real Slurm."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.objects.slurmd import pod, worker_template
from slurm_operator.objects.slurmd_identity import WorkerIdentity, node_of, numbered, of_node
from tests.support.objects.golden_cases import DOMAIN
from tests.support.objects.recorded_workers import existing, node
from tests.support.objects.resources import controller, found, node_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubebox.slurm import SlurmBox

ENTRYPOINT = Path(__file__).parents[3] / "images" / "slurm" / "slurmd"
TINI = '#!/bin/sh\nshift 2\nexec "$@"\n'
HOST = {"hostNetwork": True}
DAEMON = {"scalingMode": "DaemonSet"}


@pytest.fixture(params=["26.05", "24.11"])
def box(request: pytest.FixtureRequest, slurm_box_factory: Callable[..., SlurmBox]) -> SlurmBox:
    """Hand out a cluster of the test's own, in which several slurmd can run in one compartment."""
    return slurm_box_factory(release=request.param, nodes=1, extra_conf="SlurmdPidFile=/run/slurmd/%n.pid")


def _manifest(worker: WorkerIdentity | None = None, **spec: Any) -> dict[str, Any]:
    gpu = node_set("gpu", extraConf="CPUs=1 RealMemory=100", **spec)
    template = worker_template(gpu, controller(), found(), cluster_domain=DOMAIN)
    return pod(template, worker or numbered(gpu, 0), "abc")


def _expanded(manifest: dict[str, Any], box: SlurmBox, uid: str, node_name: str) -> list[str]:
    """Return the arguments of slurmd as the kubelet would pass them, for this Slurm."""
    fields = {"$(SLINKY_NODE_NAME)": node_name, "$(SLINKY_POD_UID)": uid}
    args = [fields.get(word, word) for word in manifest["spec"]["containers"][0]["args"]]
    args[args.index("--conf-server") + 1] = f"127.0.0.1:{box.record().ports['slurmctld']}"
    return args


@contextmanager
def _slurmd(box: SlurmBox, hostname: str, args: list[str]) -> Iterator[None]:
    """Run the entry point of the image under a hostname until the block ends."""
    programs = box.home / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "entrypoint").write_bytes(ENTRYPOINT.read_bytes())
    (programs / "tini").write_text(TINI, encoding="utf-8")
    for program in programs.iterdir():
        program.chmod(0o755)
    with (box.home.parent / "hosts").open("a", encoding="utf-8") as hosts:
        hosts.write(f"127.0.0.1 {hostname}\n")
    stop = box.home / "stop"
    stop.unlink(missing_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    conf = args.index("--conf") + 1
    args = [*args[:conf], f"'Port={port} '{args[conf]}", *args[conf + 1 :]]
    script = (
        'hostname "$1"; shift; mkdir -p /var/spool/slurmd/"$1"; shift; PATH=/home/bin:$PATH; '
        '/home/bin/entrypoint "$@" & while [ ! -e /home/stop ]; do sleep 0.2; done; '
        "kill %1 2>/dev/null || kill $!; wait"
    )
    name = args[args.index("-N") + 1]
    command = ("unshare", "--uts", "env", "SLINKY_TOPOLOGY=", "sh", "-c", script, "sh", hostname, name, *args)
    running = threading.Thread(
        target=lambda: box.run(*command, node="n0", check=False, timeout=120), name="slurmd"
    )
    running.start()
    try:
        yield
    finally:
        stop.touch()
        running.join()


def _shown(box: SlurmBox, name: str) -> dict[str, str]:
    told = box.run("scontrol", "show", "node", name, check=False).stdout
    return dict(re.findall(r"(\w+)=(\S*)", told))


def _until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("worker", "spec", "hostname"),
    [
        (None, {"template": {"spec": HOST}}, "other.example.net"),
        (None, {"template": {"spec": {"setHostnameAsFQDN": True}}}, "gpu-0.slurm-workers-slurm.ns.svc.local"),
        (
            of_node(node("m1.example.org"), "gpu-abcde"),
            DAEMON | {"template": {"spec": HOST}},
            "m1.example.org",
        ),
    ],
    ids=["host network with another host name", "FQDN", "DaemonSet on the host network"],
)
def test_a_worker_has_the_name_that_is_read_from_its_pod(
    box: SlurmBox, worker: WorkerIdentity | None, spec: dict[str, Any], hostname: str
) -> None:
    """Whatever the hostname of its container, slurmd registers under the name that the operator expects."""
    manifest = _manifest(worker, **spec)
    name = node_of(existing(manifest, nodeName="m1.example.org"))
    with _slurmd(box, hostname, _expanded(manifest, box, "uid-1", "m1.example.org")):
        _until(lambda: "IDLE" in _shown(box, name).get("State", ""), f"{name} is idle")
        shown = _shown(box, name)
        assert (shown["NodeName"], shown["InstanceId"]) == (name, "uid-1")
        assert shown["ActiveFeatures"] == "gpu"
        others = box.run("sinfo", "-N", "-h", "-o", "%N").stdout.split()
        assert sorted({*others}) == sorted({name, "n0"})


def test_a_recreated_pod_in_the_node_list(box: SlurmBox) -> None:
    """Until its slurmd registers the record is the old pod's; only 24.11 then takes the new pod's UID."""
    manifest = _manifest()
    with _slurmd(box, "gpu-0", _expanded(manifest, box, "uid-1", "")):
        _until(lambda: "IDLE" in _shown(box, "gpu-0").get("State", ""), "the node is idle")
    before = _shown(box, "gpu-0")
    assert before["InstanceId"] == "uid-1"
    time.sleep(1.1)  # the start time has seconds
    with _slurmd(box, "gpu-0", _expanded(manifest, box, "uid-2", "")):
        _until(
            lambda: _shown(box, "gpu-0")["SlurmdStartTime"] != before["SlurmdStartTime"],
            "the second slurmd has registered",
        )
        kept = box.spec.release == "26.05"
        assert _shown(box, "gpu-0")["InstanceId"] == ("uid-1" if kept else "uid-2")
