"""What holds for all tests."""

from __future__ import annotations

from tests.support.property_settings import load_profile

load_profile()
