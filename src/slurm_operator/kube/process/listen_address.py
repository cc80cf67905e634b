"""Where a server listens, written the way Go programs write it.

`:8081` is every interface, `127.0.0.1:8081`, `[::1]:8081` and `localhost:6060` are what they say; `0` means
no server at all, port 0 means any free port.
"""

from __future__ import annotations

from typing import NamedTuple

_HIGHEST_PORT = 65_535


class ListenAddress(NamedTuple):
    """Where to listen; an empty host means every interface, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> ListenAddress | None:
    """Read `host:port`, `:port` or `[IPv6]:port`; `0` and the empty text mean: do not listen."""
    if text in {"", "0"}:
        return None
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdecimal() or int(port) > _HIGHEST_PORT:
        raise ValueError(f"want host:port, :port or 0 to disable, not {text!r}")
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        raise ValueError(f"want an IPv6 address in brackets, like [::1]:{port}, not {text!r}")
    return ListenAddress(host[1:-1] if bracketed else host, int(port))
