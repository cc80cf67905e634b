"""The values of flags: text from a command line, checked and turned into what it stands for.

Each reader is a `type` for argparse: it returns the value, or raises an error that says what is allowed.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from slurm_operator.kube.process.listen_address import ListenAddress, parse_address
from slurm_operator.kube.process.log import parse_level
from slurm_operator.slurm.model.slurm_address import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

METRICS_ADDRESS = ":8080"

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CONDITION_TYPE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
# The spellings of strconv.ParseBool.
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
# Beyond this the API server is the limit, and the value is most likely a typing error.
_MOST_WORKERS = 1000
# As long as Kubernetes waits by default for a pod that ends, and much more than word of it takes to spread.
_LONGEST_DELAY = 30
_SECONDS = re.compile(r"([0-9]{1,4})s?")


def boolean(text: str) -> bool:
    """Read true or false."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise argparse.ArgumentTypeError(f"want true or false, not {text!r}")


def address(text: str) -> ListenAddress | None:
    """Read where to listen; None means nowhere."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def needed_address(text: str) -> ListenAddress:
    """Read where to listen, which cannot be nowhere."""
    where = address(text)
    if where is None:
        raise argparse.ArgumentTypeError("want host:port or :port; 0 is not allowed")
    return where


def seconds(text: str) -> int:
    """Read a short time."""
    match = _SECONDS.fullmatch(text)
    if match is None or int(match[1]) > _LONGEST_DELAY:
        raise argparse.ArgumentTypeError(
            f"want seconds from 0s to {_LONGEST_DELAY}s, such as 5s, not {text!r}"
        )
    return int(match[1])


def metrics_address(text: str) -> ListenAddress | None:
    """Read where metrics are; empty is the default, only 0 switches them off, as in controller-runtime."""
    return address(text or METRICS_ADDRESS)


def slurm_url(text: str) -> str | None:
    """Read the URL of a slurmrestd; empty is none."""
    try:
        return parse_url(text) if text else None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def level(text: str) -> int | None:
    """Read a log level; empty is none."""
    try:
        return parse_level(text) if text else None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    """Read a number of workers."""
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST_WORKERS:
        return int(text)
    raise argparse.ArgumentTypeError(f"want a whole number from 1 to {_MOST_WORKERS}, not {text!r}")


def choice(allowed: tuple[str, ...], aliases: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """Return a reader of one of several words."""

    def choose(text: str) -> str:
        name = (aliases or {}).get(text.lower(), text.lower())
        if name and name not in allowed:
            raise argparse.ArgumentTypeError(f"want one of {', '.join(allowed)}, not {text!r}")
        return name

    return choose


def namespace(text: str) -> str:
    """Read the name of a namespace; empty is none."""
    if text and not _DNS_LABEL.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of a namespace: at most 63 lower-case letters, digits and dashes"
        )
    return text


def namespaces(text: str) -> tuple[str, ...]:
    """Read names of namespaces: each once, in the order given, since none must be watched twice."""
    return tuple(dict.fromkeys(namespace(part) for part in _parts(text)))


def conditions(text: str) -> tuple[str, ...]:
    """Read types of Node conditions."""
    parts = _parts(text)
    for part in parts:
        if not _CONDITION_TYPE.fullmatch(part):
            raise argparse.ArgumentTypeError(f"{part!r} is not a Node condition type, such as DiskPressure")
    return tuple(dict.fromkeys(parts))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
