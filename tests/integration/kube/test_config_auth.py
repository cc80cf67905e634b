"""Credentials and connections that a real API server accepts or refuses."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig, in_cluster_config, load_config
from slurm_operator.kube.errors import ConnectionFailed, Forbidden, TlsError, Unauthorized
from slurm_operator.kube.models.kinds import ConfigMap, Namespace
from tests.support.executables import python_program, shell_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from kubebox import Box

ADMIN = "kubebox-admin"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


async def who_am_i(config: ClientConfig) -> str:
    async with Client(config) as client:
        answer = await client.raw("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=REVIEW)
    return str(json.loads(answer)["status"]["userInfo"]["username"])


async def service_account_token(client: Client, namespace: str, name: str = "robot") -> str:
    base = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await client.raw("POST", base, body={"metadata": {"name": name}})
    answer = await client.raw("POST", f"{base}/{name}/token", body={"spec": {"expirationSeconds": 600}})
    return str(json.loads(answer)["status"]["token"])


@pytest.fixture
def kubeconfig(kube_box: Box, tmp_path: Path) -> Callable[..., Path]:
    """Hand out a function that writes a kubeconfig for the box with another user or cluster section."""

    def write(user: dict[str, Any] | None = None, **cluster: Any) -> Path:
        content = yaml.safe_load(kube_box.kubeconfig.read_text(encoding="utf-8"))
        content["clusters"][0]["cluster"].update(cluster)
        if user is not None:
            content["users"][0]["user"] = user
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    return write


async def test_client_certificate(config: ClientConfig) -> None:
    """The kubeconfig's client certificate is who we are."""
    assert await who_am_i(config) == ADMIN


async def test_service_account_token(
    client: Client, kube_namespace: str, kubeconfig: Callable[..., Path]
) -> None:
    """A bearer token makes us its service account."""
    token = await service_account_token(client, kube_namespace)
    config = load_config(kubeconfig({"token": token}), env={})
    assert await who_am_i(config) == f"system:serviceaccount:{kube_namespace}:robot"


async def test_in_cluster(client: Client, kube_box: Box, kube_namespace: str, tmp_path: Path) -> None:
    """The files and variables of a pod suffice, and a renewed token is used after a 401."""
    host, port = kube_box.server.removeprefix("https://").split(":")
    token = tmp_path / "token"
    token.write_text("expired", encoding="utf-8")
    (tmp_path / "ca.crt").write_bytes(kube_box.ca_file.read_bytes())
    (tmp_path / "namespace").write_text(kube_namespace, encoding="utf-8")
    config = in_cluster_config(
        env={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, service_account=tmp_path
    )
    assert config.namespace == kube_namespace
    with pytest.raises(Unauthorized):
        await who_am_i(config)
    token.write_text(await service_account_token(client, kube_namespace), encoding="utf-8")
    assert await who_am_i(config) == f"system:serviceaccount:{kube_namespace}:robot"


async def test_exec_plugin_is_run_again_after_a_401(
    client: Client, kube_namespace: str, kubeconfig: Callable[..., Path], tmp_path: Path
) -> None:
    """A token that the server refuses makes the plugin run again, within the same call."""
    good = await service_account_token(client, kube_namespace)
    (tmp_path / "tokens").write_text(f"refused\n{good}\n", encoding="utf-8")
    python_program(
        tmp_path / "plugin",
        "import json, pathlib\n"
        "tokens = pathlib.Path(__file__).parent / 'tokens'\n"
        "first, *rest = tokens.read_text().splitlines()\n"
        "tokens.write_text('\\n'.join(rest))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': first}}))\n",
    )
    version = "client.authentication.k8s.io/v1"
    user = {"exec": {"apiVersion": version, "command": "./plugin", "interactiveMode": "Never"}}
    config = load_config(kubeconfig(user), env={})
    assert await who_am_i(config) == f"system:serviceaccount:{kube_namespace}:robot"


async def test_exec_plugin_with_a_certificate(
    kube_box: Box, kubeconfig: Callable[..., Path], tmp_path: Path
) -> None:
    """A client certificate that a plugin prints is presented to the server."""
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "clientCertificateData": kube_box.cert_file.read_text(encoding="utf-8"),
            "clientKeyData": kube_box.key_file.read_text(encoding="utf-8"),
        },
    }
    (tmp_path / "answer").write_text(json.dumps(answer), encoding="utf-8")
    shell_program(tmp_path / "plugin", 'exec cat "$(dirname "$0")/answer"\n')
    version = "client.authentication.k8s.io/v1"
    user = {"exec": {"apiVersion": version, "command": "./plugin", "interactiveMode": "IfAvailable"}}
    assert await who_am_i(load_config(kubeconfig(user), env={})) == ADMIN


async def test_impersonation_and_forbidden(
    kube_box: Box, kubeconfig: Callable[..., Path], kube_namespace: str
) -> None:
    """An impersonated user is who the server sees, and what RBAC denies is Forbidden with the reason."""
    user = yaml.safe_load(kube_box.kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]
    config = load_config(
        kubeconfig(user | {"as": "jane", "as-groups": ["system:authenticated", "dev"]}), env={}
    )
    assert await who_am_i(config) == "jane"
    async with Client(config) as client:
        with pytest.raises(
            Forbidden, match=rf'list configmaps in {kube_namespace}: .*User "jane" cannot list'
        ):
            await client.list(ConfigMap, kube_namespace)


async def test_no_credentials(kubeconfig: Callable[..., Path]) -> None:
    """Without credentials the server takes us for anonymous."""
    config = load_config(kubeconfig({}), env={})
    async with Client(config) as client:
        with pytest.raises((Forbidden, Unauthorized)):
            await client.list(Namespace)


async def test_wrong_token(kubeconfig: Callable[..., Path]) -> None:
    """A token that nobody issued is Unauthorized and not repeated in the error."""
    async with Client(load_config(kubeconfig({"token": "hush"}), env={})) as client:
        with pytest.raises(Unauthorized, match="list namespaces: Unauthorized") as caught:
            await client.list(Namespace)
    assert "hush" not in str(caught.value)


async def test_unknown_authority_fails_at_once(kube_box: Box, kubeconfig: Callable[..., Path]) -> None:
    """A server whose authority we do not trust is an error that no retry delays."""
    path = kubeconfig(**{"certificate-authority-data": None})
    async with Client(load_config(path, env={}), timeout=3600.0) as client:
        with pytest.raises(
            TlsError, match=rf"TLS with {kube_box.server.removeprefix('https://')} failed: .*"
        ):
            await client.list(Namespace)


async def test_server_name_is_verified(kubeconfig: Callable[..., Path]) -> None:
    """tls-server-name replaces the name that the certificate must carry."""
    right = load_config(kubeconfig(**{"tls-server-name": "kubernetes.default.svc"}), env={})
    assert await who_am_i(right) == ADMIN
    wrong = load_config(kubeconfig(**{"tls-server-name": "elsewhere.example"}), env={})
    with pytest.raises(TlsError, match=r"elsewhere\.example"):
        await who_am_i(wrong)


async def test_insecure(kubeconfig: Callable[..., Path]) -> None:
    """insecure-skip-tls-verify connects without knowing the authority."""
    cluster: dict[str, Any] = {"certificate-authority-data": None, "insecure-skip-tls-verify": True}
    assert await who_am_i(load_config(kubeconfig(**cluster), env={})) == ADMIN


async def test_nobody_listens(config: ClientConfig, unused_tcp_port: int) -> None:
    """An address without a server is one clear line when the deadline ends the retries."""
    nowhere = dataclasses.replace(config, server=f"https://127.0.0.1:{unused_tcp_port}")
    async with Client(nowhere, timeout=0.5) as client:
        with pytest.raises(
            ConnectionFailed, match=rf"list namespaces: .*127\.0\.0\.1:{unused_tcp_port}"
        ) as caught:
            await client.list(Namespace)
    assert not caught.value.sent


# ---------------------------------------------------------------------------------------------------- proxies


class ConnectProxy:
    """A small forwarding proxy that knows CONNECT and asks for a password."""

    def __init__(self) -> None:
        self.tunnels: list[str] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        wanted = base64.b64encode(b"user:pass word").decode()
        if f"Proxy-Authorization: Basic {wanted}\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        target = head.split()[1]
        self.tunnels.append(target)
        host, port = target.split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self.pipe(reader, far_writer), self.pipe(far_reader, writer))

    async def pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[ConnectProxy]:
    connect = ConnectProxy()
    server = await asyncio.start_server(connect.serve, "127.0.0.1", 0)
    async with server:
        connect.port = server.sockets[0].getsockname()[1]
        yield connect


async def test_proxy_with_password(
    kube_box: Box, kubeconfig: Callable[..., Path], proxy: ConnectProxy
) -> None:
    """proxy-url with a password leads every connection through the proxy."""
    path = kubeconfig(**{"proxy-url": f"http://user:pass%20word@127.0.0.1:{proxy.port}"})
    assert await who_am_i(load_config(path, env={})) == ADMIN
    assert proxy.tunnels == [kube_box.server.removeprefix("https://")]


async def test_proxy_that_refuses(kubeconfig: Callable[..., Path], proxy: ConnectProxy) -> None:
    """A proxy that says no is named as the one who did, without its password."""
    path = kubeconfig(**{"proxy-url": f"http://user:hush@127.0.0.1:{proxy.port}"})
    async with Client(load_config(path, env={}), timeout=2.0) as client:
        with pytest.raises(ConnectionFailed, match=r"the proxy refused \(407") as caught:
            await client.list(Namespace)
    assert "hush" not in str(caught.value)
    assert proxy.tunnels == []
