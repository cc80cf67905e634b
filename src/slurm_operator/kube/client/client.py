# ruff: noqa: ASYNC109 - `timeout` is the deadline of a whole call, retries and waiting for a slot included
"""Typed access to the API server: get, list, watch, create, apply, patch, scale, delete, evict.

    async with Client(load_config()) as client:
        pod = await client.get(Pod, "slurmctld-0", "slurm")

Reading returns the frozen structs of `kinds` (or any other `Object` with a `RESOURCE`); writing takes plain
dicts, because read models hold only part of an object and must never be sent back. How requests are sent,
retried and fenced is the `transport`'s business; how answers are decoded is in `wire`.
"""

from __future__ import annotations

import platform
import random
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import slurm_operator
from slurm_operator.kube.client.calls import (
    ApiCall,
    collection_call,
    create_call,
    object_call,
    raw_call,
    selection,
    typed,
    write_query,
)
from slurm_operator.kube.client.transport import RequestInfo, Transport
from slurm_operator.kube.client.watch_stream import LineSplitter
from slurm_operator.kube.errors import ConnectionFailed
from slurm_operator.kube.manifests.wire import (
    BadObject,
    Page,
    WatchEvent,
    decode_event,
    decode_object,
    decode_page,
)
from slurm_operator.kube.models.kinds import Pod, Scale
from slurm_operator.kube.models.meta import Object
from slurm_operator.kube.process.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from types import TracebackType

    from slurm_operator.kube.client.config import ClientConfig

__all__ = ["BadObject", "Client", "Page", "PatchType", "RequestInfo", "WatchEvent"]

T = TypeVar("T", bound=Object)

FIELD_MANAGER = "slurm-operator"

# Of a list: it takes some two milliseconds to decode.
_LARGE = 2**19
# The server ends a watch after this many seconds: spread, so that reconnects do not come all at once.
_WATCH_SECONDS = (300, 600)
# Bookmarks come about once a minute: silence this long means a dead connection, whatever TCP believes.
_WATCH_IDLE_SECONDS = 150.0


class PatchType(StrEnum):
    """How the server combines a patch with the object; the value is the content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


_APPLY = "application/apply-patch+yaml"


class Client:
    """A connection to one API server; use it as an async context manager."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        user_agent: str = "",
        max_in_flight: int = 64,
        timeout: float = 30.0,
        fence: Callable[[], float | None] | None = None,
        observe: Callable[[RequestInfo], None] | None = None,
    ) -> None:
        self.config = config
        self.timeout = timeout
        self._transport = Transport(
            config,
            user_agent=user_agent or default_user_agent(),
            max_in_flight=max_in_flight,
            fence=fence,
            observe=observe,
        )

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._transport.close()

    # ------------------------------------------------------------------------------------------------ reading

    async def get(self, kind: type[T], name: str, namespace: str = "", *, timeout: float | None = None) -> T:
        """Return one object."""
        return await self._object(kind, object_call("GET", "get", kind, name, namespace), timeout)

    async def list(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        labels: str | Mapping[str, str] | None = None,
        fields: str | Mapping[str, str] | None = None,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> Page[T]:
        """Return one page of a kind, of one namespace or of all."""
        query = selection(labels, fields)
        if limit:
            query["limit"] = str(limit)
        if continue_token:
            query["continue"] = continue_token
        elif resource_version is not None:
            query["resourceVersion"] = resource_version
            if resource_version not in ("", "0"):
                query["resourceVersionMatch"] = "NotOlderThan"
        call = collection_call("list", kind, namespace, query)
        data = await self._send(call, timeout)
        if len(data) < _LARGE:
            return decode_page(kind, data, call.what)
        # On the loop all else would stand still meanwhile; a thread lets others go on after every object.
        return await run_in_thread(partial(decode_page, kind, data, call.what))

    async def list_all(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        labels: str | Mapping[str, str] | None = None,
        fields: str | Mapping[str, str] | None = None,
        page_size: int = 500,
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> Page[T]:
        """Return a whole list, fetched in pages of one consistent version; `timeout` is for each page."""
        items: list[T] = []
        bad: list[BadObject] = []
        token = ""
        while True:
            page = await self.list(
                kind,
                namespace,
                labels=labels,
                fields=fields,
                limit=page_size,
                continue_token=token,
                resource_version=resource_version,
                timeout=timeout,
            )
            items += page.items
            bad += page.bad
            token = page.continue_token
            if not token:
                return Page(items, page.resource_version, "", bad)

    async def watch(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        resource_version: str,
        labels: str | Mapping[str, str] | None = None,
        fields: str | Mapping[str, str] | None = None,
        timeout_seconds: int | None = None,
        idle_seconds: float = _WATCH_IDLE_SECONDS,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield the changes after `resource_version` until the server ends the watch.

        Raises Gone when that version is no longer served and ConnectionFailed when the stream is cut or
        silent. Close the generator (`contextlib.aclosing`) to end the watch early.
        """
        query = selection(labels, fields)
        query["watch"] = "true"
        query["allowWatchBookmarks"] = "true"
        query["resourceVersion"] = resource_version
        query["timeoutSeconds"] = str(timeout_seconds or random.randint(*_WATCH_SECONDS))  # noqa: S311 - not a secret
        call = collection_call("watch", kind, namespace, query)
        splitter = LineSplitter(call.what)
        async with self._transport.stream(call, timeout=self.timeout, idle=idle_seconds) as piece:
            while chunk := await piece():
                for line in splitter.feed(chunk):
                    yield decode_event(kind, line, call.what)
        if splitter.pending:
            raise ConnectionFailed(f"{call.what}: the stream ended in the middle of an event")

    # ------------------------------------------------------------------------------------------------ writing

    async def create(
        self,
        kind: type[T],
        body: Mapping[str, Any],
        *,
        namespace: str = "",
        field_manager: str = FIELD_MANAGER,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> T:
        """Create an object; name and namespace come from the body, the latter also from the argument."""
        query = write_query(field_manager, dry_run=dry_run)
        return await self._object(kind, create_call(kind, body, namespace, query), timeout)

    async def apply(
        self,
        kind: type[T],
        body: Mapping[str, Any],
        *,
        field_manager: str = FIELD_MANAGER,
        force: bool = True,
        subresource: str | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> T:
        """Apply an object on the server: create it, or make our fields of it what the body says."""
        metadata = body.get("metadata") or {}
        call = object_call(
            "PATCH",
            "apply",
            kind,
            metadata.get("name", ""),
            metadata.get("namespace", ""),
            subresource=subresource,
            query=write_query(field_manager, dry_run=dry_run, force="true" if force else "false"),
            body=typed(kind.RESOURCE, body),
            content_type=_APPLY,
        )
        return await self._object(kind, call, timeout)

    async def patch(
        self,
        kind: type[T],
        name: str,
        namespace: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        type: PatchType,  # noqa: A002 - Kubernetes' word
        subresource: str | None = None,
        field_manager: str = FIELD_MANAGER,
        dry_run: bool = False,
        timeout: float | None = None,
        not_after: float | None = None,
    ) -> T:
        """Change part of an object; with `not_after`, a time of the running loop, nothing is sent later."""
        call = object_call(
            "PATCH",
            "patch",
            kind,
            name,
            namespace,
            subresource=subresource,
            query=write_query(field_manager, dry_run=dry_run),
            body=patch,
            content_type=type.value,
        )
        return await self._object(kind, call._replace(not_after=not_after), timeout)

    async def patch_status(
        self,
        kind: type[T],
        name: str,
        namespace: str,
        status: Mapping[str, Any],
        *,
        resource_version: str | None = None,
        field_manager: str = FIELD_MANAGER,
        timeout: float | None = None,
    ) -> T:
        """Merge into the status; with `resource_version`, only if the object is still that one."""
        body: dict[str, Any] = {"status": status}
        if resource_version is not None:
            body["metadata"] = {"resourceVersion": resource_version}
        return await self.patch(
            kind,
            name,
            namespace,
            body,
            type=PatchType.MERGE,
            subresource="status",
            field_manager=field_manager,
            timeout=timeout,
        )

    async def get_scale(
        self, kind: type[Object], name: str, namespace: str, *, timeout: float | None = None
    ) -> Scale:
        """Return the scale of anything that has one."""
        return await self._object(
            Scale, object_call("GET", "get", kind, name, namespace, subresource="scale"), timeout
        )

    async def set_scale(
        self, kind: type[Object], name: str, namespace: str, replicas: int, *, timeout: float | None = None
    ) -> Scale:
        """Set the wanted number of replicas."""
        call = object_call(
            "PATCH",
            "patch",
            kind,
            name,
            namespace,
            subresource="scale",
            query=write_query(FIELD_MANAGER, dry_run=False),
            body={"spec": {"replicas": replicas}},
            content_type=PatchType.MERGE.value,
        )
        return await self._object(Scale, call, timeout)

    async def delete(
        self,
        kind: type[Object],
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        grace_period: int | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
        not_after: float | None = None,
    ) -> None:
        """Delete an object; with `uid` or `resource_version`, only that one (else Conflict).

        With `not_after`, a time of the running loop, nothing is sent later, however long it had to wait.
        """
        options = _delete_options(uid, resource_version, grace_period)
        options["propagationPolicy"] = propagation
        if dry_run:
            options["dryRun"] = ["All"]
        call = object_call("DELETE", "delete", kind, name, namespace, body=options)
        await self._send(call._replace(not_after=not_after), timeout)

    async def evict(
        self,
        name: str,
        namespace: str,
        *,
        uid: str | None = None,
        grace_period: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Delete a pod unless a disruption budget forbids it (TooManyRequests)."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, None, grace_period),
        }
        call = object_call("POST", "evict", Pod, name, namespace, subresource="eviction", body=body)
        await self._send(call._replace(what=f"evict Pod {namespace}/{name}"), timeout)

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        fenced: bool = True,
        secret: bool | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """Send any request and return the body.

        `fenced=False` is for reviews: POSTs that change nothing. `secret` tells whether the body may hold
        secrets, so that errors do not repeat what the server says of it; unless told, the path decides.
        """
        call = raw_call(method, path, query, body, content_type, fenced=fenced, secret=secret)
        return await self._send(call, timeout)

    async def _object(self, kind: type[T], call: ApiCall, timeout: float | None) -> T:
        return decode_object(kind, await self._send(call, timeout), call.what)

    async def _send(self, call: ApiCall, timeout: float | None) -> bytes:
        return await self._transport.send(call, self.timeout if timeout is None else timeout)


def default_user_agent() -> str:
    """Return the name under which the server's audit log knows us."""
    return f"slurm-operator/{slurm_operator.__version__} ({platform.system().lower()}/{platform.machine()})"


def _delete_options(
    uid: str | None, resource_version: str | None, grace_period: int | None
) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    if given := {key: value for key, value in preconditions.items() if value is not None}:
        options["preconditions"] = given
    if grace_period is not None:
        options["gracePeriodSeconds"] = grace_period
    return options
