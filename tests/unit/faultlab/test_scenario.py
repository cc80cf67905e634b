from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faultlab.errors import ScenarioError
from faultlab.scenario import in_namespace, load, names, unmet, value_at

if TYPE_CHECKING:
    from pathlib import Path

POD = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


@pytest.mark.parametrize("name", names())
def test_every_scenario_of_the_lab_is_read(name: str) -> None:
    """The scenarios that come with the lab are whole."""
    found = load(name)
    assert found.name == name
    assert found.about


@pytest.mark.parametrize(
    "text",
    [
        "about: x",
        "about: x\nsteps: [{fly: 1}]\nend: [{}]",
        "about: x\nsteps: [pause: 1]\nend: [{}]\nmore: 1",
        "",
    ],
)
def test_a_scenario_that_cannot_be_understood_is_refused(tmp_path: Path, text: str) -> None:
    """Unknown keys and steps are errors, with the file's name."""
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=r"broken\.yaml"):
        load(path)


def test_an_unknown_name_lists_the_known_ones() -> None:
    """A typing error is answered with the names there are."""
    with pytest.raises(ScenarioError, match="scale-out"):
        load("scale-outt")


def test_paths_find_entries_of_lists() -> None:
    """A condition is found by its type; what is not there is None."""
    assert value_at(POD, "status.conditions[type=Ready].status") == "True"
    assert value_at(POD, "status.conditions[type=Other].status") is None
    assert value_at({"a": {"b.c/d": 1}}, "a.b\\.c/d") == 1
    assert value_at(POD, "spec.x.y") is None


def test_conditions_say_what_is_missing() -> None:
    """The sentence names object, path and both values; it is empty when the condition is met."""
    wanted = {"kind": "Pod", "name": "a", "fields": {"status.phase": "Running"}}
    assert unmet(POD, wanted) == ""
    assert unmet(None, wanted) == "there is no Pod a"
    assert unmet({}, wanted) == "Pod a: status.phase is None, not 'Running'"
    assert unmet(POD, {"kind": "Pod", "name": "a", "set": ["status.phase"]}) == ""
    assert unmet(POD, {"kind": "Pod", "name": "a", "set": ["spec"]}) == "Pod a: spec is not set"
    assert unmet(POD, {"kind": "Pod", "name": "a", "gone": True}) == "Pod a still exists"
    assert unmet(None, {"kind": "Pod", "name": "a", "gone": True}) == ""


def test_the_namespace_is_filled_in() -> None:
    """$NAMESPACE stands for the namespace of the run, anywhere in an object."""
    assert in_namespace({"a": ["x.$NAMESPACE.svc"]}, "run-1") == {"a": ["x.run-1.svc"]}


def test_an_object_of_the_base_is_changed_by_the_same_object(tmp_path: Path) -> None:
    """Its other fields stay, and further objects come after it."""
    (tmp_path / "base.yaml").write_text("objects: [{kind: A, metadata: {name: a}, spec: {x: 1, y: {z: 2}}}]")
    path = tmp_path / "one.yaml"
    path.write_text(
        "about: x\nbase: base.yaml\nsteps: [pause: 1]\nend: [{}]\nobjects:\n"
        "- {kind: A, metadata: {name: a}, spec: {y: {w: 3}}}\n- {kind: A, metadata: {name: b}}\n"
    )
    first, second = load(path).objects
    assert first["spec"] == {"x": 1, "y": {"z": 2, "w": 3}}
    assert second["metadata"] == {"name": "b"}
