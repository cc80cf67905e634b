"""Tokens that we sign, verified by the real slurmctld of both releases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.errors import SlurmError, TokenRefused
from slurm_operator.slurm.rest.client import RestClient
from slurm_operator.slurm.web_token import FixedToken, MintedToken, TokenSource, mint
from tests.support.processes import eventually

if TYPE_CHECKING:
    from kubebox.pytest_plugin import SlurmBoxFactory
    from kubebox.slurm import SlurmBox

QUARTER = timedelta(minutes=15)
# Any bytes are a key to Slurm: one byte, a line break at the end, zeros, and the look of a certificate.
STRANGE_KEYS = (
    b"k",
    b"line\n",
    b"\x00\x01\x00",
    b"-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----\n",
)


@pytest.fixture(params=["slurm_box", "slurm_box_24"])
def box(request: pytest.FixtureRequest) -> SlurmBox:
    """Hand out the shared Slurm cluster of each release."""
    found: SlurmBox = request.getfixturevalue(request.param)
    return found


async def accepted(url: str, source: TokenSource) -> bool:
    """Return whether Slurm takes the token; any other trouble is an error."""
    async with RestClient(url, source) as client:
        try:
            await client.nodes()
        except TokenRefused:
            return False
        return True


async def test_accepted(box: SlurmBox) -> None:
    """slurmctld takes a token for its own user, and for one that it knows nothing of but the name."""
    assert await accepted(box.url, MintedToken(box.jwt_key, "slurm", QUARTER))
    assert await accepted(box.url, MintedToken(box.jwt_key, "alice", QUARTER))


async def test_refused(box: SlurmBox) -> None:
    """A token of another key, or one that has expired, is refused."""
    now = datetime.now(UTC)
    assert not await accepted(box.url, MintedToken(box.jwt_key + b"\n", "slurm", QUARTER))
    assert not await accepted(box.url, FixedToken(mint(box.jwt_key, "slurm", QUARTER, now - 2 * QUARTER)))


async def test_clocks_that_differ(box: SlurmBox) -> None:
    """A slurmctld whose clock is behind ours by a minute, or ahead by a few, takes a token all the same."""
    now = datetime.now(UTC)
    for off in (timedelta(minutes=1), timedelta(minutes=-2)):
        assert await accepted(box.url, FixedToken(mint(box.jwt_key, "slurm", QUARTER, now + off)))


async def test_the_longest_life(box: SlurmBox) -> None:
    """A token for the longest lifetime that a Token may have is taken."""
    longest = timedelta(seconds=2**31 - 2)
    assert await accepted(box.url, FixedToken(mint(box.jwt_key, "slurm", longest, datetime.now(UTC))))


@pytest.mark.parametrize("release", ["26.05", "24.11"])
async def test_strange_keys(slurm_box_factory: SlurmBoxFactory, release: str) -> None:
    """Whatever slurmctld takes for a key signs tokens that it takes."""
    box = slurm_box_factory(release=release, nodes=0)
    for key in STRANGE_KEYS:
        box.rotate_jwt_key(key)
        source = MintedToken(key, "slurm", QUARTER)

        async def answered(source: TokenSource = source) -> bool:
            try:
                return await accepted(box.url, source)
            except SlurmError:
                return False  # slurmctld is still starting

        await eventually(answered, f"slurmctld takes a token of {key!r}")
        assert not await accepted(box.url, MintedToken(key + b"1", "slurm", QUARTER))
