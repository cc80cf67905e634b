"""How the command ends: exit codes, and the one error that carries a code and a sentence."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the exit code of `kubectl slurm` means; docs/reference/kubectl-slurm.md lists them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    FORBIDDEN = 4
    NO_OPERATOR = 5
    OLD_OPERATOR = 6
    INTERRUPTED = 130


class CommandError(Exception):
    """Why the command cannot do what was asked, in one line, and the exit code for it."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


class ManagerUnavailable(CommandError):  # noqa: N818 - it names what happened
    """The API of the manager cannot be used; conditions and Events may still be readable."""
