"""What broke on the way to the server: the library's exceptions as ours, each in one line.

The texts of aiohttp are not repeated: they quote the bytes that it could not make sense of, which may be
those of a secret. The words are our own, the operating system's, or the TLS library's verdict.

aiohttp keeps its exception in the body of the answer that broke off, and the traceback leads back to that and
to 300 kB of buffers. A watch is among the oldest objects when it breaks, where the garbage collector hardly
ever looks (`memory`). So the ring is broken here.
"""

from __future__ import annotations

import ssl

import aiohttp

from slurm_operator.kube.errors import ConnectionFailed, TlsError

# A server that goes away during the handshake comes back; one that refuses it will refuse the next one too.
_CUT_HANDSHAKE = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_SAID: tuple[tuple[type[BaseException], str], ...] = (
    (TimeoutError, "no data arrived in time"),
    (aiohttp.ServerDisconnectedError, "the other side closed it"),
    (aiohttp.ClientPayloadError, "the answer broke off or is not valid HTTP"),
    (aiohttp.ClientResponseError, "the answer is not valid HTTP"),
)


def connection_failure(what: str, host: str, error: BaseException, *, sent: bool) -> ConnectionFailed:
    """Say in one line why no answer came; `sent` when the request may have reached the server."""
    _drop_tracebacks(error)
    if sent:
        return ConnectionFailed(f"{what}: the connection to {host} broke: {_reason(error)}")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ConnectionFailed(f"{what}: the proxy refused ({error.status} {error.message})", sent=False)
    if isinstance(error, aiohttp.ClientSSLError) and not isinstance(_inner(error), _CUT_HANDSHAKE):
        return TlsError(f"{what}: TLS with {host} failed: {_reason(error)}")
    return ConnectionFailed(f"{what}: cannot connect to {host}: {_reason(error)}", sent=False)


def _drop_tracebacks(error: BaseException | None) -> None:
    """Drop the tracebacks of an error and its causes, but not of its context, which other code may own."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__


def _reason(error: BaseException) -> str:
    """Say what happened in words that quote nothing received."""
    inner = _inner(error)
    if isinstance(inner, ssl.SSLCertVerificationError):
        return inner.verify_message
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    said = next((said for kind, said in _SAID if isinstance(inner, kind)), "it failed")
    return f"{said} ({type(inner).__name__})"


def _inner(error: BaseException) -> BaseException:
    """Return what aiohttp wrapped."""
    inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None)
    return inner if isinstance(inner, BaseException) else error
