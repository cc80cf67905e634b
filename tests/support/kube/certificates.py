"""Certificates for tests that read or serve TLS."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class Pki(NamedTuple):
    """An authority, a server certificate for 127.0.0.1 and `api.test`, and two client certificates."""

    ca: bytes
    server: Pair
    client: Pair
    other_client: Pair
    encrypted_key: bytes


def make_pki() -> Pki:
    """Return one authority and certificates signed by it."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _sign("test-ca", ca_key, "test-ca", ca_key, authority=True)
    client_key = ec.generate_private_key(ec.SECP256R1())
    return Pki(
        ca=_pem(ca),
        server=_pair("api.test", ca_key),
        client=Pair(_pem(_sign("alice", client_key, "test-ca", ca_key)), _key_pem(client_key)),
        other_client=_pair("bob", ca_key),
        encrypted_key=client_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        ),
    )


def _pair(name: str, ca_key: ec.EllipticCurvePrivateKey) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    return Pair(_pem(_sign(name, key, "test-ca", ca_key)), _key_pem(key))


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
