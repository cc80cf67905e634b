"""Reads kubeconfig files the way kubectl does.

Several files merge into one: the first file that names a cluster, user, context or the current context wins,
and relative paths are relative to the file that wrote them. The result of `read_kubeconfig` is one chosen
context, resolved: where the server is, whom to trust, and how to log in. Every complaint starts with the file
and the path of the field.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import yaml

from slurm_operator.kube.client.auth import (
    Auth,
    CertificateFiles,
    Impersonate,
    TokenFile,
    anonymous,
    basic_password,
    bearer_token,
    clean_token,
)
from slurm_operator.kube.client.exec_plugin import ExecPlugin, ExecSpec, check_exec
from slurm_operator.kube.client.proxy import check_proxy
from slurm_operator.kube.client.tls import add_certificate, tls_context
from slurm_operator.kube.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


# The extension of a cluster that its credential plugin gets to see.
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class _Section(msgspec.Struct, rename="kebab", frozen=True):
    pass


class Extension(_Section, frozen=True):
    """A named blob; exec plugins may ask for theirs."""

    name: str = ""
    extension: Any = None


class ClusterEntry(_Section, frozen=True):
    """Where a server is and whom to trust."""

    server: str = ""
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[Extension] | None = None


class User(_Section, frozen=True):
    """How to log in."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    act_as: str | None = msgspec.field(name="as", default=None)
    act_as_uid: str | None = msgspec.field(name="as-uid", default=None)
    act_as_groups: list[str] | None = msgspec.field(name="as-groups", default=None)
    act_as_user_extra: dict[str, list[str]] | None = msgspec.field(name="as-user-extra", default=None)
    username: str | None = None
    password: str | None = None
    auth_provider: Any = None
    exec: ExecSpec | None = None

    def __repr__(self) -> str:
        return "User(…)"


class Context(_Section, frozen=True):
    """One combination of cluster, user and namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(_Section, frozen=True):
    name: str
    cluster: ClusterEntry | None = None


class _NamedUser(_Section, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(_Section, frozen=True):
    name: str
    context: Context | None = None


class _File(msgspec.Struct, rename="kebab", frozen=True):
    kind: str | None = None
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class Chosen(NamedTuple):
    """One context of the merged files, ready to use."""

    where: str
    server: str
    tls: ssl.SSLContext
    tls_server_name: str
    proxy: str | None
    namespace: str
    auth: Auth


class _Entry(NamedTuple):
    """A named section and the file it came from."""

    file: Path
    section: Any


class _Merged:
    """The merge of several files: first one wins."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        self.current = ""
        self.clusters: dict[str, _Entry] = {}
        self.users: dict[str, _Entry] = {}
        self.contexts: dict[str, _Entry] = {}
        for path in self.paths:
            self._add(path, _parse(path))

    def _add(self, path: Path, content: _File) -> None:
        self.current = self.current or content.current_context or ""
        for cluster in content.clusters or ():
            self.clusters.setdefault(cluster.name, _Entry(path, cluster.cluster or ClusterEntry()))
        for user in content.users or ():
            self.users.setdefault(user.name, _Entry(path, user.user or User()))
        for context in content.contexts or ():
            self.contexts.setdefault(context.name, _Entry(path, context.context or Context()))


def read_kubeconfig(paths: Sequence[Path], context: str | None, *, explicit: bool) -> Chosen:
    """Merge kubeconfig files and resolve one context; only explicitly named files must exist."""
    present = [path for path in paths if path.exists()]
    if not present or (explicit and len(present) < len(paths)):
        missing = ", ".join(str(path) for path in paths if path not in present)
        raise ConfigError(
            f"{missing}: no such file; set KUBECONFIG or --kubeconfig to an existing kubeconfig"
        )
    merged = _Merged(present)
    name = context or merged.current
    files = ", ".join(str(path) for path in present)
    if not name:
        raise ConfigError(f"{files}: current-context: not set; run `kubectl config use-context NAME`")
    chosen = _named(merged.contexts, "contexts", name, files)
    ctx: Context = chosen.section
    if not ctx.cluster:
        raise ConfigError(
            f"{chosen.file}: contexts[{name}].context.cluster: not set; name one of the clusters"
        )
    cluster = _named(
        merged.clusters, "clusters", ctx.cluster, str(chosen.file), f"contexts[{name}].context.cluster"
    )
    user = (
        _named(merged.users, "users", ctx.user, str(chosen.file), f"contexts[{name}].context.user")
        if ctx.user
        else _Entry(chosen.file, User())
    )
    return _resolve(ctx, cluster, user)


def _parse(path: Path) -> _File:
    try:
        loaded = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check its permissions") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}:{line} not valid YAML; fix it or write it with `kubectl config`") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{path}: not a text file; a kubeconfig is YAML") from None
    if loaded is None:
        return _File()
    try:
        return msgspec.convert(loaded, _File)
    except msgspec.ValidationError as error:
        problem, _, field = str(error).partition(" - at ")
        place = field.strip("`").removeprefix("$.").removeprefix("$") or "the file"
        raise ConfigError(f"{path}: {place}: {problem[:1].lower()}{problem[1:].replace('`', '')}") from None


def _named(entries: dict[str, _Entry], kind: str, name: str, file: str, field: str = "") -> _Entry:
    try:
        return entries[name]
    except KeyError:
        known = ", ".join(sorted(entries)) or "none"
        at = f"{field}: " if field else ""
        raise ConfigError(
            f"{file}: {at}no {kind.removesuffix('s')} named {name!r}; {kind} here: {known}"
        ) from None


def _resolve(ctx: Context, cluster_entry: _Entry, user_entry: _Entry) -> Chosen:
    cluster: ClusterEntry = cluster_entry.section
    where = f"{cluster_entry.file}: clusters[{ctx.cluster}].cluster"
    if not cluster.server:
        raise ConfigError(f"{where}.server: not set; write it like https://10.0.0.1:6443")
    authority = _material(
        cluster.certificate_authority_data,
        cluster.certificate_authority,
        cluster_entry.file,
        where,
        "certificate-authority",
    )
    insecure = bool(cluster.insecure_skip_tls_verify)
    if insecure and authority is not None:
        raise ConfigError(
            f"{where}.insecure-skip-tls-verify: excludes a certificate-authority; remove one of the two"
        )

    def trust() -> ssl.SSLContext:
        if authority is None:
            return tls_context(insecure=insecure, where=where)
        return tls_context(ca_data=authority.content, where=authority.where)

    login = _Login(user_entry.section, user_entry.file, f"{user_entry.file}: users[{ctx.user}].user", trust)
    info = _cluster_info(cluster, authority.content if authority else None)
    return Chosen(
        where=where,
        server=cluster.server,
        tls=login.context(),
        tls_server_name=cluster.tls_server_name or "",
        proxy=check_proxy(cluster.proxy_url, f"{where}.proxy-url") if cluster.proxy_url else None,
        namespace=ctx.namespace or "",
        auth=login.auth(info),
    )


class _Material(NamedTuple):
    """PEM from a field, inline or in a file."""

    where: str
    content: bytes
    path: Path | None


def _material(data: str | None, name: str | None, file: Path, where: str, field: str) -> _Material | None:
    """Return what a pair of fields such as `client-key` and `client-key-data` gives; inline data wins."""
    if data:
        at = f"{where}.{field}-data"
        try:
            return _Material(at, base64.b64decode("".join(data.split()), validate=True), None)
        except (binascii.Error, ValueError):
            raise ConfigError(f"{at}: not base64; encode the PEM file with `base64 -w0`") from None
    if not name:
        return None
    path = file.parent / name
    at = f"{where}.{field} ({path})"
    try:
        return _Material(at, path.read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"{at}: {error.strerror}; name a readable PEM file or use {field}-data") from None


class _Login:
    """Turns one user section into a TLS context and an `Auth`."""

    def __init__(self, user: User, file: Path, where: str, trust: Callable[[], ssl.SSLContext]) -> None:
        self._user = user
        self._file = file
        self._where = where
        self._trust = trust
        self._paths: tuple[Path, ...] = ()

    def context(self) -> ssl.SSLContext:
        """Return a context with the client certificate that the section names, if any."""
        user = self._user
        context = self._trust()
        certificate = _material(
            user.client_certificate_data,
            user.client_certificate,
            self._file,
            self._where,
            "client-certificate",
        )
        key = _material(user.client_key_data, user.client_key, self._file, self._where, "client-key")
        if certificate is None and key is None:
            return context
        if certificate is None or key is None:
            missing = "client-certificate" if certificate is None else "client-key"
            raise ConfigError(f"{self._where}.{missing}: not set; a client certificate needs both parts")
        self._paths = tuple(part.path for part in (certificate, key) if part.path is not None)
        add_certificate(context, certificate.content, key.content, where=certificate.where)
        return context

    def auth(self, cluster: dict[str, Any]) -> Auth:
        """Return the credentials that go with each request; call `context` first."""
        user = self._user
        if user.auth_provider is not None:
            raise ConfigError(f"{self._where}.auth-provider: not supported; use an exec plugin instead")
        ways = {
            "exec": user.exec,
            "token": user.token_file or user.token,
            "username": user.username,
        }
        if len(given := [name for name, value in ways.items() if value]) > 1:
            raise ConfigError(f"{self._where}: {' and '.join(given)} exclude each other; keep one")
        auth = anonymous()
        if user.exec is not None:
            check_exec(user.exec, f"{self._where}.exec")
            auth = ExecPlugin(
                user.exec,
                directory=self._file.parent,
                cluster=cluster,
                trust=self._trust,
                where=f"{self._where}.exec",
            )
        elif user.token_file:
            auth = TokenFile(self._file.parent / user.token_file)
        elif user.token:
            auth = bearer_token(self._token(user.token))
        elif user.username:
            auth = basic_password(user.username, user.password or "")
        if self._paths:
            auth = CertificateFiles(auth, self.context, self._paths)
        return self._impersonation(auth)

    def _token(self, given: str) -> str:
        try:
            token = clean_token(given)
        except ValueError as error:
            raise ConfigError(f"{self._where}.token: {error}") from None
        if not token:
            raise ConfigError(f"{self._where}.token: blank; give the token or remove the field")
        return token

    def _impersonation(self, auth: Auth) -> Auth:
        user = self._user
        if user.act_as:
            return Impersonate(
                auth,
                user.act_as,
                uid=user.act_as_uid or "",
                groups=tuple(user.act_as_groups or ()),
                extra=user.act_as_user_extra or {},
            )
        if user.act_as_groups or user.act_as_uid or user.act_as_user_extra:
            raise ConfigError(f"{self._where}.as: not set; impersonated groups need the user they belong to")
        return auth


def _cluster_info(cluster: ClusterEntry, authority: bytes | None) -> dict[str, Any]:
    """Return what a credential plugin may ask to know about the cluster."""
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode() if authority else None,
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
        "config": next((e.extension for e in cluster.extensions or () if e.name == _EXEC_EXTENSION), None),
    }
    return {key: value for key, value in info.items() if value is not None}
