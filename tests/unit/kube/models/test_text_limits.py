"""Texts that are written into a cluster have a bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.models.text_limits import MESSAGE_BYTES, NOTE_BYTES, shorten


@given(st.text(), st.integers(3, 40))
def test_a_text_keeps_its_limit_and_its_beginning(text: str, limit: int) -> None:
    """What is cut is at most as long as allowed, and begins as the text does; what fits is not touched."""
    cut = shorten(text, limit)
    assert len(cut.encode()) <= limit
    assert cut == text or text.startswith(cut.removesuffix("…"))
    assert (cut == text) == (len(text.encode()) <= limit)


@pytest.mark.parametrize("limit", [NOTE_BYTES, MESSAGE_BYTES])
def test_what_cannot_be_encoded_is_replaced(limit: int) -> None:
    """Half a surrogate pair, which JSON cannot carry, does not keep a status from being written."""
    assert shorten("a\ud800b", limit) == "a?b"
