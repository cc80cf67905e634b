from __future__ import annotations

import pytest

from tests.support.kube.certificates import Pki, make_pki


@pytest.fixture(scope="session")
def pki() -> Pki:
    """Hand out one authority and certificates signed by it."""
    return make_pki()
