"""Which proxy, if any, stands between us and the API server.

The rules are those every Go client follows, so that the operator reaches the server wherever `kubectl` does:
`HTTPS_PROXY` or `HTTP_PROXY` by the scheme of the server, lower case as well, `NO_PROXY` with names,
suffixes, addresses and networks, and never a proxy for the local machine.
"""

from __future__ import annotations

import base64
import ipaddress
from typing import TYPE_CHECKING

from yarl import URL

from slurm_operator.kube.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def proxy_from_environment(server: str, env: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment prescribes for a server."""
    url = URL(server)
    name = f"{url.scheme.upper()}_PROXY"
    value = env.get(name) or env.get(name.lower())
    if not value or bypasses_proxy(
        url.host or "", url.port or 0, env.get("NO_PROXY") or env.get("no_proxy") or ""
    ):
        return None
    return check_proxy(value if "://" in value else f"http://{value}", f"${name}")


def check_proxy(value: str, where: str) -> str:
    """Return a usable proxy URL, or say what is wrong without quoting it: it may hold a password."""
    try:
        url = URL(value)
    except ValueError:
        url = URL()
    if url.scheme in ("socks5", "socks5h"):
        raise ConfigError(f"{where}: SOCKS proxies are not supported; give an http:// or https:// proxy")
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"{where}: not a proxy URL; write it like http://proxy.example:3128")
    return value


def split_credentials(proxy: str) -> tuple[URL, dict[str, str] | None]:
    """Return the proxy without user and password, and the header that carries them."""
    url = URL(proxy)
    if url.user is None:
        return url, None
    pair = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    return url.with_user(None), {"Proxy-Authorization": f"Basic {pair}"}


def bypasses_proxy(host: str, port: int, no_proxy: str) -> bool:
    """Return whether `NO_PROXY`, or being local, exempts a host from the proxy."""
    host = host.lower().rstrip(".")
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None and address.is_loopback:
        return True
    return any(_exempts(entry.strip().lower(), host, port, address) for entry in no_proxy.split(","))


def _exempts(
    entry: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    name, wanted = _host_and_port(entry)
    if wanted not in (None, port):
        return False
    if address is not None:
        try:
            return address in ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _host_and_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, int(rest[1:]) if rest[1:].isdigit() else None
    name, colon, port = entry.rpartition(":")
    if colon and ":" not in name and port.isdigit():
        return name, int(port)
    return entry, None
