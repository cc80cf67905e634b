"""The Kubernetes of all runs: one control plane, the operator's account, and a small client for the lab.

The lab itself speaks to kube-apiserver as the administrator and past the proxies: what it reads is never
stale, and no fault hits it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import yaml

from faultlab.errors import FaultlabError
from kubebox import Box, BoxSpec
from kubebox.api import admin_context
from kubebox.pki import issue, make_authority, write_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from pathlib import Path

Json = dict[str, Any]

_CONFLICT, _NOT_FOUND = 409, 404
_TOKEN_SECONDS: Final = 12 * 3600
_DEFAULT_ACCOUNT: Final = "faultlab/operator"
# No state of an operator's making, or different in every run.
_LEFT_OUT: Final = frozenset(
    {
        "events",
        "leases",
        "endpoints",
        "endpointslices",
        "serviceaccounts",
        "bindings",
        "localsubjectaccessreviews",
    }
)
# What kube-controller-manager puts into every namespace.
_GIVEN: Final = frozenset({("ConfigMap", "kube-root-ca.crt")})


class ApiError(FaultlabError):
    """kube-apiserver refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Resource:
    """One resource that kube-apiserver serves."""

    group_version: str
    plural: str
    kind: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of a list or of an object."""
        root = f"/apis/{self.group_version}" if "/" in self.group_version else f"/api/{self.group_version}"
        where = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return "/".join(part for part in (f"{root}{where}/{self.plural}", name, subresource) if part)


class Kube:
    """A client for objects as plain JSON."""

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session
        self._resources: dict[str, Resource] = {}

    async def request(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Send one request and return the object that comes back; ApiError says why there is none."""
        async with self._session.request(
            method,
            self._server + path,
            # Without spaces: the data of a ControllerRevision are bytes, which kube-apiserver compares as Go
            # writes them.
            data=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
            headers={"Content-Type": content_type, "Accept": "application/json"},
            params=query,
        ) as answer:
            text = await answer.text()
        if answer.status >= 400:  # noqa: PLR2004 - an HTTP failure
            try:
                message = str(json.loads(text).get("message", text))
            except ValueError:
                message = text
            raise ApiError(answer.status, message)
        content: Json = json.loads(text) if text else {}
        return content

    async def stream(self, path: str) -> AsyncIterator[Json]:
        """Yield the events of a watch until it ends."""
        async with self._session.get(self._server + path) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    # --- kinds

    async def resource(self, kind: str) -> Resource:
        """Return the resource of a kind, which may be written group/Kind."""
        if kind not in self._resources:
            await self.discover()
        if kind not in self._resources:
            raise FaultlabError(f"kube-apiserver has no kind {kind}")
        return self._resources[kind]

    def adopt(self, other: Kube) -> None:
        """Take over what another client knows about resources."""
        self._resources = dict(other._resources)

    async def discover(self) -> list[Resource]:
        """Read which resources there are; of several versions the preferred one."""
        groups = await self.request("GET", "/apis")
        versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups["groups"])]
        # Kinds of one group may have versions of their own.
        versions += [one["groupVersion"] for group in groups["groups"] for one in group["versions"]]
        found: dict[tuple[str, str], Resource] = {}
        for version in dict.fromkeys(versions):
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for item in (await self.request("GET", root))["resources"]:
                if "/" in item["name"] or "list" not in item["verbs"]:
                    continue
                resource = Resource(version, item["name"], item["kind"], bool(item["namespaced"]))
                found.setdefault((version.partition("/")[0], item["name"]), resource)
        resources = [*found.values()]
        for resource in reversed(resources):
            group = resource.group_version.rpartition("/")[0]
            self._resources[resource.kind] = self._resources[f"{group}/{resource.kind}"] = resource
        return resources

    # --- objects

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object, or None if there is none."""
        try:
            return await self.request("GET", (await self.resource(kind)).path(namespace, name))
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def create(self, body: Json, namespace: str = "") -> Json:
        """Create an object."""
        resource = await self.resource(body["kind"])
        return await self.request("POST", resource.path(namespace), body)

    async def ensure(self, body: Json, namespace: str = "") -> None:
        """Create an object unless it is there."""
        try:
            await self.create(body, namespace)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise

    async def patch(
        self, kind: str, namespace: str, name: str, body: Json | list[Json], subresource: str = ""
    ) -> Json:
        """Merge something into an object."""
        resource = await self.resource(kind)
        how = "json-patch" if isinstance(body, list) else "merge-patch"
        return await self.request(
            "PATCH",
            resource.path(namespace, name, subresource),
            body,  # type: ignore[arg-type]  # a JSON patch is a list
            content_type=f"application/{how}+json",
        )

    async def delete(self, kind: str, namespace: str, name: str, body: Json | None = None) -> None:
        """Delete an object."""
        resource = await self.resource(kind)
        await self.request("DELETE", resource.path(namespace, name), body)

    async def version(self) -> str:
        """Return the newest resourceVersion, which counts over all kinds."""
        # A list of something that is never there is answered from etcd itself.
        found = await self.request("GET", "/api/v1/namespaces/default/podtemplates")
        return str(found["metadata"]["resourceVersion"])

    async def everything(self, namespace: str, kinds: Iterable[Resource]) -> list[Json]:
        """Return all objects of a namespace, but those that say nothing about an operator."""
        lists = await asyncio.gather(
            *(
                self._list(kind, namespace)
                for kind in kinds
                if kind.namespaced and kind.plural not in _LEFT_OUT
            )
        )
        found = [item for items in lists for item in items]
        return [item for item in found if (item["kind"], item["metadata"]["name"]) not in _GIVEN]

    async def _list(self, resource: Resource, namespace: str) -> list[Json]:
        try:
            found = await self.request("GET", resource.path(namespace))
        except ApiError as error:
            if error.status in (_NOT_FOUND, 405):
                return []
            raise
        return [
            {**item, "apiVersion": resource.group_version, "kind": resource.kind} for item in found["items"]
        ]


class Lab:
    """What all runs share."""

    def __init__(self, box: Box, kube: Kube, folder: Path, account: str) -> None:
        self.box = box
        self.kube = kube
        self._folder = folder
        self._account = account
        self.trust = ssl.create_default_context(cafile=str(box.ca_file))
        authority = make_authority("faultlab-ca")
        certificate = issue(authority, "faultlab", names=["localhost"], addresses=["127.0.0.1"])
        write_pair(folder, "proxy-ca", authority.certificate, authority.key)
        write_pair(folder, "proxy", *certificate)
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(folder / "proxy.crt", folder / "proxy.key")

    async def token(self) -> str:
        """Return a new token of the operator's account."""
        namespace, _, name = self._account.partition("/")
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str((await self.kube.request("POST", path, body))["status"]["token"])

    def kubeconfig(self, path: Path, server: str, token: str, namespace: str) -> Path:
        """Write a kubeconfig for the operator: the proxy, whom to trust, and its own token."""
        authority = base64.b64encode((self._folder / "proxy-ca.crt").read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [
                {"name": "lab", "context": {"cluster": "lab", "user": "operator", "namespace": namespace}}
            ],
            "clusters": [
                {"name": "lab", "cluster": {"server": server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "operator", "user": {"token": token}}],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path


@asynccontextmanager
async def client(box: Box, context: ssl.SSLContext | None = None) -> AsyncIterator[Kube]:
    """Open a client, as the administrator unless another identity is given."""
    connector = aiohttp.TCPConnector(ssl=context or admin_context(box.state / "pki"), limit=0)
    timeout = aiohttp.ClientTimeout(total=None, connect=30)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Kube(box.server, session)


@asynccontextmanager
async def laboratory(folder: Path, manifests: Sequence[Path] = (), account: str = "") -> AsyncIterator[Lab]:
    """Start a control plane with these manifests in it, and end it after the block.

    Without an account the operator gets one that may do everything.
    """
    # The past that stale lists show must not be compacted before: on a busy machine a run takes minutes.
    history = ("--etcd-compaction-interval=20m",)
    spec = BoxSpec(controller_manager=True, scheduler=True, ready_timeout=300, apiserver_args=history)
    with await asyncio.to_thread(Box.up, spec) as box:
        async with client(box) as kube:
            own = account or _DEFAULT_ACCOUNT
            namespace, _, name = own.partition("/")
            await kube.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            for manifest in manifests:
                await asyncio.to_thread(
                    box.kubectl, "apply", "--server-side", "--force-conflicts", "-f", str(manifest)
                )
            if not account:
                await _all_permissions(kube, namespace, name)
            await asyncio.to_thread(_await_crds, box)
            yield Lab(box, kube, folder, own)


async def _all_permissions(kube: Kube, namespace: str, name: str) -> None:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    }
    await kube.ensure(account, namespace)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"faultlab-{name}"},
        "roleRef": role,
        "subjects": [subject],
    }
    await kube.ensure(binding)


def _await_crds(box: Box) -> None:
    if box.kubectl("get", "crd", "-o", "name").strip():
        box.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all", timeout=90)
