"""Credentials from a program: when it is run, what it is told, and what may go wrong with it."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.client.exec_plugin import EnvVar
from slurm_operator.kube.errors import ConfigError, CredentialsError
from tests.support.executables import shell_program
from tests.support.kube.credential_plugin import V1, V1BETA1, Plugin, exec_auth, token_of

if TYPE_CHECKING:
    from tests.support.kube.certificates import Pki


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_plugin_token_is_used_and_kept(plugin: Plugin, version: str) -> None:
    """A token without expiry is asked for once."""
    plugin.answers({"token": "t1"}, version)
    auth = plugin.auth(api_version=version)
    assert await token_of(auth) == "Bearer t1"
    assert await token_of(auth) == "Bearer t1"
    assert len(plugin.runs) == 1


async def test_plugin_gets_arguments_environment_and_no_terminal(plugin: Plugin) -> None:
    """The plugin sees its arguments, its extra variables, the request, and no terminal to ask on."""
    plugin.answers({"token": "t1"})
    await plugin.auth(args=["get", "--x"], env=[EnvVar("EXTRA", "yes")]).headers()
    assert plugin.runs == [
        {
            "args": ["get", "--x"],
            "extra": "yes",
            "info": {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}},
            "tty": False,
        }
    ]


async def test_plugin_gets_the_cluster_only_when_it_asks(plugin: Plugin) -> None:
    """provideClusterInfo adds the cluster to the request."""
    plugin.answers({"token": "t1"})
    cluster = {"server": "https://s", "config": {"audience": "a"}}
    await plugin.auth(cluster=cluster, provide_cluster_info=True).headers()
    await plugin.auth(cluster=cluster).headers()
    assert [run["info"]["spec"].get("cluster") for run in plugin.runs] == [cluster, None]


async def test_expired_credentials_are_asked_for_again(plugin: Plugin) -> None:
    """The plugin runs again when its credentials have expired, and not before."""
    past, future = (datetime.now(UTC) + timedelta(hours=hours) for hours in (-1, 1))
    auth = plugin.auth()
    plugin.answers({"token": "old", "expirationTimestamp": past.isoformat()})
    assert await token_of(auth) == "Bearer old"
    plugin.answers({"token": "new", "expirationTimestamp": future.isoformat()})
    assert await token_of(auth) == "Bearer new"
    assert await token_of(auth) == "Bearer new"
    assert len(plugin.runs) == 2


async def test_refused_credentials_are_asked_for_again_once(plugin: Plugin) -> None:
    """Many requests refused with one token cause one run of the plugin."""
    plugin.answers({"token": "t1"})
    auth = plugin.auth()
    used = await auth.headers()
    plugin.answers({"token": "t2"})
    assert all(await asyncio.gather(*(auth.refresh(used) for _ in range(8))))
    assert await token_of(auth) == "Bearer t2"
    assert len(plugin.runs) == 2


async def test_concurrent_first_requests_share_one_run(plugin: Plugin) -> None:
    """Requests that start together wait for one run instead of starting one each."""
    plugin.answers({"token": "t1"})
    auth = plugin.auth()
    assert {
        tuple(headers.items()) for headers in await asyncio.gather(*(auth.headers() for _ in range(8)))
    } == {(("Authorization", "Bearer t1"),)}
    assert len(plugin.runs) == 1


async def test_plugin_certificate_becomes_a_context(plugin: Plugin, pki: Pki) -> None:
    """A client certificate from the plugin is used for new connections, renewed with a new context."""
    configured = ssl.create_default_context()
    certificate, key = pki.client
    plugin.answers({"clientCertificateData": certificate.decode(), "clientKeyData": key.decode()})
    auth = plugin.auth()
    assert await auth.headers() == {}
    first = await auth.tls(configured)
    assert first not in (None, configured)
    assert await auth.tls(configured) is first
    assert await auth.refresh({})
    assert await auth.tls(configured) not in (None, configured, first)


async def test_plugin_without_certificate_keeps_the_configured_context(plugin: Plugin) -> None:
    """A plugin that prints only a token leaves TLS alone."""
    plugin.answers({"token": "t1"})
    configured = ssl.create_default_context()
    assert await plugin.auth().tls(configured) is configured


async def test_missing_plugin_repeats_the_install_hint(tmp_path: Path) -> None:
    """A program that is not there is named together with the kubeconfig's hint how to get it."""
    auth = exec_auth(tmp_path, command="no-such-plugin", install_hint="Install it\nfrom example.com.")
    with pytest.raises(
        ConfigError, match=r"'no-such-plugin' is not an executable program; Install it from example\.com\."
    ):
        await auth.headers()


async def test_one_failure_is_shared(plugin: Plugin) -> None:
    """Requests that wait for a run that fails get its error, each its own, and start no run of their own."""
    auth = plugin.auth()
    failures = await asyncio.gather(*(auth.headers() for _ in range(8)), return_exceptions=True)
    assert {
        str(failure).partition(" exited ")[2] for failure in failures if isinstance(failure, CredentialsError)
    } == {"with 3; its stderr says why"}
    assert len({id(failure) for failure in failures}) == 8
    assert len(plugin.runs) == 1


async def test_a_caller_that_gives_up_leaves_the_run_to_the_others(plugin: Plugin) -> None:
    """A request cancelled while it waits for the plugin does not cost another one its answer."""
    plugin.answers({"token": "t1"})
    auth = plugin.auth()
    first, second = (asyncio.ensure_future(auth.headers()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second)["Authorization"] == "Bearer t1"
    assert len(plugin.runs) == 1


async def test_two_loops_share_one_run(plugin: Plugin) -> None:
    """The loop of the leader election waits for the same run as the main one."""
    plugin.answers({"token": "t1"})
    auth = plugin.auth()
    elsewhere = asyncio.to_thread(lambda: asyncio.run(token_of(auth)))
    assert set(await asyncio.gather(elsewhere, token_of(auth))) == {"Bearer t1"}
    assert len(plugin.runs) == 1


async def test_failing_plugin_may_heal(plugin: Plugin) -> None:
    """A plugin that fails is reported with its exit code and asked again by the next request."""
    auth = plugin.auth()
    with pytest.raises(CredentialsError, match=r"users\[x\]\.user\.exec: '.*/plugin' exited with 3"):
        await auth.headers()
    plugin.answers({"token": "t1"})
    assert await token_of(auth) == "Bearer t1"


async def test_hanging_plugin_is_ended(tmp_path: Path) -> None:
    """A plugin that never answers does not park the process."""
    shell_program(tmp_path / "plugin", "exec sleep 600\n")
    auth = exec_auth(tmp_path, seconds=0.2)
    with pytest.raises(CredentialsError, match="gave no answer within"):
        await auth.headers()


async def test_helpers_of_a_hanging_plugin_end_with_it(tmp_path: Path) -> None:
    """What the plugin started is ended as well, even if it keeps the plugin's output open."""
    shell_program(tmp_path / "plugin", 'sleep 600 &\necho $! > "$0.helper"\nexit 0\n')
    auth = exec_auth(tmp_path, seconds=0.5)
    with pytest.raises(CredentialsError, match="gave no answer within"):
        await auth.headers()
    helper = int((tmp_path / "plugin.helper").read_text(encoding="utf-8"))
    async with asyncio.timeout(10):
        while _runs(helper):  # noqa: ASYNC110 - another process has no event for us
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    """Return whether a process lives; one that nobody has waited for yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, "printed neither a token nor a client certificate"),
        ({"clientCertificateData": "hush"}, "printed only one of clientCertificateData and clientKeyData"),
        ({"clientCertificateData": "hush", "clientKeyData": "hush"}, "not a PEM certificate and key"),
        ({"token": 7, "note": "hush"}, "printed no ExecCredential"),
        ({"token": "hush\nhush"}, "the token from '.*' holds spaces, line breaks"),
        ({"token": " \n"}, "printed neither a token nor a client certificate"),
    ],
)
async def test_bad_answers_are_named_and_not_quoted(
    plugin: Plugin, status: dict[str, Any], message: str
) -> None:
    """What a plugin prints is a secret even when it is wrong."""
    plugin.answers(status)
    with pytest.raises((ConfigError, CredentialsError), match=message) as caught:
        await plugin.auth().headers()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("version", "kind"), [(V1BETA1, "ExecCredential"), (V1, "Secret")])
async def test_answer_of_another_version_is_refused(plugin: Plugin, version: str, kind: str) -> None:
    """A plugin must answer in the version it was asked in."""
    plugin.answers({"token": "hush"}, version, kind)
    with pytest.raises(CredentialsError, match="printed another apiVersion or kind") as caught:
        await plugin.auth().headers()
    assert "hush" not in str(caught.value)
