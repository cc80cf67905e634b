"""The endpoints for the kubelet and Prometheus: liveness, readiness and metrics.

`/healthz` is served by the event loop that does all the work, so a response proves that the loop is running;
the liveness checks add what can still be wrong with a running loop. `/readyz` runs every readiness check and
reports, with 503, which of them fail and why: the probe's message shows the administrator what to do.
`?verbose` lists all checks, failing or not. Reasons are written for administrators and contain no secrets.

`/metrics` is served on an address of its own, in the clear or over TLS to users whom the API server allows.
A thousand series take longer than a turn of the event loop should, so they are written in several turns.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import msgspec
import structlog
from aiohttp import web

from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.process import metrics
from slurm_operator.kube.process.loop_turns import Breather
from slurm_operator.kube.process.serving import HttpServer, self_signed_context
from slurm_operator.kube.process.token_review import AccessDecision

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from slurm_operator.kube.process.listen_address import ListenAddress
    from slurm_operator.kube.process.token_review import Authorizer

    Check = Callable[[], Awaitable[str | None] | str | None]

_log = structlog.get_logger(__name__)

# A probe gives up after a second by default; a check that takes longer has failed in effect.
_CHECK_SECONDS = 1.0


class HealthServer(HttpServer):
    """Serves `/healthz` and `/readyz`; a check returns None when all is well, else the reason why not."""

    def __init__(self, address: ListenAddress | None) -> None:
        self._ready: dict[str, Check] = {}
        self._alive: dict[str, Check] = {}
        super().__init__("health", address, [("/healthz", self._healthz), ("/readyz", self._readyz)])

    def add_check(self, name: str, check: Check) -> None:
        """Make readiness depend on a check."""
        self._ready[name] = check

    def add_liveness(self, name: str, check: Check) -> None:
        """Make liveness depend on a check: failing it gets the process restarted."""
        self._alive[name] = check

    async def _healthz(self, request: web.Request) -> web.Response:
        return await _answer(request, self._alive, "healthz")

    async def _readyz(self, request: web.Request) -> web.Response:
        return await _answer(request, self._ready, "readyz")


class MetricsServer(HttpServer):
    """Serves `/metrics`; with an authorizer over TLS, and only to those it allows."""

    def __init__(self, address: ListenAddress | None, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer
        tls = self_signed_context if authorizer else None
        super().__init__("metrics", address, [("/metrics", self._metrics)], tls=tls)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._authorizer is not None and (refusal := await self._refuse(self._authorizer, request)):
            return refusal
        breathe, written = Breather(), []
        try:
            for family in metrics.families():
                written.append(family)
                await breathe()
        except Exception as error:  # noqa: BLE001 - a collector may ask any part of the program
            _log.exception("the metrics cannot be collected")
            return web.Response(
                status=500, text=f"the metrics cannot be collected ({type(error).__name__})\n"
            )
        return web.Response(body=b"".join(written), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def _refuse(self, authorizer: Authorizer, request: web.Request) -> web.Response | None:
        now = asyncio.get_running_loop().time()
        try:
            verdict = await authorizer.review(request.headers.get("Authorization", ""), "/metrics", now)
        except (KubeError, msgspec.MsgspecError) as error:
            _log.warning("cannot ask the API server who may read /metrics", error=error)
            return web.Response(status=503, text="the API server cannot be asked whether you may read this\n")
        if verdict is AccessDecision.ALLOWED:
            return None
        if verdict is AccessDecision.FORBIDDEN:
            return web.Response(
                status=403, text="forbidden: the user needs the verb get on the non-resource URL /metrics\n"
            )
        return web.Response(
            status=401, headers={"WWW-Authenticate": "Bearer"}, text="unauthorized: send a bearer token\n"
        )


async def _answer(request: web.Request, checks: Mapping[str, Check], endpoint: str) -> web.Response:
    reasons = await asyncio.gather(*(_run(name, check) for name, check in checks.items()))
    text, healthy = report(
        dict(zip(checks, reasons, strict=True)), endpoint, verbose="verbose" in request.query
    )
    return web.Response(status=200 if healthy else 503, text=text)


async def _run(name: str, check: Check) -> str | None:
    try:
        result = check()
        if inspect.isawaitable(result):
            async with asyncio.timeout(_CHECK_SECONDS):
                return await result
    except TimeoutError:
        return f"no answer within {_CHECK_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - a broken check is a failing check, never a broken endpoint
        _log.exception("health check failed to run", check=name)
        return f"the check itself failed: {type(error).__name__}"
    else:
        return result


def report(results: Mapping[str, str | None], endpoint: str, *, verbose: bool) -> tuple[str, bool]:
    """Return the text of a health answer, and whether it is a good one."""
    failing = {name: reason for name, reason in results.items() if reason is not None}
    if not failing and not verbose:
        return "ok", True
    shown = results if verbose else failing
    lines = [
        f"[+]{name} ok" if reason is None else f"[-]{name} failed: {reason}" for name, reason in shown.items()
    ]
    return "\n".join([*lines, f"{endpoint} check {'failed' if failing else 'passed'}", ""]), not failing
