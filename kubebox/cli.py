"""The command line: one function per verb, each ending in a few printed lines."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

from kubebox import state
from kubebox.binaries import provide
from kubebox.box import Box, available_tools
from kubebox.console import DEFAULT_NAME, Stopwatch, show_status, take_down
from kubebox.errors import KubeboxError, SpecError, ToolError
from kubebox.images.slurm import provide_slurm_images
from kubebox.nodes.ground import provide_ground, what_is_lacking
from kubebox.slurm.cli import add_commands as add_slurm_commands
from kubebox.spec import BoxSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except SpecError as error:
        print(f"kubebox: {error}", file=sys.stderr)
        return 2
    except KubeboxError as error:
        print(f"kubebox: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kubebox: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kubebox",
        description="A real Kubernetes control plane on this machine, as plain processes on loopback.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start a box that lives until `down`")
    up.add_argument("name", nargs="?", default=DEFAULT_NAME, help="name of the box (default: %(default)s)")
    up.add_argument(
        "--fake-nodes", type=int, default=0, metavar="N", help="add N nodes whose pods run, played by kwok"
    )
    up.add_argument(
        "--nodes",
        type=int,
        default=0,
        metavar="N",
        help="add N nodes with kubelet and containers; fake ones where real ones are impossible",
    )
    up.add_argument(
        "--slurm-images", action="store_true", help="give the nodes the images of Slurm, kubebox.local/…"
    )
    up.add_argument(
        "--images",
        action="append",
        default=[],
        metavar="FILE",
        help="give the nodes the images of an OCI archive; may be repeated",
    )
    up.add_argument("--gpus", type=int, default=0, metavar="N", help="pretend that each node has N GPUs")
    up.add_argument("--no-controller-manager", action="store_true", help="leave kube-controller-manager out")
    up.add_argument("--no-scheduler", action="store_true", help="leave kube-scheduler out")
    up.add_argument("--audit", action="store_true", help="write an audit log into the box's folder")
    up.add_argument(
        "--apiserver-arg",
        action="append",
        default=[],
        metavar="=--FLAG=VALUE",
        help="one more flag for kube-apiserver, as --apiserver-arg=--flag=value; may be repeated",
    )
    up.add_argument(
        "--ready-timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long each component may take",
    )
    up.set_defaults(run=_up)

    down = commands.add_parser("down", help="end a box and remove everything of it")
    down.add_argument("name", nargs="?", default=DEFAULT_NAME, help="name of the box (default: %(default)s)")
    down.add_argument(
        "--all", action="store_true", help="end every box of this user, those of running tests too"
    )
    down.set_defaults(run=_down)

    env = commands.add_parser("env", help="print shell lines that point kubectl and helm at a box")
    env.add_argument("name", nargs="?", default=DEFAULT_NAME, help="name of the box (default: %(default)s)")
    env.set_defaults(run=_env)

    status = commands.add_parser("status", help="list the boxes, their processes and their health")
    status.set_defaults(run=_status)

    build = commands.add_parser("build", help="build and fetch all programs now, once")
    build.set_defaults(run=_build)

    add_slurm_commands(commands)
    return parser


def _up(options: argparse.Namespace) -> int:
    say = Stopwatch()
    spec = BoxSpec(
        name=options.name,
        controller_manager=not options.no_controller_manager,
        scheduler=not options.no_scheduler,
        **_nodes(options, say),
        apiserver_args=tuple(options.apiserver_arg),
        audit=options.audit,
        ready_timeout=options.ready_timeout,
    )
    box = Box.up(spec, detach=True, progress=say)
    try:
        box.link(provide(["helm"], say))
    except ToolError as error:
        say(f"no helm in this box: {error}")
    suffix = "" if options.name == DEFAULT_NAME else f" {options.name}"
    print(f'box {box.name} is up; next:  eval "$(python -m kubebox env{suffix})"')
    return 0


def _nodes(options: argparse.Namespace, say: Stopwatch) -> dict[str, Any]:
    """Return what was asked for in nodes, fake ones in the place of real ones that cannot be had."""
    if not options.nodes:
        return {"fake_nodes": options.fake_nodes, "images": tuple(options.images), "gpus": options.gpus}
    if (reason := what_is_lacking()) is not None:
        say(f"fake nodes instead of real ones: {reason}")
        return {"fake_nodes": options.fake_nodes + options.nodes}
    images = [str(provide_slurm_images(say))] if options.slurm_images else []
    return {
        "fake_nodes": options.fake_nodes,
        "nodes": options.nodes,
        "images": (*images, *options.images),
        "gpus": options.gpus,
    }


def _down(options: argparse.Namespace) -> int:
    take_down(state.state_root(), None if options.all else options.name, Box.attach)
    return 0


def _env(options: argparse.Namespace) -> int:
    box = Box.attach(options.name)
    for name, value in box.environment.items():
        if name == "PATH":
            # Left to the shell to expand: its PATH may differ from ours by the time the line is used.
            print(f'export PATH={shlex.quote(value.partition(":")[0])}:"$PATH"')
        else:
            print(f"export {name}={shlex.quote(value)}")
    return 0


def _status(_options: argparse.Namespace) -> int:
    show_status(state.state_root(), Box.attach)
    return 0


def _build(_options: argparse.Namespace) -> int:
    say = Stopwatch()
    tools = provide(available_tools(), say)
    # Of a Kubernetes of the user's own there may be no kubelet.
    if "kubelet" in tools and what_is_lacking() is None:
        node_tools = provide(["coredns", "pause"], say)
        tools |= node_tools | provide_ground(BoxSpec(), node_tools, say)
    for name, path in tools.items():
        print(f"{name:<25} {path}")
    return 0
