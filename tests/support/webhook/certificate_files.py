"""Certificates for tests, in files that change as those of a Secret volume do."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kubebox import pki

if TYPE_CHECKING:
    from pathlib import Path


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: Any) -> bytes:
    text: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return text


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def rsa_pair() -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    """Make a certificate that its own RSA key signs."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rsa")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(now - dt.timedelta(hours=1))
    return builder.not_valid_after(now + dt.timedelta(days=1)).sign(key, hashes.SHA256()), key


class SecretVolume:
    """A folder that changes as the kubelet changes one: all files at once, by one symbolic link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, **files: bytes) -> None:
        """Replace the content; the names of files have `_` for `.`."""
        self._count += 1
        version = self.folder / f"..version{self._count}"
        version.mkdir()
        for name, content in files.items():
            (version / name.replace("_", ".")).write_bytes(content)
        link = self.folder / "..new"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")
        for name in files:
            path = self.folder / name.replace("_", ".")
            if not path.is_symlink():
                path.symlink_to(f"..data/{path.name}")

    def issue(self, authority: pki.Authority) -> bytes:
        """Write a new pair and return the certificate, in DER."""
        certificate, key = pki.issue(authority, "webhook", names=["localhost"], addresses=["127.0.0.1"])
        self.write(tls_crt=pem(certificate), tls_key=key_pem(key))
        return der(certificate)
