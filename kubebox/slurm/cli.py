"""The commands of `python -m kubebox slurm`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kubebox.console import DEFAULT_NAME, Stopwatch, show_status, take_down
from kubebox.slurm.box import SlurmBox
from kubebox.slurm.layout import slurm_root
from kubebox.slurm.rootfs import RELEASES, USERS, provide_root
from kubebox.slurm.sandbox import ENVIRONMENT
from kubebox.slurm.spec import SlurmSpec

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name


def add_commands(commands: Commands) -> None:
    """Add the command `slurm` and those below it."""
    slurm = commands.add_parser(
        "slurm", help="a real Slurm cluster on this machine", description="A real Slurm cluster; needs root."
    )
    verbs = slurm.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_up(verbs)

    down = verbs.add_parser("down", help="end a Slurm box and remove everything of it")
    _add_name(down)
    down.add_argument(
        "--all", action="store_true", help="end every Slurm box of this user, those of running tests too"
    )
    down.set_defaults(run=_down)

    status = verbs.add_parser("status", help="list the Slurm boxes, their processes and their health")
    status.set_defaults(run=_status)

    run = verbs.add_parser("exec", help="run a program in a Slurm box: exec -- sinfo -N")
    run.add_argument("--box", default=DEFAULT_NAME, metavar="NAME", help="which box (default: %(default)s)")
    _add_user(run, "root")
    run.add_argument("argv", nargs="+", metavar="PROGRAM", help="the program and its arguments, after --")
    run.set_defaults(run=_exec)

    token = verbs.add_parser("token", help="print a token for slurmrestd, valid for an hour")
    _add_name(token)
    _add_user(token, "slurm")
    token.set_defaults(run=_token)

    build = verbs.add_parser("build", help="make the root file systems now, once")
    build.add_argument("--release", choices=RELEASES, action="append", help="only this one; may be repeated")
    build.set_defaults(run=_build)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", default=DEFAULT_NAME, help="name of the box (default: %(default)s)"
    )


def _add_user(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--user", default=default, choices=USERS, help="as whom (default: %(default)s)")


def _add_up(verbs: Commands) -> None:
    up = verbs.add_parser("up", help="start a Slurm box that lives until `down`")
    _add_name(up)
    default = SlurmSpec()
    up.add_argument("--release", choices=RELEASES, default=default.release, help="default: %(default)s")
    up.add_argument(
        "--nodes", type=int, default=default.nodes, metavar="N", help="real slurmd (default: %(default)s)"
    )
    up.add_argument("--cloud-nodes", type=int, default=0, metavar="N", help="node records without slurmd")
    up.add_argument("--accounting", action="store_true", help="add slurmdbd and MariaDB")
    up.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="LINE",
        help="one more line of slurm.conf; may be repeated",
    )
    up.add_argument(
        "--node-conf",
        default=default.node_conf,
        metavar="TEXT",
        help="what each slurmd says of itself (default: %(default)s)",
    )
    up.add_argument(
        "--ready-timeout",
        type=float,
        default=default.ready_timeout,
        metavar="SECONDS",
        help="how long each daemon may take",
    )
    up.set_defaults(run=_up)


def _up(options: argparse.Namespace) -> int:
    spec = SlurmSpec(
        name=options.name,
        release=options.release,
        nodes=options.nodes,
        cloud_nodes=options.cloud_nodes,
        accounting=options.accounting,
        extra_conf="\n".join(options.conf),
        node_conf=options.node_conf,
        ready_timeout=options.ready_timeout,
    )
    box = SlurmBox.up(spec, detach=True, progress=Stopwatch())
    which = "" if box.name == DEFAULT_NAME else f" --box {box.name}"
    print(f"Slurm box {box.name} is up at {box.url}; next:  python -m kubebox slurm exec{which} -- sinfo")
    return 0


def _down(options: argparse.Namespace) -> int:
    take_down(slurm_root(), None if options.all else options.name, SlurmBox.attach)
    return 0


def _status(_options: argparse.Namespace) -> int:
    show_status(slurm_root(), SlurmBox.attach)
    return 0


def _exec(options: argparse.Namespace) -> int:
    command, environment = SlurmBox.attach(options.box).command(options.argv, options.user)
    # The program takes our place: it has the terminal, and its exit status is ours.
    os.execvpe(command[0], command, {**ENVIRONMENT, **environment})  # noqa: S606 - no shell is wanted


def _token(options: argparse.Namespace) -> int:
    print(SlurmBox.attach(options.name).token(options.user))
    return 0


def _build(options: argparse.Namespace) -> int:
    say: Callable[[str], None] = Stopwatch()
    for release in options.release or RELEASES:
        print(f"Slurm {release:<19} {provide_root(release, say)}")
    return 0
