"""`slurm-operator`: flags in, objects wired, run.

Every command imports what it needs when it runs, so that printing a version or a CRD does not load an HTTP
stack, and a mistake in a flag is reported before anything else can go wrong. Exit codes: 0 done, 1 it could
not be done, 2 the command line is wrong.
"""

from __future__ import annotations

import platform
import sys
from argparse import SUPPRESS
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_operator import __version__
from slurm_operator.flags import (
    Parser,
    add_manager_flags,
    add_webhook_flags,
    manager_options,
    parse,
    webhook_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PROGRAM = "slurm-operator"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough.
        sys.stderr.close()
        return 1


def _dispatch(arguments: list[str]) -> int:
    commands = "\n".join(f"  {name:<10}{text}" for name, (_, text) in _COMMANDS.items())
    parser = Parser(
        prog=_PROGRAM,
        usage=f"{_PROGRAM} COMMAND [flags]",
        description=f"Runs Slurm clusters on Kubernetes.\n\ncommands:\n{commands}",
        epilog=f"{_PROGRAM} COMMAND --help lists the flags of a command.",
    )
    parser.add_argument("command", nargs="?", help=SUPPRESS)
    name = parser.parse_args(arguments[:1]).command
    if name not in _COMMANDS:
        given = "no command" if name is None else f"unknown command {name!r}"
        parser.error(f"{given}: want one of {', '.join(_COMMANDS)}")
    run, text = _COMMANDS[name]
    prog = f"{_PROGRAM} {name}"
    return run(Parser(prog=prog, usage=f"{prog} [flags]", description=text), arguments[1:])


def _manager(parser: Parser, argv: Sequence[str]) -> int:
    add_manager_flags(parser)
    options = manager_options(parse(parser, argv))
    from slurm_operator.process import run_manager  # noqa: PLC0415 - see the module docstring

    return run_manager(options)


def _webhook(parser: Parser, argv: Sequence[str]) -> int:
    add_webhook_flags(parser)
    options = webhook_options(parse(parser, argv))
    from slurm_operator.webhook.webhook_process import run_webhook  # noqa: PLC0415 - see the module docstring

    return run_webhook(options)


def _crds(parser: Parser, argv: Sequence[str]) -> int:
    parser.add_argument(
        "--output-dir", metavar="DIR", type=Path, help="write one file per kind into DIR instead"
    )
    folder: Path | None = parse(parser, argv).output_dir
    from slurm_operator.api.schema import render_crds  # noqa: PLC0415 - see the module docstring

    files = render_crds()
    if folder is None:
        sys.stdout.write("".join(files.values()))
        sys.stdout.flush()
        return 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"{parser.prog}: --output-dir: cannot write to {folder}: {error.strerror}\n")
        return 1
    return 0


def _version(parser: Parser, argv: Sequence[str]) -> int:
    parse(parser, argv)
    sys.stdout.write(
        f"{_PROGRAM} {__version__} ({platform.python_implementation()} {platform.python_version()})\n"
    )
    return 0


_COMMANDS: dict[str, tuple[Callable[[Parser, Sequence[str]], int], str]] = {
    "manager": (_manager, "Run the operator."),
    "webhook": (_webhook, "Run the admission webhooks."),
    "crds": (_crds, "Print the CustomResourceDefinitions, for kubectl apply --server-side -f -"),
    "version": (_version, "Print the version."),
}
