"""A `user` in a namespace of the test's own, beside the fixtures of all controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.controllers.token_operator import User

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client


@pytest.fixture
def user(client: Client, kube_namespace: str) -> User:
    """Hand out somebody who writes Tokens and keys, and looks at what comes of it."""
    return User(client, kube_namespace)
