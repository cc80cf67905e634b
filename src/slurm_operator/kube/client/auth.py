"""Who we say we are, on every request.

The transport asks an `Auth` for headers before each attempt and for the TLS context of each new connection.
When the server answers 401 it calls `refresh` once, with the headers that were refused, and tries again if
the answer is True. All of it is safe to share between event loops: the leader election runs a loop of its own
with the same credentials, so the state here is guarded by plain thread locks held only for work that never
awaits.

No `repr` here shows a secret, because configurations end up in tracebacks and debug logs.
"""

from __future__ import annotations

import base64
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from multidict import CIMultiDict

from slurm_operator.kube.errors import ConfigError, CredentialsError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

# The kubelet renews a projected token at 80 % of its life, which is at least 10 minutes.
CACHE_SECONDS = 60.0
# Longer than a request takes: one that began before a certificate was renewed has been refused by then.
_RECENT_SECONDS = 60.0


class Auth(Protocol):
    """A way to prove an identity."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that identify us; a multidict where a header repeats."""
        ...

    async def refresh(self, refused: Mapping[str, str] | None = None) -> bool:
        """Try to get better credentials after a 401; True when another attempt makes sense."""
        ...

    async def tls(self, configured: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """Return the context for new connections: the configured one, unless credentials bring theirs."""
        ...


@dataclass(frozen=True)
class FixedHeaders:
    """Credentials that never change: a token, a password, or none at all."""

    fixed: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that were given."""
        return self.fixed

    async def refresh(self, refused: Mapping[str, str] | None = None) -> bool:
        """Say that there is nothing better."""
        del refused
        return False

    async def tls(self, configured: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """Return the configured context."""
        return configured


def anonymous() -> Auth:
    """Return credentials for a server that asks for none, or for a client certificate alone."""
    return FixedHeaders()


def clean_token(token: str) -> str:
    """Return a token without the white space around it; raise ValueError if no header can carry it."""
    token = token.strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError("holds spaces, line breaks or other characters that no token has; give one line")
    return token


def bearer_token(token: str) -> Auth:
    """Return credentials that are one fixed bearer token."""
    return FixedHeaders({"Authorization": f"Bearer {token}"})


def basic_password(username: str, password: str) -> Auth:
    """Return user name and password, for the proxies and test servers that still take them."""
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return FixedHeaders({"Authorization": f"Basic {pair}"})


@dataclass
class TokenFile:
    """A bearer token in a file that another process renews, such as a service account's projected token."""

    path: Path
    cache_seconds: float = field(default=CACHE_SECONDS, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _token: str = field(default="", repr=False)
    _read_at: float = field(default=float("-inf"), repr=False)

    async def headers(self) -> Mapping[str, str]:
        """Return the token as a header, read again when the copy is older than a minute."""
        if time.monotonic() - self._read_at >= self.cache_seconds:
            self._read()
        return {"Authorization": f"Bearer {self._token}"}

    async def refresh(self, refused: Mapping[str, str] | None = None) -> bool:
        """Read the file at once; True when it holds another token than the refused one."""
        before = refused.get("Authorization") if refused else f"Bearer {self._token}"
        self._read()
        return before != f"Bearer {self._token}"

    async def tls(self, configured: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """Return the configured context."""
        return configured

    def _read(self) -> None:
        # A few hundred bytes on tmpfs: cheaper to read here than to hand to a thread.
        with self._lock:
            problem = "the file is empty; it must hold one bearer token"
            try:
                token = clean_token(self.path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                token = ""
                problem = f"the token cannot be read ({type(error).__name__}); mount it or fix tokenFile"
            except ValueError as error:
                token = ""
                problem = f"the token {error}"
            if token:
                self._token = token
                self._read_at = time.monotonic()
            elif not self._token:
                raise CredentialsError(f"{self.path}: {problem}")
            # Otherwise the file is being replaced right now; the token in hand stays valid for minutes.


@dataclass
class CertificateFiles:
    """A client certificate in files that another process renews, on top of other credentials."""

    inner: Auth
    load: Callable[[], ssl.SSLContext] = field(repr=False)
    files: tuple[Path, ...]
    cache_seconds: float = field(default=CACHE_SECONDS, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _context: ssl.SSLContext | None = field(default=None, repr=False)
    _stamps: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    _checked_at: float = field(default_factory=time.monotonic, repr=False)
    _loaded_at: float = field(default=float("-inf"), repr=False)

    def __post_init__(self) -> None:
        self._stamps = self._stat()

    async def headers(self) -> Mapping[str, str]:
        """Return the inner headers."""
        return await self.inner.headers()

    async def refresh(self, refused: Mapping[str, str] | None = None) -> bool:
        """Load the files again if they changed, and refresh the inner credentials."""
        self._reload()
        # Of several requests refused together, the first one loads the files, and all may try again.
        recent = time.monotonic() - self._loaded_at < _RECENT_SECONDS
        return await self.inner.refresh(refused) or recent

    async def tls(self, configured: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """Return a context with the newest certificate; a new context makes new connections."""
        if time.monotonic() - self._checked_at >= self.cache_seconds:
            self._reload()
        return await self.inner.tls(self._context or configured)

    def _reload(self) -> None:
        with self._lock:
            self._checked_at = time.monotonic()
            stamps = self._stat()
            if stamps == self._stamps:
                return
            try:
                self._context = self.load()
            except ConfigError:
                # Caught between the writes of certificate and key: the old pair stays until they fit again.
                return
            self._stamps = stamps
            self._loaded_at = time.monotonic()

    def _stat(self) -> tuple[tuple[int, int], ...]:
        found = []
        for path in self.files:
            try:
                stat = path.stat()
            except OSError:
                found.append((0, 0))
            else:
                found.append((stat.st_mtime_ns, stat.st_ino))
        return tuple(found)


@dataclass(frozen=True)
class Impersonate:
    """Impersonates another user on top of other credentials."""

    inner: Auth
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, list[str]] = field(default_factory=dict)

    async def headers(self) -> Mapping[str, str]:
        """Return the inner headers and the impersonation headers."""
        headers = CIMultiDict(await self.inner.headers())
        headers.add("Impersonate-User", self.user)
        if self.uid:
            headers.add("Impersonate-Uid", self.uid)
        for group in self.groups:
            headers.add("Impersonate-Group", group)
        for key, values in self.extra.items():
            for value in values:
                # The server lowers the header's case and undoes percent encoding.
                headers.add(f"Impersonate-Extra-{quote(key, safe='')}", value)
        return headers

    async def refresh(self, refused: Mapping[str, str] | None = None) -> bool:
        """Refresh the inner credentials."""
        return await self.inner.refresh(refused)

    async def tls(self, configured: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """Return the inner credentials' context."""
        return await self.inner.tls(configured)
