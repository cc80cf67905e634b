"""What a kubeconfig says about who we are and how to connect."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from tests.support.kube.kubeconfig_files import authorization, b64, load, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.certificates import Pki


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({}, None),
        ({"token": "t1"}, "Bearer t1"),
        ({"username": "u", "password": "p"}, "Basic " + b64(b"u:p")),
        ({"username": "u"}, "Basic " + b64(b"u:")),
    ],
)
async def test_simple_credentials_become_a_header(
    tmp_path: Path, user: dict[str, str], expected: str | None
) -> None:
    """Tokens and passwords travel in the Authorization header."""
    assert await authorization(load(write(tmp_path / "config", user=user))) == expected


async def test_token_file_beats_token(tmp_path: Path) -> None:
    """With both a token and a token file, the file is used, as by every Kubernetes client."""
    (tmp_path / "t").write_text("file", encoding="utf-8")
    config = load(write(tmp_path / "config", user={"token": "inline", "tokenFile": str(tmp_path / "t")}))
    assert await authorization(config) == "Bearer file"


async def test_impersonation_repeats_the_group_header(tmp_path: Path) -> None:
    """Every impersonated group is a header of its own, next to the real credentials."""
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"Reason/Why": ["a", "b"]},
    }
    headers = await load(write(tmp_path / "config", user=user)).auth.headers()
    pairs = sorted(headers.items())
    assert pairs == [
        ("Authorization", "Bearer t"),
        ("Impersonate-Extra-Reason%2FWhy", "a"),
        ("Impersonate-Extra-Reason%2FWhy", "b"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-User", "jane"),
    ]


def test_certificates_inline_and_by_file_are_accepted(tmp_path: Path, pki: Pki) -> None:
    """A client certificate may come inline, from files, or half and half."""
    (tmp_path / "key.pem").write_bytes(pki.client.key)
    user = {"client-certificate-data": b64(pki.client.certificate), "client-key": "key.pem"}
    config = load(write(tmp_path / "config", cluster={"certificate-authority-data": b64(pki.ca)}, user=user))
    assert config.ssl is not None
    assert config.ssl.verify_mode is ssl.CERT_REQUIRED
    assert config.ssl.check_hostname


async def test_renewed_certificate_files_make_a_new_context(tmp_path: Path, pki: Pki) -> None:
    """After a 401, certificate files that changed on disk are loaded again for new connections."""
    (tmp_path / "cert.pem").write_bytes(pki.client.certificate)
    (tmp_path / "key.pem").write_bytes(pki.client.key)
    config = load(
        write(tmp_path / "config", user={"client-certificate": "cert.pem", "client-key": "key.pem"})
    )
    assert await config.auth.tls(config.ssl) is config.ssl
    assert not await config.auth.refresh()
    (tmp_path / "cert.pem").write_bytes(pki.other_client.certificate)
    assert not await config.auth.refresh(), "a certificate without its key must not be taken"
    assert await config.auth.tls(config.ssl) is config.ssl
    (tmp_path / "key.pem").write_bytes(pki.other_client.key)
    assert await config.auth.refresh()
    assert await config.auth.tls(config.ssl) not in (None, config.ssl)


def test_insecure_skips_verification(tmp_path: Path) -> None:
    """insecure-skip-tls-verify trusts anybody, and only then."""
    config = load(write(tmp_path / "config", cluster={"insecure-skip-tls-verify": True}))
    assert config.ssl is not None
    assert config.ssl.verify_mode is ssl.CERT_NONE


def test_names_and_proxy_are_carried(tmp_path: Path) -> None:
    """tls-server-name, proxy-url and the context's namespace reach the configuration."""
    cluster = {"tls-server-name": "api.example", "proxy-url": "http://proxy:3128"}
    config = load(write(tmp_path / "config", cluster=cluster, namespace="team"))
    assert (config.server_hostname, config.proxy, config.namespace) == (
        "api.example",
        "http://proxy:3128",
        "team",
    )


def test_plain_http_needs_no_tls(tmp_path: Path) -> None:
    """A server with http:// has no TLS context, and the namespace defaults."""
    config = load(write(tmp_path / "config", cluster={"server": "http://127.0.0.1:8001/"}))
    assert (config.server, config.ssl, config.namespace) == ("http://127.0.0.1:8001", None, "default")


def test_environment_proxy_is_used_unless_the_file_has_one(tmp_path: Path) -> None:
    """HTTPS_PROXY applies to a server without a proxy-url of its own."""
    assert load(write(tmp_path / "a"), HTTPS_PROXY="http://env:1").proxy == "http://env:1"
    fixed = write(tmp_path / "b", cluster={"proxy-url": "http://file:1"})
    assert load(fixed, HTTPS_PROXY="http://env:1", NO_PROXY="*").proxy == "http://file:1"


def test_nothing_secret_in_repr(tmp_path: Path) -> None:
    """Printing a configuration reveals no token, password or proxy password."""
    for user in ({"token": "hush-token"}, {"username": "u", "password": "hush-password"}):
        path = write(tmp_path / "config", cluster={"proxy-url": "http://u:hush-proxy@proxy:1"}, user=user)
        text = f"{load(path)!r} {load(path)}"
        assert "hush" not in text
        assert b64(b"u:hush-password") not in text
