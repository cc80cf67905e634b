"""Where a slurmrestd is, and what the things in it are called: text from outside, checked before it is used.

A node name ends up in the path of a URL, where `c[1-9]` deletes nine nodes. A hostlist ends up in a parser
that ends slurmrestd 24.11 if it is malformed, and a line that describes new nodes in one that ends slurmctld
26.05. `ALL` is every node of the cluster. None of that is ever meant here.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from slurm_operator.slurm.model import hostlist

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_EXAMPLE: Final = "write it like http://slurm-restapi.slurm:6820"
_HOST: Final = re.compile(r"(?=.{1,253}\.?$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
# Of a line for new nodes: whatever is not among these, or not written so, was seen to end slurmctld, or may.
_COUNTS: Final = frozenset(
    {
        *("boards", "corespeccount", "corespersocket", "cpus", "memspeclimit", "port", "realmemory"),
        *("sockets", "socketsperboard", "suspendtime", "threadspercore", "tmpdisk", "weight"),
    }
)
_WORDS: Final = frozenset({"feature", "features", "gres", "state", "topology"})
_ADDRESSES: Final = frozenset({"nodeaddr", "nodehostname"})
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_WORD: Final = re.compile(r"[A-Za-z0-9._:,()*=&|+-]+")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]*")
_HIGHEST_PORT: Final = 65_535
_SHOWN: Final = 60


def parse_url(text: str) -> str:
    """Return the URL of a slurmrestd in its plain form; a ValueError says what is wrong with it."""
    if not text:
        raise ValueError(f"the URL is empty; {_EXAMPLE}")
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError(f"the URL has spaces or control characters in it; {_EXAMPLE}")
    if "://" not in text:
        raise ValueError(f"the URL does not start with http:// or https://; {_EXAMPLE}")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"the URL has no valid host and port; {_EXAMPLE}") from None
    # Whatever is wrong is not quoted before this: it may be a password.
    if "@" in parts.netloc:
        raise ValueError(f"the URL has a user or password in it, but Slurm needs a token; {_EXAMPLE}")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"the URL has the scheme {parts.scheme!r} instead of http or https; {_EXAMPLE}")
    if not host or not _is_host(host):
        raise ValueError(f"the URL has no valid host; {_EXAMPLE}")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError(f"the URL has no valid port; {_EXAMPLE}")
    for part, name in ((parts.path.strip("/"), "path"), (parts.query, "query"), (parts.fragment, "fragment")):
        if part:
            raise ValueError(f"the URL has a {name}; {_EXAMPLE}")
    place = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{place}{f':{port}' if port is not None else ''}"


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _HOST.fullmatch(host) is not None
    try:
        # An address that is only valid on one interface is no place for a slurmrestd.
        return ipaddress.IPv6Address(host).scope_id is None
    except ValueError:
        return False


def check_name(name: str) -> str:
    """Return the name of a node, or raise ValueError if it is not the name of exactly one."""
    if not _NAME.fullmatch(name) or name.upper() == "ALL":
        raise ValueError(f"{name[:_SHOWN]!r} is not the name of a node")
    return name


def check_hostlist(text: str) -> str:
    """Return a hostlist, or raise ValueError if it does not name nodes one by one."""
    names = hostlist.expand(text)
    if not names:
        raise ValueError("the hostlist is empty; name at least one node")
    for name in names:
        check_name(name)
    return text


def check_reservation_name(name: str) -> str:
    """Return the name of a reservation, or raise ValueError if no reservation has such a name."""
    if name in ("", ".", "..") or not name.isprintable():
        raise ValueError(f"{name[:_SHOWN]!r} is not the name of a reservation")
    return name


def check_node_conf(line: str) -> str:
    """Return a line that describes new nodes, or raise ValueError if slurmctld may not survive it."""
    first, *others = line.split(" ")
    key, _, names = first.partition("=")
    if key.lower() != "nodename":
        raise _bad_conf(first, "must be NodeName=…, which comes first")
    check_hostlist(names)
    seen: set[str] = set()
    for word in filter(None, others):
        key, _, value = word.partition("=")
        _check_setting(word, key.lower(), value)
        if key.lower() in seen:
            raise _bad_conf(word, "comes twice")
        seen.add(key.lower())
    return line


def _check_setting(word: str, key: str, value: str) -> None:
    if key in _COUNTS:
        highest = _HIGHEST_PORT if key == "port" else None
        if not _COUNT.fullmatch(value) or (highest is not None and not 0 < int(value) <= highest):
            raise _bad_conf(
                word, "needs a number" if highest is None else f"needs a port from 1 to {highest}"
            )
    elif key in _WORDS:
        if not _WORD.fullmatch(value):
            raise _bad_conf(word, "needs a value without spaces, quotes or brackets")
    elif key in _ADDRESSES:
        if not _ADDRESS.fullmatch(value):
            raise _bad_conf(word, "needs one address")
    else:
        raise _bad_conf(word, "cannot be set for a new node")


def _bad_conf(word: str, problem: str) -> ValueError:
    return ValueError(f"the line for new nodes: {word[:_SHOWN]!r} {problem}")
