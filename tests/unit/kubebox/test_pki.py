from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubebox.pki import API_ADDRESSES, API_NAMES, write_pki

if TYPE_CHECKING:
    from pathlib import Path

CLIENTS = {
    "admin": ("ca", "kubebox-admin", "system:masters"),
    "kubelet-client": ("ca", "kube-apiserver-kubelet-client", "system:masters"),
    "controller-manager": ("ca", "system:kube-controller-manager", None),
    "scheduler": ("ca", "system:kube-scheduler", None),
    "front-proxy-client": ("front-proxy-ca", "front-proxy-client", None),
}


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    write_pki(folder)
    return folder


def certificate(pki: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((pki / f"{name}.crt").read_bytes())


def attribute(cert: x509.Certificate, oid: x509.ObjectIdentifier) -> str | bytes | None:
    found = cert.subject.get_attributes_for_oid(oid)
    return found[0].value if found else None


def test_no_key_is_readable_by_others(pki: Path) -> None:
    """Every file of the PKI belongs to its owner alone."""
    assert {path.stat().st_mode & 0o777 for path in pki.iterdir()} == {0o600}


@pytest.mark.parametrize("name", CLIENTS)
def test_client_certificate_says_who_it_is(pki: Path, name: str) -> None:
    """A client certificate carries user and group, is good for clients only, and is signed by its CA."""
    issuer, user, group = CLIENTS[name]
    cert = certificate(pki, name)
    cert.verify_directly_issued_by(certificate(pki, issuer))
    assert attribute(cert, NameOID.COMMON_NAME) == user
    assert attribute(cert, NameOID.ORGANIZATION_NAME) == group
    usage = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_serving_certificate_names_every_way_to_the_api_server(pki: Path) -> None:
    """The API server's certificate holds for loopback, the service address and the service names."""
    cert = certificate(pki, "apiserver")
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert tuple(names.get_values_for_type(x509.DNSName)) == API_NAMES
    assert tuple(str(address) for address in names.get_values_for_type(x509.IPAddress)) == API_ADDRESSES


@pytest.mark.parametrize("name", ["ca", "front-proxy-ca", "apiserver", "component-serving", *CLIENTS])
def test_key_belongs_to_its_certificate(pki: Path, name: str) -> None:
    """The public key of each key file is the one its certificate carries."""
    key = serialization.load_pem_private_key((pki / f"{name}.key").read_bytes(), None)
    assert key.public_key() == certificate(pki, name).public_key()


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Let two contexts talk through memory until both are content or one refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    pending = list(sides)
    for _ in range(10):
        for side in list(pending):
            try:
                side.do_handshake()
                pending.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not pending, "the handshake does not end"
    # TLS 1.3 tells a client about its rejected certificate only after the handshake.
    with contextlib.suppress(ssl.SSLWantReadError):
        sides[0].read(1)


def contexts(pki: Path, client: str, client_ca: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
    server_side.load_verify_locations(pki / f"{client_ca}.crt")
    server_side.verify_mode = ssl.CERT_REQUIRED
    client_side = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    client_side.load_cert_chain(pki / f"{client}.crt", pki / f"{client}.key")
    return server_side, client_side


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
def test_both_sides_accept_each_other(pki: Path, host: str) -> None:
    """A strict TLS client and server with these certificates trust each other under every name."""
    handshake(*contexts(pki, "admin", "ca"), host)


def test_front_proxy_identity_is_no_client_identity(pki: Path) -> None:
    """The API server's client CA does not accept what the front-proxy CA signed, nor the reverse."""
    with pytest.raises(ssl.SSLError):
        handshake(*contexts(pki, "front-proxy-client", "ca"), "localhost")
    with pytest.raises(ssl.SSLError):
        handshake(*contexts(pki, "admin", "front-proxy-ca"), "localhost")


def test_serving_certificate_is_not_valid_for_another_host(pki: Path) -> None:
    """A client that asked for another host refuses the API server's certificate."""
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(*contexts(pki, "admin", "ca"), "example.org")
