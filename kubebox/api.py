"""A few synchronous calls to a box's servers, to see them ready and to make nodes and namespaces.

Not a Kubernetes client: tests bring their own. One connection per `Api`, opened at the first call and opened
again after a failure, so that a poller may keep asking while servers come and go.
"""

from __future__ import annotations

import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

_JSON = "application/json"


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """True for a 2xx answer."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the range of HTTP success

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)

    def text(self) -> str:
        """Return the body's first part, for an error message."""
        return self.body[:500].decode(errors="replace")


def admin_context(pki: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts the box's CA and speaks as its administrator."""
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context


class Api:
    """One keep-alive connection to one server of a box."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None, *, timeout: float = 10.0) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        self._connection = (
            http.client.HTTPConnection(host, port, timeout=timeout)
            if context is None
            else http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = _JSON,
        accept: str = _JSON,
        token: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request, `token` as a header; OSError or HTTPException when no whole answer came back."""
        data = None if body is None else json.dumps(body).encode()
        kind = {} if data is None else {"Content-Type": content_type}
        headers = {"Accept": accept, **kind, **(token or {})}
        try:
            self._connection.request(method, path, body=data, headers=headers)
            response = self._connection.getresponse()
            return Reply(response.status, response.read())
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise


def answers(url: str, context: ssl.SSLContext | None) -> bool:
    """Say whether a health endpoint answers 200 right now."""
    with Api(url, context, timeout=5.0) as api:
        try:
            return api.request("GET", urlsplit(url).path).status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
