"""Credential plugins: programs that print a token or a client certificate.

Cloud clusters issue short-lived credentials through a program that the kubeconfig names. One run serves all
callers that need credentials while it lasts, in any event loop, with its result or its failure; the result is
kept until it expires or the API server rejects it. The run has a thread of its own, so that a program that
hangs takes no worker from name lookups and does not delay the exit of the process, and a session of its own,
so that its child processes are killed with it when it times out.

What the program prints on standard output is a secret and stays here; its standard error goes to ours, as
with kubectl, because only the program can report what it lacks.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from slurm_operator.kube.client.auth import clean_token
from slurm_operator.kube.client.tls import add_certificate
from slurm_operator.kube.errors import ConfigError, CredentialsError
from slurm_operator.kube.manifests.wire import MALFORMED

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# Well below the deadline of a call, whose caller then learns what is wrong instead of that time is up.
_EXEC_SECONDS = 8.0
# Asked for a little early, so that a token does not expire between here and the server.
_EARLY = timedelta(seconds=5)


class EnvVar(msgspec.Struct, frozen=True):
    """One variable for the plugin."""

    name: str
    value: str = ""

    def __repr__(self) -> str:
        return f"EnvVar({self.name!r})"


class ExecSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The `exec` section of a kubeconfig user."""

    command: str = ""
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    api_version: str = ""
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None


class _CredentialStatus(msgspec.Struct, rename="camel"):
    expiration_timestamp: datetime | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _CredentialStatus | None = None


class _Result(NamedTuple):
    """Credentials of one run."""

    headers: dict[str, str]
    tls: ssl.SSLContext | None
    expires: datetime | None


def check_exec(spec: ExecSpec, where: str) -> None:
    """Refuse an exec section that cannot work, naming the field."""
    if not spec.command:
        raise ConfigError(f"{where}.command: not set; name the program that prints the credentials")
    if spec.api_version not in _VERSIONS:
        given = f"{spec.api_version!r} is not supported" if spec.api_version else "not set"
        raise ConfigError(f"{where}.apiVersion: {given}; use {_VERSIONS[0]}")
    if spec.interactive_mode is None and spec.api_version == _VERSIONS[0]:
        raise ConfigError(f"{where}.interactiveMode: not set; use Never or IfAvailable")
    if spec.interactive_mode not in (None, "Never", "IfAvailable", "Always"):
        raise ConfigError(
            f"{where}.interactiveMode: {spec.interactive_mode!r} is unknown; use Never or IfAvailable"
        )
    if spec.interactive_mode == "Always":
        raise ConfigError(
            f"{where}.interactiveMode: Always needs a person at a terminal; use Never or IfAvailable"
        )


class ExecPlugin:
    """Credentials from a program."""

    def __init__(
        self,
        spec: ExecSpec,
        *,
        directory: Path,
        cluster: Mapping[str, Any] | None,
        trust: Callable[[], ssl.SSLContext],
        where: str,
        seconds: float = _EXEC_SECONDS,
    ) -> None:
        self._spec = spec
        # A command with a slash is relative to the kubeconfig; a bare name is looked up in PATH.
        self._command = str(directory / spec.command) if "/" in spec.command else spec.command
        self._cluster = cluster
        self._trust = trust
        self._where = where
        self._seconds = seconds
        self._lock = threading.Lock()
        self._result: _Result | None = None
        self._running: Future[_Result] | None = None

    async def headers(self) -> Mapping[str, str]:
        """Return the plugin's token as a header."""
        return (await self._current()).headers

    async def tls(self, configured: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """Return a context with the plugin's client certificate, if it gave one."""
        own = (await self._current()).tls
        return configured if own is None or configured is None else own

    async def refresh(self, refused: Mapping[str, str] | None = None) -> bool:
        """Run the plugin again, unless another caller did since the rejected credentials were issued."""
        now = self._result
        if now is None or refused is None or refused.get("Authorization") == now.headers.get("Authorization"):
            await self._newer_than(now)
        return True

    def __repr__(self) -> str:
        return f"ExecPlugin({self._command!r})"

    async def _current(self) -> _Result:
        result = self._result
        if result is None or (result.expires is not None and datetime.now(UTC) >= result.expires - _EARLY):
            result = await self._newer_than(result)
        return result

    async def _newer_than(self, seen: _Result | None) -> _Result:
        """Return another result than the one seen: the run under way gives it, or one begun now."""
        with self._lock:
            if self._result is not None and self._result is not seen:
                return self._result
            run = self._running
            if run is None:
                run = self._running = Future()
                # A caller that gives up must not cancel the run of the others.
                run.set_running_or_notify_cancel()
                threading.Thread(
                    target=self._work, args=(run,), name="credential plugin", daemon=True
                ).start()
        try:
            return await asyncio.wrap_future(run)
        except (ConfigError, CredentialsError) as error:
            # Each caller gets an error of its own: raising one in several tasks mixes their tracebacks.
            raise type(error)(str(error)) from None

    def _work(self, run: Future[_Result]) -> None:
        try:
            result = self._run()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            with self._lock:
                self._running = None
            run.set_exception(error)
        else:
            with self._lock:
                self._result, self._running = result, None
            run.set_result(result)

    def _run(self) -> _Result:
        spec = self._spec
        if shutil.which(self._command) is None:
            hint = (
                f"; {' '.join(spec.install_hint.split())}"
                if spec.install_hint
                else "; install it or fix the path"
            )
            raise ConfigError(f"{self._where}.command: {self._command!r} is not an executable program{hint}")
        try:
            process = subprocess.Popen(  # noqa: S603 - running the program that the kubeconfig names is the feature
                [self._command, *(spec.args or ())],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "an argument or variable holds a NUL character"
            raise ConfigError(f"{self._where}.command: {self._command!r} cannot be run: {reason}") from None
        try:
            output, _ = process.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            raise CredentialsError(
                f"{self._where}: {self._command!r} gave no answer within {self._seconds:g} s"
            ) from None
        if process.returncode != 0:
            raise CredentialsError(
                f"{self._where}: {self._command!r} exited with {process.returncode}; its stderr says why"
            )
        return self._read(output)

    def _environment(self) -> dict[str, str]:
        info: dict[str, Any] = {"interactive": False}
        if self._spec.provide_cluster_info and self._cluster is not None:
            info["cluster"] = dict(self._cluster)
        request = {"apiVersion": self._spec.api_version, "kind": "ExecCredential", "spec": info}
        env = dict(os.environ)
        env.update((var.name, var.value) for var in self._spec.env or ())
        env["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(request).decode()
        return env

    def _read(self, output: bytes) -> _Result:
        problem = ""
        try:
            credential = msgspec.json.decode(output, type=_Credential)
        except MALFORMED:
            raise CredentialsError(f"{self._where}: {self._command!r} printed no ExecCredential") from None
        status = credential.status or _CredentialStatus()
        try:
            token = clean_token(status.token)
        except ValueError as error:
            raise CredentialsError(f"{self._where}: the token from {self._command!r} {error}") from None
        if credential.kind != "ExecCredential" or credential.api_version != self._spec.api_version:
            problem = f"printed another apiVersion or kind than ExecCredential of {self._spec.api_version}"
        elif not token and not status.client_certificate_data:
            problem = "printed neither a token nor a client certificate"
        elif bool(status.client_certificate_data) != bool(status.client_key_data):
            problem = "printed only one of clientCertificateData and clientKeyData"
        if problem:
            raise CredentialsError(f"{self._where}: {self._command!r} {problem}")
        tls = None
        if status.client_certificate_data:
            tls = self._trust()
            add_certificate(
                tls,
                status.client_certificate_data.encode(),
                status.client_key_data.encode(),
                where=f"{self._where}: the certificate from {self._command!r}",
            )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        expires = status.expiration_timestamp
        if expires is not None and expires.tzinfo is None:
            expires = expires.replace(tzinfo=UTC)
        return _Result(headers, tls, expires)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and its helpers; the pipe is closed unread, as one that escaped may hold it open."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
