"""What holds for all tests."""

from __future__ import annotations

from tests.exploring import load_profile

load_profile()
