"""The demo without real nodes: the operator between a Kubernetes with fake nodes and a Slurm beside it.

No program runs on fake nodes (kwok), so the Slurm daemons run beside the cluster, not in it. The operator
reaches them as it reaches any Slurm that it did not deploy, through a Cluster. They need root; without it the
demo says so and shows the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox import Box, BoxError, BoxSpec, SlurmBox, SlurmSpec
from kubebox.procs import ProcessId
from scripts.demo_steps import detail, say, shown, step
from slurm_operator.api.schema import render_crds

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = 3
ROOT = Path(__file__).resolve().parent.parent
# Of the Controller in the example: the operator trusts no Slurm of another name.
CLUSTER_NAME = "slurm_slurm"
EXAMPLE = ROOT / "examples" / "minimal.yaml"
CLUSTER = ROOT / "examples" / "cluster.yaml"
SERVER = "http://slurmrestd.example.com:6820"
NAMESPACE = ("-n", "slurm")
READY_SECONDS = 60.0
ENDINGS = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}


def show(box: Box, *arguments: str) -> None:
    """Print a kubectl command and its output."""
    shown(f"kubectl {' '.join(arguments)}", box.kubectl(*arguments))


def free_port() -> int:
    """Return a port of loopback that is free at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Put off the end that a signal asks for: a process is not to be started and then forgotten."""
    asked: list[int] = []

    def note(number: int, _frame: object) -> None:
        asked.append(number)

    before = {number: signal.signal(number, note) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if asked:
            signal.raise_signal(asked[0])


def start_operator(box: Box) -> subprocess.Popen[bytes]:
    """Start the operator beside the cluster and wait until it says that it is ready."""
    port = free_port()
    with (box.state / "operator.log").open("wb") as log:
        command = [sys.executable, "-m", "slurm_operator", "manager", "--kubeconfig", str(box.kubeconfig)]
        flags = ["--leader-elect", f"--health-addr=127.0.0.1:{port}", "--metrics-addr=0", "--status-addr=0"]
        with undisturbed():
            # Nothing of ours stays in its hands: a pipe behind `make demo KEEP=1` would never end.
            process = subprocess.Popen(
                [*command, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            if (identity := ProcessId.of(process.pid)) is not None:
                (box.state / "operator.json").write_text(json.dumps([identity.pid, identity.started]))
    # Straight to loopback, whatever proxy the environment names.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + READY_SECONDS
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            tail = (box.state / "operator.log").read_text(errors="replace")[-2000:]
            raise SystemExit(f"the operator did not become ready:\n{tail}")
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            direct.open(f"http://127.0.0.1:{port}/readyz", timeout=2),
        ):
            return process
        time.sleep(0.1)


def stop_operator(box: Box) -> None:
    """End the operator that an earlier run left, if it is still that very process."""
    note = box.state / "operator.json"
    if not note.exists():
        return
    identity = ProcessId(*json.loads(note.read_text()))
    if identity.signal(signal.SIGTERM):
        deadline = time.monotonic() + READY_SECONDS
        while identity.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(identity.pid, os.WNOHANG)
    note.unlink()


def start_slurm(box: Box, *, keep: bool) -> SlurmBox | None:
    """Start a Slurm beside the cluster, and give the cluster its keys; None where that cannot be."""
    if os.geteuid() != 0:
        say("==> no Slurm: its daemons need root; run `make demo` as root to see them")
        box.kubectl(
            *NAMESPACE, "create", "secret", "generic", "slurm-auth-slurm", "--from-literal=slurm.key=demo"
        )
        box.kubectl(
            *NAMESPACE, "create", "secret", "generic", "slurm-auth-jwt", "--from-literal=jwt.key=demo"
        )
        return None
    with step(f"a real Slurm 26.05 with {NODES} nodes beside it"):
        spec = SlurmSpec(name=box.name, nodes=NODES, extra_conf=f"ClusterName={CLUSTER_NAME}")
        slurm = SlurmBox.up(spec, detach=keep, progress=detail)
    for secret, key, value in (
        ("slurm-auth-slurm", "slurm.key", slurm.slurm_key),
        ("slurm-auth-jwt", "jwt.key", slurm.jwt_key),
    ):
        # By a file, not by an argument: a key is arbitrary bytes, and arguments are seen by every user.
        path = box.state / key
        path.touch(mode=0o600)
        path.write_bytes(value)
        box.kubectl(*NAMESPACE, "create", "secret", "generic", secret, f"--from-file={key}={path}")
        path.unlink()
    return slurm


def connect(box: Box, slurm: SlurmBox) -> None:
    """Tell the operator where slurmrestd is, and wait until both say that they know each other."""
    with step(f"applying {CLUSTER.name}: a Token and a Cluster"):
        manifest = CLUSTER.read_text().replace(SERVER, slurm.url)
        box.kubectl(*NAMESPACE, "apply", "-f", "-", stdin=manifest)
        for condition, target in (("Ready", "cluster/slurm"), ("SlurmApiReady", "controller/slurm")):
            box.kubectl(*NAMESPACE, "wait", f"--for=condition={condition}", target, "--timeout=60s")
    show(box, *NAMESPACE, "get", "tokens,clusters", "-o", "wide")
    path = "jsonpath={.status.conditions[?(@.type=='SlurmApiReady')].message}"
    show(box, *NAMESPACE, "get", "controller", "slurm", "-o", path)


def run_job(slurm: SlurmBox) -> None:
    """Run one job on all nodes and show what it printed."""
    for command in (
        ["sinfo"],
        ["srun", f"--nodes={NODES}", "--label", "sh", "-c", "echo $SLURMD_NODENAME works"],
    ):
        shown(" ".join(command), slurm.run(*command, user="alice").stdout)


def look(box: Box, slurm: SlurmBox | None) -> None:
    """Apply the examples and look at them."""
    with step(f"applying {EXAMPLE.name}: a Controller, a RestApi and a NodeSet"):
        box.kubectl(*NAMESPACE, "apply", "-f", str(EXAMPLE))
    show(box, "get", "nodes")
    show(box, *NAMESPACE, "get", "controllers,restapis,nodesets")
    show(box, "-n", "default", "get", "lease", "slurm-operator")
    if slurm is not None:
        connect(box, slurm)
        run_job(slurm)


def start(name: str, *, keep: bool) -> Box:
    """Start a Kubernetes with fake nodes."""
    with step(f"a real Kubernetes with {NODES} nodes (their pods are played by kwok)"):
        spec = BoxSpec(name=name, controller_manager=True, scheduler=True, fake_nodes=NODES)
        return Box.up(spec, detach=keep, progress=detail)


def present(box: Box, *, keep: bool) -> None:
    """Start the operator and a Slurm beside the cluster, and show them."""
    with step("installing the CRDs"):
        box.kubectl("apply", "--server-side", "-f", "-", stdin="".join(render_crds().values()))
    with step("starting the operator"):
        start_operator(box)
    box.kubectl("create", "namespace", "slurm")
    look(box, start_slurm(box, keep=keep))


def end_neighbours(box: Box) -> None:
    """End what runs beside a box, if anything does."""
    stop_operator(box)
    with contextlib.suppress(BoxError):
        SlurmBox.attach(box.name).down()


def hints(box: Box) -> list[str]:
    """Return what to try with a demo that was kept."""
    python = f"PYTHONPATH={ROOT} {sys.executable} -m kubebox"
    return [f'eval "$({python} env {box.name})"', f"{python} slurm exec --box {box.name} -- sinfo"]
