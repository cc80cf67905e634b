"""Show a Slurm on Kubernetes on this machine, from nothing to a job's output, then remove everything again.

On a machine with root and a usual kernel it is all real: nodes with kubelets, our charts, Slurm in pods (see
demo_real.py). Elsewhere the demo says what is lacking, and shows the operator between a Kubernetes with fake
nodes and a Slurm beside it (see demo_fake.py).

python scripts/demo.py                       up, show, down
python scripts/demo.py --keep                up, show, and leave it running
python scripts/demo.py --down                remove what --keep left
python scripts/demo.py --fake                with fake nodes, also where real ones are possible
python scripts/demo.py --kubeconfig FILE     on a cluster of yours, into the namespaces slinky and slurm
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from kubebox import Box, BoxError, KubeboxError
from kubebox.nodes.ground import what_is_lacking
from scripts import demo_fake, demo_real
from scripts.demo_cluster import Cluster
from scripts.demo_steps import detail, say, step

NAME = "demo"


def down(box: Box) -> None:
    """Remove everything."""
    with step("removing the demo"):
        demo_fake.end_neighbours(box)
        box.down()


def remove_kept() -> None:
    """Remove what an earlier run left; one that runs now is left alone."""
    try:
        box = Box.attach(NAME)
    except BoxError:
        say("no demo is running")
        return
    if (owner := box.record().owner) is not None:
        raise BoxError(f"another demo is running, started by process {owner.pid}: wait until it has ended")
    down(box)


def show_here(*, keep: bool, fake: bool) -> list[str]:
    """Show the demo on this machine, and return what to try with what is left of it."""
    if not fake and (reason := what_is_lacking()) is not None:
        say(f"==> no real nodes here: {reason}")
        detail(
            "fake ones instead, and a Slurm beside them; `kubebox/nodes` needs root, namespaces, overlayfs"
        )
        fake = True
    stage = demo_fake if fake else demo_real
    box = stage.start(NAME, keep=keep)
    kept = False
    try:
        stage.present(box, keep=keep)
        kept = keep
    finally:
        if not kept:
            down(box)
    return [*stage.hints(box), "make demo-down    # removes it"] if keep else []


def show_there(
    kubeconfig: Path, operator_image: str | None, values: list[str], *, keep: bool, remove: bool
) -> list[str]:
    """Show the demo on an existing cluster, and return what to try with what is left of it."""
    if not kubeconfig.is_file():
        raise BoxError(f"KUBECONFIG={kubeconfig}: there is no such file")
    if operator_image is None and not remove:
        raise BoxError(
            "a cluster of yours needs the operator's image in a registry that it can reach: build it "
            "(docs/reference/images.md) and name it: "
            "make demo KUBECONFIG=… OPERATOR_IMAGE=registry/slurm-operator:tag"
        )
    with tempfile.TemporaryDirectory() as home:
        cluster = Cluster(kubeconfig, Path(home), detail)
        kept = False
        try:
            if not remove:
                demo_real.present_on(cluster, operator_image, *values)
                kept = keep
        finally:
            if not kept:
                with step("removing the demo"):
                    demo_real.take_down(cluster)
    return demo_real.ideas() if kept else []


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keep", action="store_true", help="leave everything running")
    parser.add_argument("--down", action="store_true", help="remove what --keep left")
    parser.add_argument(
        "--fake", action="store_true", help="use fake nodes, also where real ones are possible"
    )
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="a cluster of yours")
    parser.add_argument("--operator-image", metavar="NAME", help="the operator's image, with --kubeconfig")
    parser.add_argument(
        "--values", action="append", default=[], metavar="FILE", help="more values, with --kubeconfig"
    )
    options = parser.parse_args()
    started = time.monotonic()
    for number in demo_fake.ENDINGS - {signal.SIGINT}:
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    try:
        if options.kubeconfig is not None:
            what_next = show_there(
                options.kubeconfig,
                options.operator_image,
                options.values,
                keep=options.keep,
                remove=options.down,
            )
        else:
            remove_kept()
            if options.down:
                return 0
            what_next = show_here(keep=options.keep, fake=options.fake)
    except KubeboxError as error:
        say(f"demo: {error}")
        return 1
    say(f"\nThe demo took {time.monotonic() - started:.0f} s.")
    if what_next:
        say("It still runs. Try:")
        for line in what_next:
            say(f"  {line}")
    elif not options.down:
        what = "Everything" if options.kubeconfig is None else "Everything but the CRDs"
        say(f"{what} has been removed. `make demo KEEP=1` leaves it running and shows what to try.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
