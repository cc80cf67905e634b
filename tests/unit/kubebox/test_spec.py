from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebox import BoxSpec, SpecError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "-a"),
        ("name", "Upper"),
        ("name", "a/../b"),
        ("name", "a" * 41),
        ("fake_nodes", -1),
        ("fake_nodes", 10_001),
        ("pulls", True),
        ("ready_timeout", 0),
        ("apiserver_args", ("v=4",)),
    ],
)
def test_impossible_wish_is_refused_with_its_field(field: str, value: object) -> None:
    """A spec that cannot work is refused before anything starts, and the message names the field."""
    with pytest.raises(SpecError, match=f"^{field}: "):
        BoxSpec(**{field: value})  # type: ignore[arg-type]  # the wrong value is the point


@given(
    st.builds(
        BoxSpec,
        controller_manager=st.booleans(),
        scheduler=st.booleans(),
        fake_nodes=st.integers(0, 10_000),
        apiserver_args=st.lists(st.from_regex(r"--[a-z-]+=\w*", fullmatch=True), max_size=3).map(tuple),
        name=st.none() | st.from_regex(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True),
        audit=st.booleans(),
        ready_timeout=st.floats(0.1, 1e6),
    )
)
def test_spec_survives_the_way_to_the_supervisor(spec: BoxSpec) -> None:
    """A spec read back from its JSON equals the original."""
    assert BoxSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_unknown_field_is_refused() -> None:
    """A spec written by another version is refused with the names of what is not understood."""
    with pytest.raises(SpecError, match="kubelets"):
        BoxSpec.from_json({"kubelets": 3})
