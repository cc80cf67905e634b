"""Credentials from files, impersonation, and what is shown of any of them."""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client.auth import (
    Auth,
    CertificateFiles,
    Impersonate,
    TokenFile,
    anonymous,
    bearer_token,
)
from slurm_operator.kube.client.exec_plugin import EnvVar
from slurm_operator.kube.errors import CredentialsError
from tests.support.kube.credential_plugin import exec_auth, token_of

if TYPE_CHECKING:
    from pathlib import Path


class Token:
    """A file that holds a token."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.put("one")

    def put(self, text: str) -> None:
        self.path.write_text(text, encoding="utf-8")

    def remove(self) -> None:
        self.path.unlink()


@pytest.fixture
def token(tmp_path: Path) -> Token:
    return Token(tmp_path / "token")


async def test_token_file_is_read_again_when_old(token: Token) -> None:
    """A renewed token is picked up without any help once the copy is old."""
    auth = TokenFile(token.path, cache_seconds=0.0)
    assert await token_of(auth) == "Bearer one"
    token.put("two\n")
    assert await token_of(auth) == "Bearer two"


async def test_token_file_is_cached(token: Token) -> None:
    """Within the cache time the file is not read for every request."""
    auth = TokenFile(token.path, cache_seconds=3600.0)
    assert await token_of(auth) == "Bearer one"
    token.put("two")
    assert await token_of(auth) == "Bearer one"


async def test_token_file_refresh_is_worth_a_retry_only_with_another_token(token: Token) -> None:
    """After a 401 the file is read at once, and only a different token makes another attempt sensible."""
    auth = TokenFile(token.path, cache_seconds=3600.0)
    used = await auth.headers()
    assert not await auth.refresh(used)
    token.put("two")
    assert await auth.refresh(used)
    assert await auth.refresh(used), (
        "a second request that was refused with the old token may try again as well"
    )
    assert await token_of(auth) == "Bearer two"


async def test_token_file_survives_being_replaced(token: Token) -> None:
    """A file that is missing or empty for a moment does not lose the token in hand."""
    auth = TokenFile(token.path, cache_seconds=0.0)
    await auth.headers()
    token.remove()
    assert await token_of(auth) == "Bearer one"
    token.put("")
    assert await token_of(auth) == "Bearer one"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("", "is empty"),
        ("\n", "is empty"),
        ("hush\nhush", "the token holds spaces, line breaks"),
        ("hu sh", "the token holds spaces, line breaks"),
        ("hüsh", "or other characters that no token has; give one line"),
    ],
)
async def test_token_file_unusable_from_the_start(tmp_path: Path, content: str | None, message: str) -> None:
    """Without any token to fall back on, the error names the file and the fix."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(CredentialsError, match=rf"token: .*{message}") as caught:
        await TokenFile(path).headers()
    assert "sh" not in str(caught.value).removeprefix(str(path))


def test_nothing_secret_in_repr(tmp_path: Path) -> None:
    """Credentials of every sort print without their secrets."""
    hidden = "hush"
    auths: list[Auth] = [
        bearer_token(hidden),
        TokenFile(tmp_path / "token", _token=hidden),
        Impersonate(bearer_token(hidden), "jane"),
        exec_auth(tmp_path, env=[EnvVar("SECRET", hidden)]),
    ]
    text = " ".join(map(repr, auths))
    assert hidden not in text
    assert base64.b64encode(hidden.encode()).decode() not in text
    assert "jane" in text


async def test_impersonation_passes_the_rest_through(token: Token) -> None:
    """Impersonation refreshes and connects with the credentials under it."""
    auth = Impersonate(TokenFile(token.path), "jane")
    used = await auth.headers()
    token.put("two")
    assert await auth.refresh(used)
    context = ssl.create_default_context()
    assert await auth.tls(context) is context


async def test_all_requests_refused_with_an_old_certificate_may_try_again(tmp_path: Path) -> None:
    """The first refresh loads the renewed files, and those that come after it find them loaded."""
    path = tmp_path / "cert"
    path.write_text("old", encoding="utf-8")
    auth = CertificateFiles(anonymous(), ssl.create_default_context, (path,))
    assert not await auth.refresh({}), "the same certificate again would be refused again"
    renewed = tmp_path / "renewed"
    renewed.write_text("new", encoding="utf-8")
    renewed.rename(path)
    assert await asyncio.gather(*(auth.refresh({}) for _ in range(5))) == [True] * 5
    first = await auth.tls(None)
    assert first is not None
    assert await auth.tls(None) is first
