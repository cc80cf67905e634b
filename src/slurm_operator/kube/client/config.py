"""Finds the API server and the credentials for it.

`load_config` looks where every Kubernetes tool looks, in this order: the path it was given, the files in
`$KUBECONFIG`, the service account mounted into a pod, `~/.kube/config`. Everything it can check without the
network it checks here, and a mistake is one `ConfigError` line that names the file, the field and the fix.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from yarl import URL

from slurm_operator.kube.client.auth import Auth, TokenFile, anonymous
from slurm_operator.kube.client.kubeconfig import read_kubeconfig
from slurm_operator.kube.client.proxy import proxy_from_environment
from slurm_operator.kube.client.tls import tls_context
from slurm_operator.kube.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class ClientConfig:
    """The way to one API server."""

    server: str
    ssl: ssl.SSLContext | None = field(default=None, repr=False)
    proxy: str | None = field(default=None, repr=False)  # may carry a password
    namespace: str = "default"
    auth: Auth = field(default_factory=anonymous)
    server_hostname: str | None = None  # the name to verify instead of the server's (`tls-server-name`)


def load_config(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClientConfig:
    """Return the configuration: from a path, `$KUBECONFIG`, the pod's service account or the home."""
    env = os.environ if env is None else env
    if kubeconfig:
        return _from_kubeconfig([Path(kubeconfig)], context, env, explicit=True)
    if listed := env.get("KUBECONFIG", "").strip():
        paths = [Path(part) for part in listed.split(os.pathsep) if part]
        return _from_kubeconfig(paths, context, env)
    if env.get("KUBERNETES_SERVICE_HOST") and context is None:
        return in_cluster_config(env=env, service_account=service_account)
    home = Path(env.get("HOME") or "/") / ".kube" / "config"
    if home.exists():
        return _from_kubeconfig([home], context, env)
    raise ConfigError(
        f"no way to the API server: $KUBECONFIG is not set, this is not a pod, and {home} does not exist; "
        "set KUBECONFIG or pass --kubeconfig"
    )


def in_cluster_config(
    *, env: Mapping[str, str] | None = None, service_account: Path = SERVICE_ACCOUNT
) -> ClientConfig:
    """Return the configuration that Kubernetes mounts into every pod with a service account."""
    env = os.environ if env is None else env
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        missing = "KUBERNETES_SERVICE_PORT" if host else "KUBERNETES_SERVICE_HOST"
        raise ConfigError(f"in-cluster configuration: ${missing} is not set; run in a pod or set KUBECONFIG")
    token, ca, namespace = (service_account / name for name in ("token", "ca.crt", "namespace"))
    for path in (token, ca):
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; the pod needs automountServiceAccountToken: true")
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        home = namespace.read_text(encoding="utf-8").strip() if namespace.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{namespace}: cannot be read ({type(error).__name__}); it must name a namespace"
        ) from None
    return ClientConfig(
        server=server,
        ssl=tls_context(ca_file=ca, where=str(ca)),
        proxy=proxy_from_environment(server, env),
        namespace=home or "default",
        auth=TokenFile(token),
    )


def _from_kubeconfig(
    paths: list[Path], context: str | None, env: Mapping[str, str], *, explicit: bool = False
) -> ClientConfig:
    chosen = read_kubeconfig(paths, context, explicit=explicit)
    server = _server(chosen.server, chosen.where)
    proxy = chosen.proxy or proxy_from_environment(server, env)
    return ClientConfig(
        server=server,
        ssl=chosen.tls if server.startswith("https:") else None,
        proxy=proxy,
        namespace=chosen.namespace or "default",
        auth=chosen.auth,
        server_hostname=chosen.tls_server_name or None,
    )


def _server(value: str, where: str) -> str:
    try:
        url = URL(value)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"{where}.server: not an http(s) URL; write it like https://10.0.0.1:6443")
    if url.user or url.password:
        raise ConfigError(f"{where}.server: credentials do not belong in the URL; put them under users")
    return value.rstrip("/")
