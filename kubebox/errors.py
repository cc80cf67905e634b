"""Every error kubebox raises on purpose.

    KubeboxError
    ├── SpecError      the caller asked for something that makes no sense: the message names the field
    ├── ToolError      a program is missing or could not be built: the message says what to install
    └── BoxError       a running control plane misbehaved: the message carries the last log lines

The command line prints the sentence and exits with 1; the pytest plugin fails the test with the sentence and
no traceback. Anything else that escapes is a defect of kubebox.
"""

from __future__ import annotations


class KubeboxError(Exception):
    """Base of everything kubebox raises on purpose."""


class SpecError(KubeboxError):
    """A box was described with a value that cannot work."""


class ToolError(KubeboxError):
    """A program kubebox needs is missing and could not be supplied."""


class BoxError(KubeboxError):
    """A box could not be started, reached or changed."""
