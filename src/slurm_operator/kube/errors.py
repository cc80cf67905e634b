"""Every error that talking to Kubernetes can raise.

    KubeError
    ├── ConfigError            kubeconfig, certificates or in-cluster files are unusable
    ├── CredentialsError       the token file or credential plugin gave nothing this time; it may heal
    ├── ConnectionFailed       no HTTP answer; `sent` tells whether the server may have seen the request
    │   ├── TlsError           the certificates of the two sides do not fit; retrying does not help
    │   └── DeadlineExceeded   the call's own deadline passed first
    │       └── Overdue        it had to be sent by a moment that passed first; nothing was sent
    ├── DecodeError            an answer that is not the object it should be
    ├── FencedError            this process may no longer write (its lease is lost)
    └── ApiError               the server answered with a Status; `status`, `reason`, `details`, `retry_after`
        ├── BadRequest         400
        ├── Unauthorized       401
        ├── Forbidden          403
        ├── NotFound           404
        ├── Conflict           409
        │   └── AlreadyExists  409 on create
        ├── Gone               410: the resourceVersion or continue token is too old
        ├── Invalid            422
        ├── TooManyRequests    429 (also: an eviction that a disruption budget refuses)
        └── ServerError        5xx

A caller catches the narrowest class it can act on; everything else goes up to the controller, which retries
with backoff.
"""

from __future__ import annotations

from typing import Any


class KubeError(Exception):
    """Anything that went wrong between this process and Kubernetes."""


class ConfigError(KubeError):
    """The way to the API server is described wrongly; retrying does not help."""


class CredentialsError(KubeError):
    """A token file or credential plugin did not supply credentials; the next try may find them."""


class ConnectionFailed(KubeError):  # noqa: N818 - it names what happened, like the errors of the standard library
    """No HTTP answer arrived."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class TlsError(ConnectionFailed):
    """The TLS handshake failed for a reason that only a change of configuration cures."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class DeadlineExceeded(ConnectionFailed):
    """The deadline of the call passed before an answer arrived."""


class Overdue(DeadlineExceeded):
    """The call had to be sent by a moment, and got its turn only later: nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class DecodeError(KubeError):
    """The server's answer is not the object it should be."""


class FencedError(KubeError):
    """A write was refused on this side: the process no longer holds the lease that allows it to write."""


class ApiError(KubeError):
    """The API server said no."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.details = details or {}
        self.retry_after = retry_after


class BadRequest(ApiError):  # noqa: N818 - Kubernetes' own word for the reason
    """400: the request itself is malformed."""


class Unauthorized(ApiError):  # noqa: N818 - Kubernetes' own word for the reason
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):  # noqa: N818 - Kubernetes' own word for the reason
    """403: RBAC or admission forbids it."""


class NotFound(ApiError):  # noqa: N818 - Kubernetes' own word for the reason
    """404: no such object or resource."""


class Conflict(ApiError):  # noqa: N818 - Kubernetes' own word for the reason
    """409: the object changed meanwhile, or a precondition failed."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken."""


class Gone(ApiError):  # noqa: N818 - Kubernetes' own word for the reason
    """410: this resourceVersion or continue token is no longer served; list again."""


class Invalid(ApiError):  # noqa: N818 - Kubernetes' own word for the reason
    """422: the object fails validation."""


class TooManyRequests(ApiError):  # noqa: N818 - Kubernetes' own word for the reason
    """429: the server, or a disruption budget, asks to come back later."""


class ServerError(ApiError):
    """5xx: the server failed; the request may or may not have had an effect."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}

_SERVER_ERRORS = 500


def api_error(
    status: int,
    reason: str,
    message: str,
    *,
    details: dict[str, Any] | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """Build the class of `ApiError` that fits an HTTP status and a Kubernetes reason."""
    kind: type[ApiError]
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason == "Expired":
        kind = Gone
    else:
        kind = _BY_STATUS.get(status, ServerError if status >= _SERVER_ERRORS else ApiError)
    return kind(message, status=status, reason=reason, details=details, retry_after=retry_after)
