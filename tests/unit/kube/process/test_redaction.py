"""Secrets in the log: found by the key, found by the look, and what is no secret stays readable."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from slurm_operator.kube.models.meta import Key, Object, ObjectMeta, Resource
from slurm_operator.kube.process import log
from slurm_operator.kube.process.redaction import REDACTED, is_secret, scrub

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET_KEYS = [
    "token",
    "tokens",
    "password",
    "db_passwd",
    "StoragePass",
    "storagepass",
    "passphrase",
    "Authorization",
    "Proxy-Authorization",
    "X-SLURM-USER-TOKEN",
    "client-key-data",
    "clientKeyData",
    "private_key",
    "client_secret",
    "api_key",
    "apiKey",
    "jwt_key",
    "jwtHs256Key",
    "slurm_key",
    "slurm.key",
    "bearer_token",
    "JWT",
    "credentials",
    "credentialFile",
    "Set-Cookie",
    "stringData",
]
HARMLESS_KEYS = [
    "key",
    "keys",
    "name",
    "secret",
    "secretName",
    "secret_ref",
    "jwtKeyRef",
    "slurmKeyRef",
    "credentialsSecretRef",
    "credential_name",
    "token_workers",
    "topologyKey",
    "object_key",
    "public_key",
    "monkey",
    "bypass",
    "passed",
    "controller",
]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_key_that_announces_a_secret(key: str) -> None:
    """The value of such a key is hidden: at the top, nested, in a list of headers, as name and value."""
    values = {
        key: "hunter2",
        "bytes": {key.encode(): b"hunter2"},
        "nested": [{"a": {key: ["hunter2"] if is_secret(key, ["x"]) else "hunter2"}}],
        "headers": [(key, "hunter2"), [key.encode(), b"hunter2"]],
        "multidict": CIMultiDict({key: "hunter2"}),
        "env": [{"name": key, "value": "hunter2"}],
    }
    line = json.dumps(log.redact(values))
    assert "hunter2" not in line
    assert line.count(REDACTED) == 7


@pytest.mark.parametrize("key", HARMLESS_KEYS)
def test_a_key_that_announces_none(key: str) -> None:
    """Names of objects, references and settings stay readable."""
    assert log.redact({key: "value"}) == {key: "value"}
    assert log.redact({"v": [key, "value"]}) == {"v": [key, "value"]}


class _Token(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "tokens", "Token")


class _Selector(msgspec.Struct):
    name: str
    key: str


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Key("ns", "a"), "ns/a"),
        (_Token(metadata=ObjectMeta(name="a", namespace="ns")), "_Token ns/a"),
        (None, None),
        ("", ""),
        (True, True),
    ],
)
def test_what_is_no_secret_under_a_secret_key(value: object, expected: object) -> None:
    """The name of an object, a yes or no, and nothing at all may be shown under any key."""
    assert log.redact({"token": value}) == {"token": expected}


def test_a_reference_under_a_key_is_shown() -> None:
    """Where a secret is stored is no secret: a selector keeps its name and its key."""
    assert log.redact({"jwtKey": _Selector("slurm-auth", "jwt.key")}) == {
        "jwtKey": {"name": "slurm-auth", "key": "jwt.key"}
    }


def test_the_content_of_a_secret_is_hidden() -> None:
    """A whole Secret keeps its name and loses its data."""
    secret = {
        "kind": "Secret",
        "metadata": {"name": "a"},
        "data": {"x": "aHVudGVyMg=="},
        "stringData": {"y": "z"},
    }
    assert log.redact({"v": secret})["v"] == {
        "kind": "Secret",
        "metadata": {"name": "a"},
        "data": REDACTED,
        "stringData": REDACTED,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Basic dXNlcjpodW50ZXIy\nAccept: */*", f"Authorization: {REDACTED}\nAccept: */*"),
        ("sent Basic dXNlcjpodW50ZXIy, refused", f"sent Basic {REDACTED}, refused"),
        ("sent bearer hunter2hunter2 (expired)", f"sent bearer {REDACTED} (expired)"),
        ("X-SLURM-USER-TOKEN: hunter2", f"X-SLURM-USER-TOKEN: {REDACTED}"),
        ("GET http://user:hunter2@host:80/a", f"GET http://{REDACTED}@host:80/a"),
        ("mysql://:hun@ter2@db", f"mysql://{REDACTED}@db"),
        ("StoragePass=hunter2 StorageUser=slurm", f"StoragePass={REDACTED} StorageUser=slurm"),
        ("storagepass = hun;t,er2\nx", f"storagepass = {REDACTED}\nx"),
        ("<Login(user='a', password='hun ter2', b=1)>", f"<Login(user='a', password={REDACTED}', b=1)>"),
        ('{"password": "hun\\"ter2", "a": 1}', f'{{"password": {REDACTED}", "a": 1}}'),
        ("{'password': b'hunter2'}", f"{{'password': {REDACTED}'}}"),
        ('"{\\"token\\":\\"hunter2\\",\\"a\\":1}"', f'"{{\\"token\\":{REDACTED}\\",\\"a\\":1}}"'),
        ("[('Authorization', 'Basic hunter2')]", f"[('Authorization', {REDACTED}')]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nhunter2", REDACTED),
        ("LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t", REDACTED),
    ],
)
def test_a_secret_inside_a_text(text: str, expected: str) -> None:
    """A secret is known by its shape or by what stands before it; the text around it stays."""
    assert scrub(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "spec.password: Required value: must be set",
        "token: want a name",
        "no such Secret ns/jwt-key, wanted by spec.jwtKeyRef",
        "http://host:8080/a@b",
        "https://host/a?b=c:d@e",
        "http://[::1]:6820/slurm/v0.0.44/ping",
        "git@host:repository",
        "basic authentication is refused",
        "secret=slurm-auth key=ns/name",
        "bypass=true",
        "--token-workers=2",
    ],
)
def test_a_text_without_a_secret(text: str) -> None:
    """What operators must read is not hidden: field errors, addresses, names, flags."""
    assert scrub(text) == text


def test_a_cut_private_key_leaves_the_line_whole() -> None:
    """A key so long that its end is cut off hides itself and nothing else of the line."""
    pem = "-----BEGIN PRIVATE KEY-----\n" + "hunter2\n" * 2000 + "-----END PRIVATE KEY-----\n"
    values = {"event": "read", "text": pem, "unfinished": pem[:9000], "after": "here"}
    line = log.Renderer(log.LogOptions())(log.Sink(2, "x"), "info", values)
    assert "hunter2" not in line
    assert json.loads(line)["after"] == "here"


def test_a_long_traceback_is_scrubbed_before_it_is_cut() -> None:
    """A private key whose beginning lies before the cut of a traceback is hidden all the same."""
    error = ValueError("-----BEGIN PRIVATE KEY-----\n" + "hunter2\n" * 8000 + "-----END PRIVATE KEY-----\n")
    line = log.Renderer(log.LogOptions())(log.Sink(2, "x"), "error", {"event": "m", "exc_info": error})
    assert "hunter2" not in line
    assert "ValueError" in json.loads(line)["stacktrace"]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _pem(secret: str) -> str:
    return f"-----BEGIN EC PRIVATE KEY-----\n{secret}\n-----END EC PRIVATE KEY-----"


# Every way to plant a secret in a text; what must not appear is the secret and its base64.
TEXTS: list[Callable[[str], str]] = [
    lambda secret: f"Authorization: Basic {_base64(f'user:{secret}')}\n",
    lambda secret: f"Authorization: Bearer {secret}\n",
    lambda secret: f"Bearer {secret}",
    lambda secret: f"X-SLURM-USER-TOKEN: {secret}\n",
    lambda secret: f"http://user:{secret}@host",
    lambda secret: f"StoragePass={secret}",
    lambda secret: str({"password": secret}),
    lambda secret: json.dumps({"client_secret": secret}),
    lambda secret: json.dumps(json.dumps({"api_key": secret})),
    lambda secret: f"eyJhbGciOiJIUzI1NiJ9.{secret}.{secret}",
    _pem,
    lambda secret: _pem(secret)[:-20],
]

secrets = st.from_regex(r"\Ahunter2[A-Za-z0-9]{8,40}\Z", fullmatch=True)
planted = st.one_of(
    st.tuples(st.sampled_from(SECRET_KEYS), secrets).map(lambda pair: {pair[0]: pair[1]}),
    st.tuples(st.sampled_from(SECRET_KEYS), secrets).map(lambda pair: [pair]),
    st.tuples(st.sampled_from(TEXTS), secrets, st.text(), st.text()).map(
        lambda drawn: f"{drawn[2]} {drawn[0](drawn[1])} {drawn[3]}"
    ),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | planted
anything = st.recursive(
    leaves | leaves.map(lambda leaf: leaf.encode("utf-8", "replace") if isinstance(leaf, str) else leaf),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    values=st.dictionaries(st.text(max_size=8), anything, max_size=4),
    hidden=planted,
    message=st.tuples(st.sampled_from(TEXTS), secrets).map(lambda drawn: drawn[0](drawn[1])),
)
def test_whatever_is_logged_no_secret_is_and_the_line_is_whole(
    values: dict[str, Any], hidden: Any, message: str
) -> None:
    """Whatever is logged, the JSON line parses and no planted secret appears in it."""
    values = {key: value for key, value in values.items() if key not in {"exc_info", "stack_info"}}
    event = {**values, "event": message, "hidden": hidden, "exc_info": ValueError(message)}
    line = log.Renderer(log.LogOptions())(log.Sink(2, "x"), "error", event)
    assert "\n" not in line
    json.loads(line)
    assert "hunter2" not in line
    for shifted in ("user:hunter2", "hunter2"):
        assert _base64(shifted).rstrip("=")[:-1] not in line


def test_scrubbing_takes_linear_time() -> None:
    """Hostile texts of a quarter of a megabyte are scrubbed while somebody waits for it."""
    program = """
from slurm_operator.kube.process.redaction import scrub
pieces = ["a-", "x-", "token ", "basic AAAA", "://", "://a:", '"', "\\\\", "password='", "eyJaaaaaa.", " "]
for piece in pieces:
    scrub(piece * (250_000 // len(piece)) + "authorization token basic bearer ://")
"""
    # Whatever is quadratic here takes hours; what is linear takes a second or two.
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
