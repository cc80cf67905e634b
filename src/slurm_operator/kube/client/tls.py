"""TLS contexts from the pieces a kubeconfig gives.

Python reads certificates and keys only from files. A key that came inline, or from a credential plugin, is
handed over through an anonymous memory file, so that it never touches a disk.
"""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm_operator.kube.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Another key of the same type, or one of another type.
_MISMATCHES = frozenset({"KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})


def tls_context(
    *,
    ca_data: bytes | None = None,
    ca_file: Path | None = None,
    insecure: bool = False,
    where: str,
) -> ssl.SSLContext:
    """Return a client context that trusts the given authority, the system's authorities, or anybody."""
    if insecure:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        if ca_file is not None:
            ca_data = ca_file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}; give the CA certificate of the API server") from None
    if ca_data is not None and not ca_data.strip():
        # Given no certificates, Python trusts the system's CAs: any public certificate would be accepted.
        raise ConfigError(f"{where}: empty; give the CA certificate of the API server")
    try:
        context = ssl.create_default_context(cadata=ca_data.decode("ascii") if ca_data is not None else None)
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            f"{where}: not PEM certificates; give the CA certificate of the API server"
        ) from None
    # Python 3.13 and later insist on key identifiers that many cluster CAs lack; Go's clients do not ask for
    # them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def add_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, *, where: str) -> None:
    """Make a context present a certificate, as a client or as a server, given as PEM."""
    try:
        with _memory_file(certificate) as certificate_path, _memory_file(key) as key_path:
            context.load_cert_chain(certificate_path, key_path, password=_no_password)
    except (ssl.SSLError, ValueError, _EncryptedKeyError) as error:
        if isinstance(error, _EncryptedKeyError):
            detail = "the key is encrypted; give one without a passphrase"
        elif getattr(error, "reason", "") in _MISMATCHES:
            detail = "the key does not belong to the certificate; give the pair that was issued together"
        else:
            detail = "not a PEM certificate and key; give both in PEM form"
        raise ConfigError(f"{where}: {detail}") from None


class _EncryptedKeyError(Exception):
    pass


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal and park the process.
    raise _EncryptedKeyError


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
