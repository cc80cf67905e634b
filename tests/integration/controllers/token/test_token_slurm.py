"""From the Token to Slurm: what the operator writes into a Secret is taken by a real slurmrestd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.errors import SlurmError, TokenRefused
from slurm_operator.slurm.rest.client import RestClient
from slurm_operator.slurm.web_token import FixedToken, signed_by
from tests.support.controllers.token_operator import User, operating
from tests.support.processes import eventually

if TYPE_CHECKING:
    from kubebox.pytest_plugin import SlurmBoxFactory
    from kubebox.slurm import SlurmBox
    from slurm_operator.kube.client.config import ClientConfig


@pytest.mark.parametrize("fixture", ["slurm_box", "slurm_box_24"])
@pytest.mark.parametrize("refresh", [True, False])
async def test_accepted(
    request: pytest.FixtureRequest,
    config: ClientConfig,
    user: User,
    fixture: str,
    refresh: bool,  # noqa: FBT001 - pytest's
) -> None:
    """The token in the Secret of a Token is taken by Slurm, renewed or not."""
    box: SlurmBox = request.getfixturevalue(fixture)
    await user.put_key(box.jwt_key)
    await user.put_token("slurm", refresh=refresh, lifetime="5m")
    async with operating(config, user.namespace):
        await user.until("Issued", "slurm")
    token = FixedToken(await user.value("slurm-jwt-slurm"))
    async with RestClient(box.url, token) as rest:
        assert await rest.nodes() is not None


async def test_the_key_is_rotated(
    config: ClientConfig, user: User, slurm_box_factory: SlurmBoxFactory
) -> None:
    """After Slurm got another key, the old token is refused, and the one that follows it is taken."""
    box = slurm_box_factory(nodes=0)
    await user.put_key(box.jwt_key)
    await user.put_token("slurm")
    async with operating(config, user.namespace):
        await user.until("Issued", "slurm")
        old = await user.value("slurm-jwt-slurm")
        key = box.rotate_jwt_key()

        async def refused() -> bool:
            try:
                async with RestClient(box.url, FixedToken(old)) as rest:
                    await rest.nodes()
            except TokenRefused:
                return True
            except SlurmError:
                return False  # slurmctld is still starting
            return False

        await eventually(refused, "the old token is refused")
        await user.put_key(key)

        async def reissued() -> bool:
            return signed_by(await user.value("slurm-jwt-slurm"), key)

        await eventually(reissued, "a token of the new key")
        async with RestClient(box.url, FixedToken(await user.value("slurm-jwt-slurm"))) as rest:
            assert await rest.nodes() is not None
