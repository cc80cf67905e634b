"""The serving certificate: read from files, and again when they change.

A Secret volume swaps both files at once, by moving one symbolic link. So the pair is read from the folder
that the link leads to at that moment, and is never half old and half new. Every handshake asks for the newest
pair that was good: it is given a TLS context that was made for that pair alone, since a context that has held
a certificate of another key type before would go on offering that. A pair that cannot be used is said once,
in the log, and the one before stays in service; connections that are open are not touched by any of this.

Where a file with client authorities is given, only who has a certificate of one of them is answered: the API
server, if it was told to show one. The file is read again when it changes, like the pair; without a usable
one nothing is served.

Nothing is asked of the kernel but the time stamps of two or three files, once a second.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from slurm_operator.kube.client.tls import add_certificate
from slurm_operator.kube.errors import ConfigError
from slurm_operator.webhook.metrics import CERTIFICATE_LOADS

if TYPE_CHECKING:
    from pathlib import Path

_log = structlog.get_logger(__name__)

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
_PERIOD: Final = 1.0


@dataclass(frozen=True, slots=True, repr=False)
class Pair:
    """A certificate chain and its key, in PEM."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None
    """The authorities whose clients are answered; None: anyone is."""


def read_pair(folder: Path, client_ca: Path | None = None) -> Pair:
    """Read both files of one moment, and the client authorities if there is a file of them."""
    home = (folder / CERTIFICATE).resolve().parent
    if not (home / KEY).exists():
        home = folder  # files that are linked one by one, to wherever
    authorities = None if client_ca is None else client_ca.read_bytes()
    return Pair((home / CERTIFICATE).read_bytes(), (home / KEY).read_bytes(), authorities)


def serving_context(pair: Pair, where: str) -> ssl.SSLContext:
    """Return a TLS context that serves one pair; ConfigError says what is wrong with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session would go on with the certificate of the first.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    add_certificate(context, pair.certificate, pair.key, where=where)
    if pair.client_ca is not None:
        try:
            context.load_verify_locations(cadata=pair.client_ca.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"the client CA file has no PEM certificates: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Certificates:
    """The pair in service; `run` looks for a newer one."""

    def __init__(self, folder: Path, period: float = _PERIOD, client_ca: Path | None = None) -> None:
        self._folder = folder
        self._client_ca = client_ca
        self._period = period
        self._stamp: object = None
        self._context: ssl.SSLContext | None = None
        self._pair: Pair | None = None
        self.problem = f"there is no certificate in {folder} yet"
        self.usable = asyncio.Event()

    @property
    def leaf(self) -> bytes | None:
        """Return the certificate in service, in DER."""
        if self._pair is None:
            return None
        begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
        text = self._pair.certificate.decode("ascii", "replace")
        first = begin + text.partition(begin)[2].partition(end)[0] + end
        return ssl.PEM_cert_to_DER_cert(first)

    def context(self) -> ssl.SSLContext:
        """Return the context to listen with: at every handshake it makes way for the newest one."""
        if self._context is None:
            raise ConfigError(self.problem)
        context = self._context
        context.sni_callback = self._choose
        return context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._context is not None:
            connection.context = self._context

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            self.refresh()
            await asyncio.sleep(self._period)

    def refresh(self) -> None:
        """Take over a changed pair, if it is a good one."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        # Of before the reading: what changes meanwhile is seen by the next refresh.
        self._stamp = stamp
        try:
            pair = read_pair(self._folder, self._client_ca)
            if pair == self._pair:
                return
            context = serving_context(pair, str(self._folder))
        except (ConfigError, OSError) as error:
            self._complain(error)
            return
        self._pair, self._context, self.problem = pair, context, ""
        CERTIFICATE_LOADS.labels("ok").inc()
        _log.info("certificate loaded", folder=str(self._folder))
        self.usable.set()

    def _complain(self, error: ConfigError | OSError) -> None:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        if self._context is not None:
            CERTIFICATE_LOADS.labels("failed").inc()
            _log.error("cannot use the new certificate; still serving the previous one", reason=reason)
            return
        self.problem = f"no usable certificate: {reason}"
        _log.warning("waiting for a certificate", reason=reason)

    def _look(self) -> object:
        """Return what changes with the files; an absent one is a value, too."""
        stamps: list[tuple[int, ...]] = []
        client_ca = () if self._client_ca is None else (self._client_ca,)
        for path in (self._folder / CERTIFICATE, self._folder / KEY, *client_ca):
            try:
                status = path.stat()
            except OSError:
                stamps.append(())
            else:
                stamps.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(stamps)
