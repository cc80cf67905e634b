from __future__ import annotations

import pytest

from slurm_operator.kube.client.proxy import bypasses_proxy, proxy_from_environment, split_credentials
from slurm_operator.kube.errors import ConfigError

SERVER = "https://api.prod.example:6443"


@pytest.mark.parametrize(
    ("server", "env", "expected"),
    [
        (SERVER, {}, None),
        (SERVER, {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        (SERVER, {"https_proxy": "http://p:1"}, "http://p:1"),
        (SERVER, {"HTTPS_PROXY": "p:1"}, "http://p:1"),
        (SERVER, {"HTTP_PROXY": "http://p:1"}, None),
        ("http://api:80", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        (SERVER, {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, None),
        (SERVER, {"HTTPS_PROXY": "http://p:1", "no_proxy": "other,prod.example"}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://p:1"}, None),
    ],
)
def test_environment(server: str, env: dict[str, str], expected: str | None) -> None:
    """The proxy variable of the server's scheme applies unless the server is exempt or local."""
    assert proxy_from_environment(server, env) == expected


@pytest.mark.parametrize(
    ("host", "port", "no_proxy", "exempt"),
    [
        ("a.b.c", 443, "", False),
        ("a.b.c", 443, "*", True),
        ("a.b.c", 443, " x , b.c ", True),
        ("b.c", 443, "b.c", True),
        ("b.c", 443, ".b.c", False),
        ("a.b.c", 443, ".b.c", True),
        ("a.b.c", 443, "*.b.c", True),
        ("ab.c", 443, "b.c", False),
        ("a.B.c.", 443, "b.C", True),
        ("a.b.c", 443, "b.c:443", True),
        ("a.b.c", 443, "b.c:80", False),
        ("10.1.2.3", 443, "10.0.0.0/8", True),
        ("11.1.2.3", 443, "10.0.0.0/8", False),
        ("10.1.2.3", 443, "10.1.2.3", True),
        ("10.1.2.3", 443, "10.1.2.3:80", False),
        ("10.1.2.3", 443, "2.3", False),
        ("10.1.2.3", 443, "10.0.0.0/99", False),
        ("fd00::1", 443, "fd00::/8", True),
        ("fd00::1", 443, "[fd00::1]:443", True),
        ("fd00::1", 443, "[fd00::1]:80", False),
        ("fd00::1", 443, "fd00::1", True),
        ("api", 443, "10.0.0.0/8", False),
    ],
)
def test_exemptions(host: str, port: int, no_proxy: str, *, exempt: bool) -> None:
    """NO_PROXY takes names, suffixes, ports, addresses and networks, as in every Go client."""
    assert bypasses_proxy(host, port, no_proxy) is exempt


@pytest.mark.parametrize("value", ["socks5://u:hush@p:1", "ftp://u:hush@p", "http://"])
def test_unusable_proxies_are_refused_without_quoting_them(value: str) -> None:
    """A proxy that cannot be used is an error that names the variable and keeps its password."""
    with pytest.raises(ConfigError, match=r"^\$HTTPS_PROXY: ") as caught:
        proxy_from_environment(SERVER, {"HTTPS_PROXY": value})
    assert "hush" not in str(caught.value)


def test_credentials_leave_the_url() -> None:
    """User and password of a proxy travel in a header, decoded once, and not in the URL."""
    url, headers = split_credentials("http://us%40er:p%253Aw@proxy:3128")
    assert str(url) == "http://proxy:3128"
    assert headers == {"Proxy-Authorization": "Basic dXNAZXI6cCUzQXc="}
    assert split_credentials("http://proxy:3128")[1] is None
