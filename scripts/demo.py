"""Show the operator on a real Kubernetes on this machine, then remove everything again.

python scripts/demo.py           up, show, down
python scripts/demo.py --keep    up, show, and leave it running
python scripts/demo.py --down    remove what --keep left
"""

from __future__ import annotations

import argparse
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

from kubebox import Box, BoxError, BoxSpec, KubeboxError
from kubebox.procs import ProcessId
from slurm_operator.api.schema import render_crds

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "demo"
NODES = 3
ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "minimal.yaml"
READY_SECONDS = 60.0
ENDINGS = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}


def say(text: str) -> None:
    """Print one line at once, so that progress is seen as it happens."""
    print(text, flush=True)


@contextlib.contextmanager
def step(label: str) -> Iterator[None]:
    """Say what is done now and how long it took."""
    started = time.monotonic()
    say(f"==> {label}")
    yield
    say(f"    done in {time.monotonic() - started:.1f} s")


def show(box: Box, *arguments: str) -> None:
    """Print a kubectl command and its output."""
    say(f"\n$ kubectl {' '.join(arguments)}")
    say(box.kubectl(*arguments).rstrip())


def free_port() -> int:
    """Return a port of loopback that nobody listens on at this moment."""
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
        flags = ["--leader-elect", f"--health-addr=127.0.0.1:{port}", "--metrics-addr=0"]
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


def down(box: Box) -> None:
    """Remove everything."""
    with step("removing the demo"):
        stop_operator(box)
        box.down()


def remove_kept(name: str) -> None:
    """Remove what an earlier run left; one that is being shown at this moment is somebody's."""
    try:
        box = Box.attach(name)
    except BoxError:
        say("no demo is running")
        return
    if (owner := box.record().owner) is not None:
        raise BoxError(f"another demo is running, started by process {owner.pid}: let it end first")
    down(box)


def present(box: Box) -> None:
    """Apply the example and look at it."""
    with step(f"applying {EXAMPLE.name}: a Controller, a RestApi and a NodeSet"):
        box.kubectl("create", "namespace", "slurm")
        box.kubectl("-n", "slurm", "apply", "-f", str(EXAMPLE))
    show(box, "get", "nodes")
    show(box, "-n", "slurm", "get", "controllers,restapis,nodesets")
    show(box, "-n", "slurm", "get", "nodeset", "worker", "-o", "jsonpath={.spec}")
    show(box, "explain", "nodeset.spec.updateStrategy.type")
    show(box, "-n", "default", "get", "lease", "slurm-operator")
    say("")
    say("This is the foundation: the API, its CRDs, and a running operator that holds its lease.")
    say("No Slurm daemon runs yet: the controllers that make them are the next parts of the project.")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keep", action="store_true", help="leave everything running")
    parser.add_argument("--down", action="store_true", help="remove what --keep left")
    options = parser.parse_args()
    started = time.monotonic()
    for number in ENDINGS - {signal.SIGINT}:
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    try:
        remove_kept(NAME)
        if options.down:
            return 0
        with step(f"a real Kubernetes with {NODES} nodes (their pods are played by kwok)"):
            spec = BoxSpec(name=NAME, controller_manager=True, scheduler=True, fake_nodes=NODES)
            box = Box.up(spec, detach=options.keep, progress=lambda line: say(f"    {line}"))
        kept = False
        try:
            with step("installing the CRDs"):
                box.kubectl("apply", "--server-side", "-f", "-", stdin="".join(render_crds().values()))
            with step("starting the operator"):
                start_operator(box)
            present(box)
            kept = options.keep
        finally:
            if not kept:
                down(box)
    except KubeboxError as error:
        say(f"demo: {error}")
        return 1
    say(f"\nThe demo took {time.monotonic() - started:.0f} s.")
    if options.keep:
        say("It still runs. Remove it: make demo-down. Look around:")
        say(f'  eval "$(PYTHONPATH={ROOT} {sys.executable} -m kubebox env {NAME})"')
    return 0


if __name__ == "__main__":
    sys.exit(main())
