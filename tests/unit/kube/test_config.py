from __future__ import annotations

import base64
import os
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from slurm_operator.kube.config import ClientConfig, in_cluster_config, load_config
from slurm_operator.kube.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.kube.conftest import Pki

SERVER = "https://10.9.8.7:6443"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write(
    path: Path,
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    name: str = "x",
    namespace: str | None = None,
    **top: Any,
) -> Path:
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": SERVER} | (cluster or {})}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    } | top
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def load(path: Path, context: str | None = None, **env: str) -> ClientConfig:
    return load_config(str(path), context, env=env)


async def authorization(config: ClientConfig) -> str | None:
    return (await config.auth.headers()).get("Authorization")


# ---------------------------------------------------------------------------------------------- where to look


def test_explicit_path_wins_over_the_environment(tmp_path: Path) -> None:
    """A path given by the caller is used whatever $KUBECONFIG says."""
    given = write(tmp_path / "given", cluster={"server": "https://given:1"})
    other = write(tmp_path / "other", cluster={"server": "https://other:1"})
    assert load(given, KUBECONFIG=str(other)).server == "https://given:1"


def test_environment_wins_over_the_service_account(tmp_path: Path) -> None:
    """$KUBECONFIG is preferred to the in-cluster service account."""
    path = write(tmp_path / "config")
    env = {"KUBECONFIG": str(path), "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert load_config(env=env).server == SERVER


def test_service_account_wins_over_the_home_directory(tmp_path: Path, pki: Pki) -> None:
    """Inside a pod the service account is used even when a home kubeconfig exists."""
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config")
    account = service_account(tmp_path, pki)
    env = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert load_config(env=env, service_account=account).server == "https://10.96.0.1:443"


def test_home_directory_is_the_last_resort(tmp_path: Path) -> None:
    """Without anything else, ~/.kube/config is read."""
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config")
    assert load_config(env={"HOME": str(tmp_path)}).server == SERVER


def test_nothing_found_names_every_place(tmp_path: Path) -> None:
    """When there is no configuration at all, the error says where it was looked for and what to do."""
    with pytest.raises(
        ConfigError, match=r"KUBECONFIG.*not a pod.*\.kube/config does not exist.*--kubeconfig"
    ):
        load_config(env={"HOME": str(tmp_path)})


# ---------------------------------------------------------------------------------------------------- merging


def test_first_file_wins_and_missing_files_are_skipped(tmp_path: Path) -> None:
    """In a $KUBECONFIG list the first file that names something wins, and absent files do not matter."""
    first = write(tmp_path / "first", cluster={"server": "https://first:1"}, users=[])
    second = write(tmp_path / "second", cluster={"server": "https://second:1"}, user={"username": "u"})
    listed = os.pathsep.join([str(tmp_path / "absent"), str(first), "", str(second)])
    assert load_config(env={"KUBECONFIG": listed}).server == "https://first:1"


async def test_sections_of_different_files_combine(tmp_path: Path) -> None:
    """A context of one file may use the cluster of a second and the user of a third."""
    context = tmp_path / "context"
    context.write_text(
        "contexts: [{name: c, context: {cluster: k, user: u, namespace: ns}}]\ncurrent-context: c\n",
        encoding="utf-8",
    )
    (tmp_path / "cluster").write_text(
        f"clusters: [{{name: k, cluster: {{server: '{SERVER}'}}}}]\n", encoding="utf-8"
    )
    (tmp_path / "user").write_text("users: [{name: u, user: {token: t0}}]\n", encoding="utf-8")
    listed = os.pathsep.join(str(tmp_path / name) for name in ("context", "cluster", "user"))
    config = load_config(env={"KUBECONFIG": listed})
    assert (config.server, config.namespace, await authorization(config)) == (SERVER, "ns", "Bearer t0")


async def test_relative_paths_belong_to_the_file_that_wrote_them(tmp_path: Path, pki: Pki) -> None:
    """A relative CA or token path is resolved against its own kubeconfig, not the working directory."""
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "ca.pem").write_bytes(pki.ca)
    (folder / "token").write_text("from-file\n", encoding="utf-8")
    path = write(folder / "config", cluster={"certificate-authority": "ca.pem"}, user={"tokenFile": "token"})
    config = load(path)
    assert config.ssl is not None
    assert len(config.ssl.get_ca_certs()) == 1
    assert await authorization(config) == "Bearer from-file"


def test_context_argument_beats_current_context(tmp_path: Path) -> None:
    """The caller's context is used instead of the file's current one."""
    path = write(
        tmp_path / "config",
        name="a",
        clusters=[{"name": n, "cluster": {"server": f"https://{n}:1"}} for n in ("a", "b")],
        contexts=[{"name": n, "context": {"cluster": n}} for n in ("a", "b")],
    )
    assert load(path, "b").server == "https://b:1"
    assert load(path).server == "https://a:1"


# ------------------------------------------------------------------------------------------------ credentials


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({}, None),
        ({"token": "t1"}, "Bearer t1"),
        ({"username": "u", "password": "p"}, "Basic " + b64(b"u:p")),
        ({"username": "u"}, "Basic " + b64(b"u:")),
    ],
)
async def test_simple_credentials_become_a_header(
    tmp_path: Path, user: dict[str, str], expected: str | None
) -> None:
    """Tokens and passwords travel in the Authorization header."""
    assert await authorization(load(write(tmp_path / "config", user=user))) == expected


async def test_token_file_beats_token(tmp_path: Path) -> None:
    """With both a token and a token file, the file is used, as by every Kubernetes client."""
    (tmp_path / "t").write_text("file", encoding="utf-8")
    config = load(write(tmp_path / "config", user={"token": "inline", "tokenFile": str(tmp_path / "t")}))
    assert await authorization(config) == "Bearer file"


async def test_impersonation_repeats_the_group_header(tmp_path: Path) -> None:
    """Every impersonated group is a header of its own, next to the real credentials."""
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"Reason/Why": ["a", "b"]},
    }
    headers = await load(write(tmp_path / "config", user=user)).auth.headers()
    pairs = sorted(headers.items())
    assert pairs == [
        ("Authorization", "Bearer t"),
        ("Impersonate-Extra-Reason%2FWhy", "a"),
        ("Impersonate-Extra-Reason%2FWhy", "b"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-User", "jane"),
    ]


def test_certificates_inline_and_by_file_are_accepted(tmp_path: Path, pki: Pki) -> None:
    """A client certificate may come inline, from files, or half and half."""
    (tmp_path / "key.pem").write_bytes(pki.client.key)
    user = {"client-certificate-data": b64(pki.client.certificate), "client-key": "key.pem"}
    config = load(write(tmp_path / "config", cluster={"certificate-authority-data": b64(pki.ca)}, user=user))
    assert config.ssl is not None
    assert config.ssl.verify_mode is ssl.CERT_REQUIRED
    assert config.ssl.check_hostname


async def test_renewed_certificate_files_make_a_new_context(tmp_path: Path, pki: Pki) -> None:
    """After a 401, certificate files that changed on disk are loaded again for new connections."""
    (tmp_path / "cert.pem").write_bytes(pki.client.certificate)
    (tmp_path / "key.pem").write_bytes(pki.client.key)
    config = load(
        write(tmp_path / "config", user={"client-certificate": "cert.pem", "client-key": "key.pem"})
    )
    assert await config.auth.tls(config.ssl) is config.ssl
    assert not await config.auth.refresh()
    (tmp_path / "cert.pem").write_bytes(pki.other_client.certificate)
    assert not await config.auth.refresh(), "a certificate without its key must not be taken"
    assert await config.auth.tls(config.ssl) is config.ssl
    (tmp_path / "key.pem").write_bytes(pki.other_client.key)
    assert await config.auth.refresh()
    assert await config.auth.tls(config.ssl) not in (None, config.ssl)


def test_insecure_skips_verification(tmp_path: Path) -> None:
    """insecure-skip-tls-verify trusts anybody, and only then."""
    config = load(write(tmp_path / "config", cluster={"insecure-skip-tls-verify": True}))
    assert config.ssl is not None
    assert config.ssl.verify_mode is ssl.CERT_NONE


def test_names_and_proxy_are_carried(tmp_path: Path) -> None:
    """tls-server-name, proxy-url and the context's namespace reach the configuration."""
    cluster = {"tls-server-name": "api.example", "proxy-url": "http://proxy:3128"}
    config = load(write(tmp_path / "config", cluster=cluster, namespace="team"))
    assert (config.server_hostname, config.proxy, config.namespace) == (
        "api.example",
        "http://proxy:3128",
        "team",
    )


def test_plain_http_needs_no_tls(tmp_path: Path) -> None:
    """A server with http:// has no TLS context, and the namespace defaults."""
    config = load(write(tmp_path / "config", cluster={"server": "http://127.0.0.1:8001/"}))
    assert (config.server, config.ssl, config.namespace) == ("http://127.0.0.1:8001", None, "default")


def test_environment_proxy_is_used_unless_the_file_has_one(tmp_path: Path) -> None:
    """HTTPS_PROXY applies to a server without a proxy-url of its own."""
    assert load(write(tmp_path / "a"), HTTPS_PROXY="http://env:1").proxy == "http://env:1"
    fixed = write(tmp_path / "b", cluster={"proxy-url": "http://file:1"})
    assert load(fixed, HTTPS_PROXY="http://env:1", NO_PROXY="*").proxy == "http://file:1"


def test_nothing_secret_in_repr(tmp_path: Path) -> None:
    """Printing a configuration reveals no token, password or proxy password."""
    for user in ({"token": "hush-token"}, {"username": "u", "password": "hush-password"}):
        path = write(tmp_path / "config", cluster={"proxy-url": "http://u:hush-proxy@proxy:1"}, user=user)
        text = f"{load(path)!r} {load(path)}"
        assert "hush" not in text
        assert b64(b"u:hush-password") not in text


# ------------------------------------------------------------------------------------------------- complaints

BAD: list[tuple[dict[str, Any], str]] = [
    ({"current-context": ""}, r"current-context: not set; run `kubectl config use-context"),
    ({"current-context": "y"}, r"no context named 'y'; contexts here: x"),
    ({"contexts": [{"name": "x", "context": {}}]}, r"contexts\[x\]\.context\.cluster: not set"),
    ({"clusters": []}, r"contexts\[x\]\.context\.cluster: no cluster named 'x'; clusters here: none"),
    ({"users": None}, r"contexts\[x\]\.context\.user: no user named 'x'"),
    ({"cluster": {"server": ""}}, r"clusters\[x\]\.cluster\.server: not set; write it like https://"),
    ({"cluster": {"server": "10.0.0.1:6443"}}, r"cluster\.server: not an http\(s\) URL"),
    ({"cluster": {"server": "https://"}}, r"cluster\.server: not an http\(s\) URL"),
    ({"cluster": {"server": "https://u:hush@h"}}, r"cluster\.server: credentials do not belong in the URL"),
    ({"cluster": {"server": 7}}, r"clusters\[0\]\.cluster\.server: expected str, got int"),
    ({"cluster": {"certificate-authority-data": "!!"}}, r"certificate-authority-data: not base64"),
    ({"cluster": {"certificate-authority-data": b64(b"hush")}}, r"certificate-authority-data: not PEM"),
    ({"cluster": {"certificate-authority": "no.pem"}}, r"certificate-authority \(.*no\.pem\): No such file"),
    (
        {"cluster": {"certificate-authority-data": b64(b"x"), "insecure-skip-tls-verify": True}},
        r"insecure-skip-tls-verify: excludes a certificate-authority; remove one",
    ),
    ({"cluster": {"proxy-url": "socks5://hush:1"}}, r"proxy-url: SOCKS proxies are not supported"),
    ({"cluster": {"proxy-url": "proxy"}}, r"proxy-url: not a proxy URL; write it like http://"),
    ({"user": {"client-key-data": b64(b"hush")}}, r"users\[x\]\.user\.client-certificate: not set"),
    ({"user": {"client-certificate-data": b64(b"hush")}}, r"users\[x\]\.user\.client-key: not set"),
    (
        {"user": {"client-certificate-data": b64(b"hush"), "client-key-data": b64(b"hush")}},
        r"client-certificate-data: not a PEM certificate and key",
    ),
    ({"user": {"client-key": "k", "client-certificate": "c"}}, r"client-certificate \(.*\): No such file"),
    ({"user": {"username": "u", "token": "hush"}}, r"token and username exclude each other; keep one"),
    ({"user": {"auth-provider": {"name": "gcp"}}}, r"auth-provider: not supported; use an exec plugin"),
    ({"user": {"as-groups": ["g"]}}, r"users\[x\]\.user\.as: not set; impersonated groups need the user"),
    ({"user": {"token": ["hush"]}}, r"users\[0\]\.user\.token: expected str \| null, got array"),
    ({"users": "hush"}, r"users: expected array \| null, got str"),
    ({"user": {"exec": {"command": "c"}}}, r"user\.exec\.apiVersion: not set; use client\.authentication"),
    (
        {"user": {"exec": {"command": "c", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}},
        r"exec\.apiVersion: 'client\.authentication\.k8s\.io/v1alpha1' is not supported",
    ),
    (
        {"user": {"exec": {"command": "c", "apiVersion": "client.authentication.k8s.io/v1"}}},
        r"exec\.interactiveMode: not set; use Never or IfAvailable",
    ),
    (
        {
            "user": {
                "exec": {
                    "command": "c",
                    "apiVersion": "client.authentication.k8s.io/v1beta1",
                    "interactiveMode": "Always",
                }
            }
        },
        r"exec\.interactiveMode: Always needs a person at a terminal",
    ),
    (
        {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1"}}},
        r"exec\.command: not set; name the program",
    ),
]


@pytest.mark.parametrize(("content", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_mistakes_are_named(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    """A wrong kubeconfig is one line with the file, the field and the fix, and no secret."""
    path = write(tmp_path / "config", **content)
    with pytest.raises(ConfigError, match=message) as caught:
        load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert "hush" not in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "line 2 not valid YAML"),
        (b"a: b: hush", "line 1 not valid YAML"),
        (b"\x00\xff", "not a text file"),
        (b"- 1", "the file: expected object, got array"),
        (b"", "current-context: not set"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    """A file that is no kubeconfig at all is refused by name and without quoting it."""
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"# no certificate\n"])
def test_authority_without_certificates(tmp_path: Path, pki: Pki, content: bytes) -> None:
    """An empty CA file is a mistake, not a wish to trust every public authority."""
    (tmp_path / "ca.crt").write_bytes(content)
    path = write(tmp_path / "config", cluster={"certificate-authority": "ca.crt"})
    with pytest.raises(
        ConfigError, match=r"certificate-authority \(.*/ca\.crt\): .*; give the CA certificate"
    ):
        load(path)
    if content.strip():
        return
    inline = write(tmp_path / "inline", cluster={"certificate-authority-data": b64(content or b" ")})
    with pytest.raises(ConfigError, match=r"certificate-authority-data: empty"):
        load(inline)
    account = service_account(tmp_path, pki)
    (account / "ca.crt").write_bytes(content)
    with pytest.raises(ConfigError, match=r"/ca\.crt: empty; give the CA certificate"):
        load_config(env=POD, service_account=account)


@pytest.mark.parametrize("token", ["hush\nhush", "hu sh", "hush\x00", "hüsh"])
def test_tokens_that_no_header_can_carry(tmp_path: Path, token: str) -> None:
    """A token with a line break or the like is named by its field and not quoted."""
    path = write(tmp_path / "config", user={"token": token})
    with pytest.raises(ConfigError, match=r"users\[x\]\.user\.token: holds spaces, line breaks") as caught:
        load(path)
    assert "hush" not in str(caught.value)


async def test_white_space_around_a_token_is_dropped(tmp_path: Path) -> None:
    """A token in a block of YAML, which ends in a line break, works; a blank one is named."""
    assert await authorization(load(write(tmp_path / "config", user={"token": "t1\n"}))) == "Bearer t1"
    with pytest.raises(ConfigError, match=r"\.token: blank"):
        load(write(tmp_path / "blank", user={"token": " \n"}))


def test_missing_explicit_file(tmp_path: Path) -> None:
    """A kubeconfig that the caller named must exist."""
    with pytest.raises(ConfigError, match=r"absent: no such file; set KUBECONFIG or --kubeconfig"):
        load(tmp_path / "absent")


def test_directory_instead_of_a_file(tmp_path: Path) -> None:
    """A directory in place of a kubeconfig is a sentence, not a traceback."""
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        load(tmp_path)


def test_key_of_another_certificate(tmp_path: Path, pki: Pki) -> None:
    """A key that does not belong to the certificate is recognised before the first request."""
    user = {
        "client-certificate-data": b64(pki.client.certificate),
        "client-key-data": b64(pki.other_client.key),
    }
    with pytest.raises(
        ConfigError, match=r"client-certificate-data: the key does not belong to the certificate"
    ):
        load(write(tmp_path / "config", user=user))


def test_encrypted_key_never_asks_on_the_terminal(tmp_path: Path, pki: Pki) -> None:
    """A key with a passphrase is refused with a sentence instead of a prompt."""
    user = {"client-certificate-data": b64(pki.client.certificate), "client-key-data": b64(pki.encrypted_key)}
    with pytest.raises(ConfigError, match=r"the key is encrypted; give one without a passphrase"):
        load(write(tmp_path / "config", user=user))


# --------------------------------------------------------------------------------------------------- in a pod


def service_account(folder: Path, pki: Pki) -> Path:
    account = folder / "serviceaccount"
    account.mkdir()
    (account / "token").write_text("pod-token\n", encoding="utf-8")
    (account / "ca.crt").write_bytes(pki.ca)
    (account / "namespace").write_text("slinky\n", encoding="utf-8")
    return account


POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_in_cluster(tmp_path: Path, pki: Pki) -> None:
    """In a pod the mounted token, authority and namespace are used."""
    config = in_cluster_config(env=POD, service_account=service_account(tmp_path, pki))
    assert (config.server, config.namespace) == ("https://10.96.0.1:443", "slinky")
    assert config.ssl is not None
    assert len(config.ssl.get_ca_certs()) == 1
    assert await authorization(config) == "Bearer pod-token"


def test_in_cluster_ipv6_and_no_namespace(tmp_path: Path, pki: Pki) -> None:
    """An IPv6 service address is bracketed, and a missing namespace file means default."""
    account = service_account(tmp_path, pki)
    (account / "namespace").unlink()
    config = in_cluster_config(env=POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=account)
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "default")


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_in_cluster_files_missing(tmp_path: Path, pki: Pki, missing: str) -> None:
    """A pod without its service account files is told which file and how to get it."""
    account = service_account(tmp_path, pki)
    (account / missing).unlink()
    with pytest.raises(ConfigError, match=rf"{missing}: no such file; .*automountServiceAccountToken"):
        in_cluster_config(env=POD, service_account=account)


@pytest.mark.parametrize("missing", sorted(POD))
def test_in_cluster_environment_missing(tmp_path: Path, pki: Pki, missing: str) -> None:
    """Without the service variables the error names the one that is missing."""
    env = {key: value for key, value in POD.items() if key != missing}
    with pytest.raises(ConfigError, match=rf"\${missing} is not set"):
        in_cluster_config(env=env, service_account=service_account(tmp_path, pki))
