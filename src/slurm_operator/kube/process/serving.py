"""The small HTTP servers of the process: where they listen, and how they start and stop.

A server without an address never listens, so callers need not ask whether it was switched off. TLS, where
asked for, uses a certificate made for this run. It is never written to a disk: OpenSSL reads it from an
anonymous file in memory, so a read-only root filesystem is no obstacle and no key outlives the process.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from contextlib import closing
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from slurm_operator.kube.process.listen_address import ListenAddress

_log = structlog.get_logger(__name__)

# Probes and scrapes are over in milliseconds; what is still open at the end of the process may be cut.
_SHUTDOWN_SECONDS = 1.0
_CERTIFICATE_YEARS = 1
# A connection on which no request comes, or only a part of one, is closed. Clients written in Go, such as
# kube-apiserver, close it after 90 s themselves: the side that asks should do it first.
_IDLE_SECONDS = 120.0


class HttpServer:
    """One aiohttp server with a few GET routes; a `None` address makes it one that never listens."""

    def __init__(
        self,
        name: str,
        address: ListenAddress | None,
        routes: Sequence[tuple[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]],
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        shutdown_seconds: float = _SHUTDOWN_SECONDS,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._name = name
        self._address = address
        self._routes = routes
        self._tls = tls
        self._shutdown_seconds = shutdown_seconds
        self._idle_seconds = idle_seconds
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int | None:
        """Return the port that is really open, or None while there is none."""
        addresses = self._runner.addresses if self._runner else []
        return int(addresses[0][1]) if addresses else None

    async def start(self) -> None:
        """Listen; an address that cannot be had raises OSError with a sentence that names it."""
        if self._address is None:
            return
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            handle_signals=False,
            shutdown_timeout=self._shutdown_seconds,
            keepalive_timeout=self._idle_seconds,
        )
        await runner.setup()
        tls = self._tls() if self._tls else None
        host, port = self._address
        try:
            if host:
                site: web.BaseSite = web.TCPSite(runner, host, port, ssl_context=tls)
            else:
                site = web.SockSite(runner, _on_every_interface(port), ssl_context=tls)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise OSError(f"cannot listen on {self._address} for {self._name}: {reason}") from None
        self._runner = runner
        _log.info("listening", server=self._name, address=str(self._address), port=self.port)

    def _application(self) -> web.Application:
        """Return what is served; a server that takes more than GET requests brings its own."""
        app = web.Application()
        app.add_routes([web.get(path, handler) for path, handler in self._routes])
        return app

    async def close(self) -> None:
        """Stop listening and drop what is still connected."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()


def _on_every_interface(port: int) -> socket.socket:
    """Return one socket for IPv4 and IPv6, so that a free port is the same in both."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    return socket.create_server(("", port))


def self_signed_context() -> ssl.SSLContext:
    """Return a TLS context with a fresh key and a certificate signed by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    descriptor = os.memfd_create("serving-certificate", os.MFD_CLOEXEC)
    with closing(os.fdopen(descriptor, "wb", buffering=0)) as memory:
        memory.write(_self_signed_pem())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    return context


def _self_signed_pem() -> bytes:
    # Only the secure metrics endpoint needs this library; it is too big to load for nothing.
    import ipaddress  # noqa: PLC0415
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415

    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    # X.509 allows 64 characters; a host may be called something longer.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, socket.gethostname()[:64] or "localhost")])
    now = datetime.now(UTC)
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    names += [x509.IPAddress(ipaddress.ip_address("::1")), x509.DNSName(socket.gethostname() or "localhost")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of two machines differ; an hour is more than they do.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=365 * _CERTIFICATE_YEARS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
