from __future__ import annotations

from typing import Any

import pytest

from faultlab.values import Property, names_field, nested, other_values, properties, restoring

SCHEMA = {
    "properties": {
        "replicas": {"type": "integer", "minimum": 0},
        "ref": {"properties": {"name": {"type": "string"}, "key": {"type": "string"}}},
        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
}


def test_every_leaf_is_a_property() -> None:
    """Objects with properties are gone into, open ones are properties themselves."""
    found = [*properties("NodeSet", SCHEMA)]
    assert [str(one) for one in found] == [
        "NodeSet.spec.replicas",
        "NodeSet.spec.ref.name",
        "NodeSet.spec.ref.key",
        "NodeSet.spec.template",
    ]
    assert found[0] == Property("NodeSet", ("replicas",), {"type": "integer", "minimum": 0})


@pytest.mark.parametrize(
    ("schema", "current", "first"),
    [
        ({"type": "string", "enum": ["A", "B"]}, "A", "B"),
        ({"type": "boolean"}, True, False),
        ({"type": "boolean"}, None, True),
        ({"type": "integer"}, 3, 4),
        ({"type": "integer", "minimum": 5}, None, 6),
        ({"type": "integer", "minimum": 0, "maximum": 1}, 1, 0),
        ({"x-kubernetes-int-or-string": True}, "50%", 1),
        ({"type": "string"}, "faultlab", "faultlab2"),
        ({"type": "array", "items": {"type": "string"}}, None, ["faultlab"]),
        ({"type": "object", "additionalProperties": {"type": "string"}}, None, {"faultlab": "faultlab"}),
    ],
)
def test_another_value(schema: dict[str, Any], current: object, first: object) -> None:
    """The first value to try fits the schema and is not the current one."""
    values = other_values(schema, ("x",), current)
    assert values[0] == first
    assert current not in values


def test_an_open_object_gets_what_belongs_there() -> None:
    """A pod's spec and a service's spec get something that exists there."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert other_values(schema, ("template", "spec"), None)[0] == {"terminationGracePeriodSeconds": 77}
    assert "sessionAffinity" in other_values(schema, ("service", "spec"), None)[0]
    assert "env" in other_values(schema, ("slurmd",), None)[0]


def test_patches_set_and_restore_one_path() -> None:
    """What was not there is removed again, with the objects that were made for it."""
    assert nested(("a", "b"), 1) == {"spec": {"a": {"b": 1}}}
    assert restoring({"a": {"b": 2}}, ("a", "b")) == {"spec": {"a": {"b": 2}}}
    assert restoring({"a": {}}, ("a", "b")) == {"spec": {"a": {"b": None}}}
    assert restoring({}, ("a", "b")) == {"spec": {"a": None}}
    added = {"b": {"c": 1, "d": 2}}
    assert restoring({"a": {"b": {"d": 3}}}, ("a",), added) == {"spec": {"a": {"b": {"c": None, "d": 3}}}}


def test_what_is_required_beside_a_property_is_set_with_it() -> None:
    """An object that is made for one property gets its required ones; what is there already stays."""
    text = {"type": "string"}
    ref = {"type": "object", "properties": {"name": text, "key": text}, "required": ["name", "key"]}
    schema = {
        "properties": {
            "ssh": {"properties": {"enabled": {"type": "boolean"}, "ref": ref}, "required": ["ref"]}
        }
    }
    enabled, name, _ = properties("NodeSet", schema)
    word = other_values(text, (), None)[0]
    made = {"enabled": "yes", "ref": {"name": word, "key": word}}
    assert enabled.patch({}, "yes") == {"spec": {"ssh": made}}
    assert name.patch({}, "n") == {"spec": {"ssh": {"ref": {"name": "n", "key": word}}}}
    there = {"ssh": {"ref": {"name": "a", "key": "b"}}}
    assert enabled.patch(there, "yes") == {"spec": {"ssh": {"enabled": "yes"}}}


def test_a_refusal_has_to_name_the_field() -> None:
    """The path, or that of an object around it, is in the message."""
    assert names_field("spec.ref.name: Invalid value", ("ref", "name"))
    assert names_field("spec.ref: Invalid value", ("ref", "name"))
    assert names_field("spec.persistence: Required value: ref.key needs it", ("ref", "name"))
    assert not names_field("no", ("ref", "name"))
    assert not names_field("the ref. No", ("ref", "name"))
