"""The manager's API, found and called with an ordinary kubeconfig.

The leader is the pod that holds the Lease `slurm-operator`. A token of the ServiceAccount
`slurm-operator-viewer` with the audience `slurm-operator` is the proof that the user may see what the
operator knows; it travels in a header of its own, because the API server removes `Authorization`.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import aiohttp
import msgspec

from slurm_operator.kube.errors import ApiError, Forbidden, KubeError, NotFound
from slurm_operator.kube.models.kinds import Lease, Pod
from slurm_operator.plugin.exits import ExitCode, ManagerUnavailable
from slurm_operator.plugin.pod_proxy import PodPort
from slurm_operator.status_rows import AUDIENCE, NOT_LEADER, TOKEN_HEADER, ErrorReply, StatusRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_operator.kube.client.client import Client
    from slurm_operator.plugin.pod_proxy import PodProxy

LEASE: Final = "slurm-operator"
DEFAULT_NAMESPACE: Final = "slinky"
VIEWER: Final = "slurm-operator-viewer"
PORT_NAME: Final = "status"
# The shortest that Kubernetes grants.
TOKEN_SECONDS: Final = 600
_RENEW_SECONDS: Final = 0.8 * TOKEN_SECONDS
_TRIES: Final = 4
_RETRY_SECONDS: Final = 0.5
_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 200, 401, 403, 404, 429

_POD_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")

V = TypeVar("V", bound=StatusRow)


class _IssuedTokenStatus(msgspec.Struct, frozen=True):
    token: str = ""


class _IssuedToken(msgspec.Struct, frozen=True):
    status: _IssuedTokenStatus = _IssuedTokenStatus()


class _KubeStatus(msgspec.Struct, frozen=True):
    kind: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ViewerAccount:
    """The ServiceAccount whose token opens the API."""

    namespace: str
    name: str = VIEWER


async def locate(client: Client, namespace: str) -> PodPort:
    """Return where the leader listens; without a namespace, it is looked for."""
    where, holder = await _leader(client, namespace)
    return await _port(client, where, holder)


async def _leader(client: Client, namespace: str) -> tuple[str, str]:
    """Return namespace and pod of the leader."""
    first = namespace or DEFAULT_NAMESPACE
    forbidden: Forbidden | None = None
    try:
        return first, _pod_name(await client.get(Lease, LEASE, first))
    except NotFound:
        pass
    except Forbidden as error:
        forbidden = error
    try:
        if pod := await _single_pod(client, first):
            return first, pod
        if not namespace:
            leases = await client.list(Lease, fields={"metadata.name": LEASE})
            if leases.items:
                found = _only_lease(leases.items)
                return found.metadata.namespace, _pod_name(found)
    except Forbidden as error:
        forbidden = forbidden or error
    if forbidden is not None:
        raise ManagerUnavailable(
            f"you may not look for the operator in namespace {first}: ask for the Role {VIEWER}, or name its "
            "namespace with --operator-namespace",
            ExitCode.FORBIDDEN,
        )
    raise ManagerUnavailable(
        f"no operator runs in namespace {first}"
        + ("" if namespace else " or any other; if it is elsewhere, add --operator-namespace"),
        ExitCode.NO_OPERATOR,
    )


def _only_lease(leases: Sequence[Lease]) -> Lease:
    """Return the only Lease; who may create a Lease could otherwise pass for the operator."""
    if len(leases) > 1:
        places = ", ".join(sorted(one.metadata.namespace for one in leases))
        raise ManagerUnavailable(
            f"several namespaces have a Lease {LEASE} ({places}): name that of the operator with "
            "--operator-namespace"
        )
    return leases[0]


async def _single_pod(client: Client, namespace: str) -> str:
    """Return the pod of an operator without leader election; empty if there is none."""
    # The package `api` has every kind, which takes long to load and which `status` does not need.
    from slurm_operator.api import wellknown  # noqa: PLC0415 - see above

    labels = {wellknown.LABEL_APP_NAME: wellknown.OPERATOR, wellknown.LABEL_APP_PART_OF: wellknown.OPERATOR}
    pods = await client.list(Pod, namespace, labels=labels)
    return next((pod.metadata.name for pod in pods.items if pod.status.phase == "Running"), "")


def _pod_name(lease: Lease) -> str:
    holder = (lease.spec.holder_identity or "").rpartition("_")[0]
    if not holder:
        raise ManagerUnavailable(
            f"no operator leads: the Lease {lease.metadata.namespace}/{LEASE} has no holder",
            ExitCode.NO_OPERATOR,
        )
    return holder


async def _port(client: Client, namespace: str, name: str) -> PodPort:
    try:
        pod = await client.get(Pod, name, namespace)
    except NotFound:
        raise ManagerUnavailable(
            f"no operator leads: pod {namespace}/{name}, which holds the Lease, is gone", ExitCode.NO_OPERATOR
        ) from None
    except Forbidden:
        raise ManagerUnavailable(
            f"you may not read pod {namespace}/{name} of the operator: ask for the Role {VIEWER}",
            ExitCode.FORBIDDEN,
        ) from None
    for container in pod.spec.containers:
        for port in container.ports:
            if port.name == PORT_NAME:
                return PodPort(namespace, name, port.container_port)
    raise ManagerUnavailable(
        f"the operator in pod {namespace}/{name} has no status API: it is older than this command, "
        "or operator.statusPort is 0",
        ExitCode.OLD_OPERATOR,
    )


async def request_token(client: Client, viewer: ViewerAccount) -> str:
    """Return a token that opens the API; being allowed to request it is the permission."""
    path = f"/api/v1/namespaces/{viewer.namespace}/serviceaccounts/{viewer.name}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS},
    }
    try:
        reply = await client.raw("POST", path, body=body, fenced=False, secret=True)
    except NotFound:
        raise ManagerUnavailable(
            f"there is no ServiceAccount {viewer.namespace}/{viewer.name}: the operator is older than this "
            "command, or its status API is disabled",
            ExitCode.OLD_OPERATOR,
        ) from None
    except Forbidden:
        raise ManagerUnavailable(
            f"you may not create a token of ServiceAccount {viewer.namespace}/{viewer.name}: ask for the "
            f"Role {VIEWER} in that namespace",
            ExitCode.FORBIDDEN,
        ) from None
    return msgspec.json.decode(reply, type=_IssuedToken).status.token


class ManagerApi:
    """Calls the API of the leader, and follows it when another replica leads."""

    def __init__(
        self, client: Client, proxy: PodProxy, *, namespace: str = "", viewer: ViewerAccount | None = None
    ) -> None:
        self.proxy = proxy
        self.target: PodPort | None = None
        self._client = client
        self._namespace = namespace
        self._viewer = viewer
        self._token = ""
        self._requested_at = 0.0
        self._lock = asyncio.Lock()

    async def connect(self) -> tuple[PodPort, str]:
        """Return where the leader is and a token for it; both are kept until forgotten or too old."""
        async with self._lock:
            try:
                if self.target is None:
                    self.target = await locate(self._client, self._namespace)
                now = asyncio.get_running_loop().time()
                if not self._token or now - self._requested_at > _RENEW_SECONDS:
                    viewer = self._viewer or ViewerAccount(self.target.namespace)
                    self._token = await request_token(self._client, viewer)
                    self._requested_at = now
            except ApiError as error:
                raise ManagerUnavailable(f"the operator cannot be asked: {error}") from None
            return self.target, self._token

    def forget(self, *, token: bool = False) -> None:
        """Look for the leader again, or for a new token, at the next call."""
        if token:
            self._token = ""
        else:
            self.target = None

    async def get(self, path: str, query: Mapping[str, str], kind: type[V], *, seconds: float = 15.0) -> V:
        """Return a reply of the API; ManagerUnavailable says why there is none."""
        for attempt in range(1, _TRIES + 1):
            target, token = await self.connect()
            headers = {TOKEN_HEADER: token, "Accept": "application/json"}
            try:
                opened = self.proxy.open(
                    target, f"/api/v1/{path}", query=query, headers=headers, seconds=seconds
                )
                async with opened as response:
                    status, body = response.status, await response.read()
            except (aiohttp.ClientError, OSError, TimeoutError, KubeError) as error:
                self._unreachable(f"{type(error).__name__}")
            if status == _OK:
                try:
                    return msgspec.json.decode(body, type=kind)
                except msgspec.MsgspecError as error:
                    raise ManagerUnavailable(
                        f"the reply of the operator is not understood: {error}"
                    ) from None
            await self._after_refusal(status, body, last=attempt == _TRIES)
        raise AssertionError

    async def _after_refusal(self, status: int, body: bytes, *, last: bool) -> None:
        """Prepare another try, or raise what the refusal means."""
        refused = _decoded(body)
        if isinstance(refused, _KubeStatus):
            self._refused_on_the_way(status, refused, last=last)
        elif refused.error.code == NOT_LEADER and not last:
            leader = refused.error.leader.rpartition("_")[0]
            # It becomes part of a path that is asked for with the credentials of the user.
            if _POD_NAME.fullmatch(leader) is not None:
                self.target = (
                    PodPort(self.target.namespace, leader, self.target.port) if self.target else None
                )
            else:
                self.forget()
        elif status == _UNAUTHORIZED and not last:
            self.forget(token=True)
        elif status == _TOO_MANY and not last:
            pass
        else:
            self._refused(status, refused.error.code, refused.error.message)
        await asyncio.sleep(_RETRY_SECONDS)

    def _refused_on_the_way(self, status: int, refused: _KubeStatus, *, last: bool) -> None:
        if status == _FORBIDDEN:
            raise ManagerUnavailable(
                f"you may not use the proxy of the operator's pod: ask for the Role {VIEWER}",
                ExitCode.FORBIDDEN,
            )
        if last or status != _NOT_FOUND:
            self._unreachable(refused.message or f"HTTP {status}")
        self.forget()

    def _refused(self, status: int, code: str, message: str) -> NoReturn:
        told = message or f"HTTP {status}"
        if status == _FORBIDDEN:
            raise ManagerUnavailable(f"the operator refuses: {told}", ExitCode.FORBIDDEN)
        if status == _NOT_FOUND:
            raise ManagerUnavailable(
                f"the operator is older than this command: {told}", ExitCode.OLD_OPERATOR
            )
        raise ManagerUnavailable(f"the operator refuses ({code or status}): {told}")

    def _unreachable(self, why: str) -> NoReturn:
        where = "" if self.target is None else f" in pod {self.target.namespace}/{self.target.pod}"
        raise ManagerUnavailable(f"the operator{where} cannot be reached: {why}")


def _decoded(body: bytes) -> ErrorReply | _KubeStatus:
    """Return whose refusal it is: that of the API server on the way, or that of the manager."""
    try:
        status = msgspec.json.decode(body, type=_KubeStatus)
        return status if status.kind == "Status" else msgspec.json.decode(body, type=ErrorReply)
    except msgspec.MsgspecError:
        return ErrorReply()
