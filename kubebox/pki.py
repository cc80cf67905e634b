"""The certificates of one box: made in a fraction of a second, thrown away with it.

One CA signs the API server's and the components' certificates; a second one, known only to the aggregation
layer, signs the identity with which the API server calls extension servers (a request-header CA must not be
the client CA, or any client could claim to be any user). Keys are EC P-256, which is quick to make; only
service account tokens are signed with RSA, as most clusters do.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LIFETIME = dt.timedelta(days=365)
_CLOCK_SKEW = dt.timedelta(hours=1)

# The API server's own service takes the first address of the service range (see components.SERVICE_RANGE).
API_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
API_ADDRESSES = ("127.0.0.1", "10.96.0.1")

MASTERS = "system:masters"


@dataclass(frozen=True)
class Authority:
    """A certificate authority that can sign."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_authority(common_name: str) -> Authority:
    """Make a self-signed certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def load_authority(folder: Path, name: str) -> Authority:
    """Read back a certificate authority that `write_pki` made."""
    key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{folder / name}.key is not the key of an authority of ours")
    return Authority(x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes()), key)


def issue(
    authority: Authority,
    common_name: str,
    *,
    organization: str = "",
    names: Iterable[str] = (),
    addresses: Iterable[str] = (),
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Issue a client certificate, or a serving one when host names or addresses are given."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    hosts: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    hosts += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(x509.Name(attributes), authority.certificate.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
        )
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return builder.sign(authority.key, hashes.SHA256()), key


def write_pki(folder: Path, addresses: Iterable[str] = ()) -> None:
    """Make every certificate and key of a box in `folder`; the API server answers at `addresses`, too."""
    authority = make_authority("kubebox")
    front_proxy = make_authority("kubebox-front-proxy")
    write_pair(folder, "ca", authority.certificate, authority.key)
    write_pair(folder, "front-proxy-ca", front_proxy.certificate, front_proxy.key)
    write_pair(
        folder,
        "apiserver",
        *issue(authority, "kube-apiserver", names=API_NAMES, addresses=[*API_ADDRESSES, *addresses]),
    )
    write_pair(
        folder,
        "component-serving",
        *issue(authority, "kubebox-component", names=["localhost"], addresses=["127.0.0.1"]),
    )
    for name, user, organization in (
        ("admin", "kubebox-admin", MASTERS),
        ("kubelet-client", "kube-apiserver-kubelet-client", MASTERS),
        ("controller-manager", "system:kube-controller-manager", ""),
        ("scheduler", "system:kube-scheduler", ""),
    ):
        write_pair(folder, name, *issue(authority, user, organization=organization))
    write_pair(folder, "front-proxy-client", *issue(front_proxy, "front-proxy-client"))
    signer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write(folder / "service-account.key", _pem(signer))
    _write(
        folder / "service-account.pub",
        signer.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def write_pair(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    """Write a certificate and its key."""
    _write(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
    _write(folder / f"{name}.key", _pem(key))


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
