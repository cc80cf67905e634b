"""Whom the client speaks to: certificates that are trusted and those that are not, and no detours."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kubebox.pki import issue, make_authority
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.rest.client import RestClient
from tests.support.slurm.hostile_server import HostileSlurmrestd

pytestmark = pytest.mark.event_loops

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox.pki import Authority


def serving(
    authority: Authority, folder: Path, address: str = "127.0.0.1", ended: timedelta | None = None
) -> ssl.SSLContext:
    """Return what a server needs to speak TLS as some address, with a certificate that may have ended."""
    certificate, key = issue(authority, "slurmrestd", addresses=[address])
    if ended is not None:
        end = datetime.now(UTC) - ended
        builder = x509.CertificateBuilder(
            issuer_name=certificate.issuer,
            subject_name=certificate.subject,
            public_key=certificate.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=end - timedelta(days=1),
            not_valid_after=end,
            extensions=[*certificate.extensions],
        )
        certificate = builder.sign(authority.key, hashes.SHA256())
    pair = folder / "pair.pem"
    pair.write_bytes(
        certificate.public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair)
    return context


async def test_tls_with_an_authority(tmp_path: Path) -> None:
    """With its authority given, a slurmrestd behind TLS is reached; with another or none it is not."""
    ours, other = make_authority("ours"), make_authority("other")
    ca, other_ca = (entry.certificate.public_bytes(Encoding.PEM) for entry in (ours, other))
    async with HostileSlurmrestd(tls=serving(ours, tmp_path)) as server:
        async with RestClient(server.url, lambda: "t", ca=ca) as client:
            assert server.url.startswith("https://")
            await client.nodes()
            await client.reconfigure()
            assert server.reconfigured == 1
        for wrong in (None, other_ca):
            async with RestClient(server.url, lambda: "t", ca=wrong) as client:
                with pytest.raises(RestUnreachable, match=r"TLS failed: .*certificate") as caught:
                    await client.nodes()
                assert not caught.value.sent
        assert all(seen.headers["x-slurm-user-token"] == "t" for seen in server.log)
    with pytest.raises(ValueError, match="ca: not a PEM certificate"):
        RestClient("https://slurm:6820", lambda: "t", ca=b"nonsense")
    with pytest.raises(ValueError, match="ca: empty"):
        RestClient("https://slurm:6820", lambda: "t", ca=b"\n")


@pytest.mark.parametrize(
    ("address", "ended", "problem"),
    [("127.0.0.2", None, "mismatch"), ("127.0.0.1", timedelta(hours=1), "expired")],
)
async def test_a_certificate_of_another_place_or_time_is_refused(
    tmp_path: Path, address: str, ended: timedelta | None, problem: str
) -> None:
    """A certificate that our authority signed for another address, or that has ended, is not enough."""
    ours = make_authority("ours")
    ca = ours.certificate.public_bytes(Encoding.PEM)
    async with (
        HostileSlurmrestd(tls=serving(ours, tmp_path, address, ended)) as server,
        RestClient(server.url, lambda: "t", ca=ca) as client,
    ):
        with pytest.raises(RestUnreachable, match=f"TLS failed: .*{problem}") as caught:
            await client.nodes()
        assert not caught.value.sent
        assert server.log == []


PROGRAM = """
import asyncio, sys
from slurm_operator.slurm.rest.client import RestClient
async def main():
    async with RestClient(sys.argv[1], lambda: "t") as client:
        assert await client.nodes() is not None
asyncio.run(main())
"""


async def test_the_environment_does_not_redirect_requests(hostile: HostileSlurmrestd) -> None:
    """A proxy in the environment is for the way out of a cluster, not for the Slurm inside of it."""
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    environment = {**os.environ, **proxies, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, hostile.url, env=environment
    )
    async with asyncio.timeout(60):
        assert await process.wait() == 0
    assert len(hostile.seen("GET nodes")) == 1


def test_an_authority_is_needed_only_for_https() -> None:
    """A URL without TLS needs no authority, and an authority that is given in vain does no harm."""
    assert RestClient("http://slurm:6820", lambda: "t", ca=b"nonsense").url == "http://slurm:6820"


async def test_a_long_list_over_tls_is_read_whole(tmp_path: Path) -> None:
    """An answer that is read with pauses arrives whole, again and again on the same connection."""
    ours = make_authority("ours")
    ca = ours.certificate.public_bytes(Encoding.PEM)
    async with HostileSlurmrestd(tls=serving(ours, tmp_path)) as server:
        server.add_nodes("n[1-4000]", comment="x" * 1000)
        async with RestClient(server.url, lambda: "t", ca=ca) as client:
            for _ in range(3):
                listed = await client.nodes()
                assert listed is not None
                assert len(listed.nodes) == 4000
            assert server.connections == 1
