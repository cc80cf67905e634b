"""Mistakes in a kubeconfig: each is one line with the file, the field and the fix, and no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import ConfigError
from tests.support.kube.kubeconfig_files import POD, authorization, b64, load, service_account, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.certificates import Pki

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
