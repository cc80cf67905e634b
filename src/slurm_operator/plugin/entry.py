"""`kubectl slurm`: the program that kubectl finds as `kubectl-slurm` on PATH.

Each command imports what it needs when it runs, so that help, version and completion load no HTTP stack.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm_operator import __version__
from slurm_operator.plugin.arguments import PROGRAM, parse
from slurm_operator.plugin.exits import CommandError, ExitCode
from slurm_operator.plugin.text_tables import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = parse(list(sys.argv[1:] if argv is None else argv))
    try:
        if options.command == "version":
            sys.stdout.write(f"{PROGRAM} {__version__}\n")
            return ExitCode.DONE
        if options.command == "completion":
            from slurm_operator.plugin.completion import script  # noqa: PLC0415 - see the module docstring

            sys.stdout.write(script(options.shell))
            return ExitCode.DONE
        with _without_system_certificates():
            from slurm_operator.plugin.commands import run  # noqa: PLC0415 - see the module docstring

        return run(options)
    except CommandError as error:
        # Errors quote what Slurm and its users wrote.
        sys.stderr.write(f"{PROGRAM}: {visible(str(error))}\n")
        return error.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough.
        sys.stderr.close()
        return ExitCode.FAILED


@contextmanager
def _without_system_certificates() -> Iterator[None]:
    """Let aiohttp be imported without the certificates of the system, which would take a tenth of a second.

    It reads them into a context of its own, for connections that bring none. Here each connection has the one
    of its kubeconfig, which is made later.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


if __name__ == "__main__":
    sys.exit(main())
