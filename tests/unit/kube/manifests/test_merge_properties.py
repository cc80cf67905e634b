from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.manifests.merge import diff_merge_patch, json_merge_patch, strategic_merge

NAMES = st.sampled_from("abcd")
# 0, 1, true and false collide in Python and must not here.
SCALARS = st.sampled_from([False, True, 0, 1, -1, 1.5, "", "x", "y"])


def keyed(
    key: str, values: st.SearchStrategy[Any], **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    element = st.fixed_dictionaries({key: values}, optional=fields)
    return st.lists(element, max_size=4, unique_by=lambda item: str(item[key]))


CONTAINERS = keyed(
    "name",
    NAMES,
    image=SCALARS,
    args=st.lists(NAMES, max_size=3),
    env=keyed("name", NAMES, value=SCALARS),
    ports=keyed("containerPort", st.integers(1, 4), name=NAMES),
    securityContext=st.dictionaries(NAMES, SCALARS, max_size=3),
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(NAMES, NAMES, max_size=3),
                "finalizers": st.lists(NAMES, max_size=4, unique=True),
            },
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": CONTAINERS,
                "hostAliases": keyed("ip", NAMES, hostnames=st.lists(NAMES, max_size=2)),
                "tolerations": st.lists(st.dictionaries(NAMES, SCALARS, max_size=2), max_size=2),
                "volumes": keyed("name", NAMES, emptyDir=st.just({}), secret=st.dictionaries(NAMES, SCALARS)),
                "hostNetwork": SCALARS,
            },
        ),
    },
)


def nulled(value: Any, draw: Any) -> Any:
    """Replace some values of a patch by null, never a merge key."""
    if isinstance(value, list):
        return [nulled(item, draw) for item in value]
    if not isinstance(value, dict):
        return value
    keys = {"name", "ip", "containerPort"}
    return {
        key: None if key not in keys and draw(st.integers(0, 5)) == 0 else nulled(item, draw)
        for key, item in value.items()
    }


@st.composite
def patches(draw: Any) -> Any:
    return nulled(draw(TEMPLATES), draw)


def typed(value: Any) -> Any:
    """Return a form of a value in which true differs from 1."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (isinstance(value, bool), value)


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Return the scalars below maps only; lists have rules of their own."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    return [] if isinstance(value, list) else [(path, value)]


@given(TEMPLATES)
def test_an_empty_patch_changes_nothing(base: Any) -> None:
    """Merging nothing into an object gives an equal object."""
    assert typed(strategic_merge(base, {})) == typed(base)


@given(TEMPLATES, patches())
def test_merging_twice_is_merging_once(base: Any, patch: Any) -> None:
    """A merge is idempotent, list order included."""
    once = strategic_merge(base, patch)
    assert typed(strategic_merge(once, patch)) == typed(once)


@given(TEMPLATES, patches())
def test_inputs_are_never_changed(base: Any, patch: Any) -> None:
    """Neither the base nor the patch differs after a merge."""
    before = copy.deepcopy((base, patch))
    strategic_merge(base, patch)
    assert (base, patch) == before


@given(TEMPLATES, patches())
def test_what_the_patch_says_is_true_afterwards(base: Any, patch: Any) -> None:
    """Every scalar of the patch, zero values too, stands in the result, and every null is gone from it."""
    merged = dict(leaves(strategic_merge(base, patch)))
    for path, value in leaves(patch):
        if value is None:
            assert path not in merged
        else:
            assert typed(merged[path]) == typed(value)


@given(TEMPLATES, patches())
def test_keyed_lists_lose_no_element(base: Any, patch: Any) -> None:
    """The keys of a merged list are those of both lists, each once, the patch's in the patch's order."""
    containers = (patch.get("spec") or {}).get("containers")
    if containers is None:
        return
    old = [item["name"] for item in (base.get("spec") or {}).get("containers", [])]
    new = [item["name"] for item in containers]
    merged = [item["name"] for item in strategic_merge(base, patch)["spec"]["containers"]]
    assert sorted(merged) == sorted({*old, *new})
    assert [name for name in merged if name in new] == new
    assert [name for name in merged if name not in new] == [name for name in old if name not in new]


JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
MAPS = st.dictionaries(NAMES, JSON, max_size=4)


@given(MAPS, MAPS)
def test_a_diff_applied_gives_the_new_value(old: Any, new: Any) -> None:
    """The merge patch between two values turns the first into the second."""
    before = copy.deepcopy((old, new))
    patch = diff_merge_patch(old, new)
    assert typed(json_merge_patch(old, patch or {})) == typed(new)
    assert (old, new) == before


@given(MAPS, MAPS)
def test_there_is_a_diff_exactly_when_values_differ(old: Any, new: Any) -> None:
    """Equal values give no patch, so that no write is sent; different values always give one."""
    assert (diff_merge_patch(old, new) is None) == (typed(old) == typed(new))


@given(MAPS, MAPS)
def test_a_diff_says_nothing_that_was_already_so(old: Any, new: Any) -> None:
    """The patch holds only keys whose value changes."""

    def check(patch: Any, old: Any, new: Any) -> None:
        for key, value in patch.items():
            assert typed(old.get(key)) != typed(new.get(key))
            if isinstance(value, dict) and isinstance(old.get(key), dict):
                check(value, old[key], new[key])

    check(diff_merge_patch(old, new) or {}, old, new)


def test_null_counts_as_absent() -> None:
    """A status field that is null and one that is missing are the same."""
    assert diff_merge_patch({"a": None, "b": 1}, {"b": 1, "c": None}) is None
    assert diff_merge_patch({"a": {"b": 1}}, {"a": None}) == {"a": None}


def test_json_merge_patch_of_the_rfc() -> None:
    """The examples of RFC 7386 hold."""
    for base, patch, result in (
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ):
        assert json_merge_patch(base, patch) == result
