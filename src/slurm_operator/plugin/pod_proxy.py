"""Requests to a port of a pod, through the API server, with replies handed on as they are.

The client of `kube` turns every refusal into an error and drops its body. Here the pod's own refusals carry
the reason, and the dashboard passes replies on unread, so this speaks HTTP itself, with the same credentials.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode

import aiohttp
from aiohttp import ClientTimeout
from multidict import CIMultiDict
from yarl import URL

from slurm_operator.kube.client.proxy import split_credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import TracebackType

    from slurm_operator.kube.client.config import ClientConfig

_CONNECT_SECONDS = 10.0
_UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class PodPort:
    """A port of a pod."""

    namespace: str
    pod: str
    port: int

    def path(self, rest: str) -> str:
        """Return the path on the API server that leads to a path of the pod."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.pod}:{self.port}/proxy{rest}"


class PodProxy:
    """Sends requests through the API server; use it as an async context manager."""

    def __init__(self, config: ClientConfig, user_agent: str) -> None:
        self._config = config
        self._agent = user_agent
        self._session: aiohttp.ClientSession | None = None
        self._proxy: URL | None = None
        self._proxy_headers: dict[str, str] | None = None
        if config.proxy:
            self._proxy, self._proxy_headers = split_credentials(config.proxy)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, headers={"User-Agent": self._agent}
        )
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def open(
        self,
        target: PodPort,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = 15.0,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a GET and yield the reply, whatever its status; `seconds` is None for a stream."""
        if self._session is None:
            raise RuntimeError("the proxy is not open; use it in an `async with`")
        url = self._config.server + target.path(path) + (f"?{urlencode(query)}" if query else "")
        timeout = ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        for attempt in (1, 2):
            auth = await self._config.auth.headers()
            sent = CIMultiDict(headers or {})
            sent.extend(auth)
            response = await self._session.get(
                URL(url, encoded=True),
                headers=sent,
                allow_redirects=False,
                ssl=await self._config.auth.tls(self._config.ssl) or True,
                server_hostname=self._config.server_hostname,
                proxy=self._proxy,
                proxy_headers=self._proxy_headers,
                timeout=timeout,
            )
            async with response:
                again = response.status == _UNAUTHORIZED and attempt == 1
                if again and await self._config.auth.refresh(auth):
                    continue
                yield response
                return
