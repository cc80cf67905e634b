from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from slurm_operator.kube.manifests.merge import MergeError, strategic_merge

FIXTURES = Path(__file__).parents[3] / "fixtures" / "strategic-merge"


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


@pytest.mark.parametrize(("file", "size"), [("pod-templates", 1500), ("directives", 800)])
def test_equals_kubernetes_on_every_recorded_merge(file: str, size: int) -> None:
    """For each of the recorded pairs the result is that of Kubernetes' own code, list order included."""
    with gzip.open(FIXTURES / f"{file}.ndjson.gz", "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    assert len(cases) == size
    wrong = [
        number
        for number, case in enumerate(cases)
        if strategic_merge(case["base"], case["patch"]) != case["merged"]
    ]
    assert wrong == []


@pytest.mark.parametrize("zero", [False, 0, ""])
def test_explicit_zero_values_win(zero: Any) -> None:
    """A value that the patch sets wins over the base even when it is false, 0 or empty."""
    base = pod(containers=[{"name": "slurmd", "securityContext": {"field": "set"}}], field="set")
    patch = pod(containers=[{"name": "slurmd", "securityContext": {"field": zero}}], field=zero)
    merged = strategic_merge(base, patch)
    assert merged["spec"]["field"] is zero
    assert merged["spec"]["containers"][0]["securityContext"]["field"] is zero


def test_null_deletes_at_every_depth() -> None:
    """A null in the patch removes the key and is never left in the result."""
    base = pod(nodeSelector={"a": "1"}, containers=[{"name": "c", "image": "i", "tty": True}])
    patch = pod(
        nodeSelector=None,
        absent=None,
        dnsConfig={"searches": None, "nameservers": ["192.0.2.1"]},
        containers=[{"name": "c", "image": None}, {"name": "new", "image": None}],
    )
    assert strategic_merge(base, patch) == pod(
        dnsConfig={"nameservers": ["192.0.2.1"]},
        containers=[{"name": "c", "tty": True}, {"name": "new"}],
    )


def test_keyed_list_keeps_what_the_patch_does_not_name() -> None:
    """Untouched elements keep their place before the patched ones they preceded; new ones come last."""
    base = pod(containers=[{"name": "a"}, {"name": "b"}, {"name": "c"}])
    patch = pod(containers=[{"name": "c", "image": "i"}, {"name": "new"}])
    names = [item["name"] for item in strategic_merge(base, patch)["spec"]["containers"]]
    assert names == ["a", "b", "c", "new"]


def test_ports_merge_by_container_port_and_service_ports_by_port() -> None:
    """Each list is merged by the key of its own type."""
    base = pod(containers=[{"name": "c", "ports": [{"containerPort": 1, "name": "x"}]}])
    patch = pod(containers=[{"name": "c", "ports": [{"containerPort": 1, "protocol": "UDP"}]}])
    container = strategic_merge(base, patch)["spec"]["containers"][0]
    assert container["ports"] == [{"containerPort": 1, "name": "x", "protocol": "UDP"}]
    service = strategic_merge(
        {"spec": {"ports": [{"port": 80, "name": "http"}]}},
        {"spec": {"ports": [{"port": 80, "targetPort": 8080}, {"port": 443}]}},
        "Service",
    )
    assert service == {
        "spec": {"ports": [{"port": 80, "name": "http", "targetPort": 8080}, {"port": 443}]},
    }


def test_conditions_merge_by_type() -> None:
    """A condition written by strategic merge leaves the conditions of others alone."""
    base = {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "True"}]}}
    patch = {"status": {"conditions": [{"type": "X", "status": "False"}]}}
    assert strategic_merge(base, patch, "Pod") == {
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]},
    }


def test_list_without_a_key_is_replaced() -> None:
    """Tolerations and other atomic lists are the patch's alone."""
    merged = strategic_merge(pod(tolerations=[{"key": "a"}]), pod(tolerations=[{"key": "b"}]))
    assert merged == pod(tolerations=[{"key": "b"}])


def test_disruption_budget_selector_is_replaced() -> None:
    """A map whose strategy is replace takes nothing from the base."""
    base = {"spec": {"selector": {"matchLabels": {"a": "1"}}, "maxUnavailable": 0}}
    patch = {"spec": {"selector": {"matchLabels": {"b": "1"}}}}
    assert strategic_merge(base, patch, "PodDisruptionBudget") == {
        "spec": {"selector": {"matchLabels": {"b": "1"}}, "maxUnavailable": 0},
    }


@pytest.mark.parametrize(
    ("base", "patch", "merged"),
    [
        pytest.param({"a": 1}, {"$patch": "delete"}, {}, id="delete a map"),
        pytest.param({"a": 1}, {"$patch": "replace", "b": 2}, {"b": 2}, id="replace a map"),
        pytest.param(
            {"a": 1, "b": 2, "c": 3}, {"$retainKeys": ["b", "d"], "d": 4}, {"b": 2, "d": 4}, id="retain keys"
        ),
        pytest.param({}, {"new": {"$patch": "replace", "a": 1}}, {}, id="nothing to replace"),
        pytest.param(
            {"volumes": [{"name": "a"}, {"name": "b"}]},
            {"volumes": [{"name": "a", "$patch": "delete"}]},
            {"volumes": [{"name": "b"}]},
            id="delete an element",
        ),
        pytest.param(
            {"volumes": [{"name": "a"}]},
            {"volumes": [{"$patch": "replace"}, {"name": "c"}, {"name": "b"}]},
            {"volumes": [{"name": "c"}, {"name": "b"}]},
            id="replace a list",
        ),
        pytest.param(
            {"volumes": [{"name": "a", "emptyDir": {}}]},
            {"volumes": [{"$retainKeys": ["name", "secret"], "name": "a", "secret": {"secretName": "s"}}]},
            {"volumes": [{"name": "a", "secret": {"secretName": "s"}}]},
            id="retain keys of an element",
        ),
        pytest.param(
            {"volumes": [{"name": "a"}, {"name": "b"}, {"name": "x"}]},
            {"$setElementOrder/volumes": [{"name": "b"}, {"name": "a"}]},
            {"volumes": [{"name": "b"}, {"name": "a"}, {"name": "x"}]},
            id="only reorder",
        ),
        pytest.param(
            {"volumes": [{"name": "a"}, {"name": "b"}]},
            {
                "$setElementOrder/volumes": [{"name": "n"}, {"name": "b"}],
                "volumes": [{"name": "n"}, {"name": "a", "$patch": "delete"}],
            },
            {"volumes": [{"name": "n"}, {"name": "b"}]},
            id="order, add and delete",
        ),
        pytest.param(
            {},
            {"$setElementOrder/volumes": [{"name": "n"}], "volumes": [{"name": "n"}]},
            {"volumes": [{"name": "n"}]},
            id="order of a new list",
        ),
        pytest.param(
            {"volumes": [{"name": "a"}]},
            {"$setElementOrder/volumes": [{"name": "a"}], "volumes": None},
            {},
            id="order of a deleted list",
        ),
        pytest.param({}, {"$setElementOrder/volumes": [{"name": "a"}]}, {}, id="order of nothing"),
    ],
)
def test_directives(base: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]) -> None:
    """Directives do what they do in Kubernetes and never reach the result."""
    assert strategic_merge({"spec": base}, {"spec": patch}) == {"spec": merged}


def test_delete_from_primitive_list() -> None:
    """A merged list of scalars loses what the parallel list names and keeps the rest in order."""
    base = {"metadata": {"finalizers": ["a", "b", "c"]}}
    patch = {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["b", "absent"],
            "$setElementOrder/finalizers": ["d", "a"],
            "finalizers": ["d"],
        }
    }
    assert strategic_merge(base, patch) == {"metadata": {"finalizers": ["d", "a", "c"]}}


@pytest.mark.parametrize(
    ("base", "patch", "message"),
    [
        ({}, {"containers": [{"image": "i"}]}, None),
        ({"containers": []}, {"containers": [{"image": "i"}]}, r"spec\.containers\[0\]: has no 'name'"),
        (
            {"containers": [{"name": "c", "ports": [{"containerPort": 1}]}]},
            {"containers": [{"name": "c", "ports": [{"name": "x"}]}]},
            r"spec\.containers\[0\]\.ports\[0\]: has no 'containerPort'",
        ),
        ({"volumes": [{}]}, {"volumes": [{"name": "a"}]}, r"spec\.volumes\[0\] of the base: has no 'name'"),
        ({"volumes": [{"name": "a"}]}, {"volumes": ["a"]}, r"spec\.volumes: .*all maps or all scalars"),
        ({"dnsConfig": {}}, {"dnsConfig": {"$patch": "merge"}}, r"spec\.dnsConfig: \$patch is 'merge'"),
        (
            {"volumes": [{"name": "a"}]},
            {"volumes": [{"name": "a", "$patch": "merge"}]},
            r"spec\.volumes\[0\]: \$patch is 'merge'",
        ),
        ({}, {"$retainKeys": ["a"], "b": 1}, r"spec\.b: .*\$retainKeys"),
        ({}, {"$retainKeys": "a"}, r"spec\.\$retainKeys: must be a list"),
        (
            {"volumes": []},
            {"$setElementOrder/volumes": [{"name": "b"}], "volumes": [{"name": "a"}]},
            r"spec\.\$setElementOrder/volumes: must name every element",
        ),
        ({"volumes": []}, {"$setElementOrder/volumes": "a"}, r"spec\.\$setElementOrder/volumes: .*lists"),
        ({"volumes": "a"}, {"$setElementOrder/volumes": []}, r"spec\.volumes: .* not a list"),
        ({"tolerations": [{}]}, {"$setElementOrder/tolerations": [{}]}, r"spec\.tolerations: .*merge key"),
    ],
)
def test_a_bad_patch_names_the_path(base: dict[str, Any], patch: dict[str, Any], message: str | None) -> None:
    """What cannot be merged is refused with the path of the culprit; what need not be merged is taken."""
    if message is None:
        assert strategic_merge({"spec": base}, {"spec": patch}) == {"spec": patch}
        return
    with pytest.raises(MergeError, match=message):
        strategic_merge({"spec": base}, {"spec": patch})


def test_maps_in_a_list_of_scalars_are_refused() -> None:
    """A merged list that has no key cannot take maps."""
    with pytest.raises(MergeError, match=r"metadata\.finalizers: .*without a merge key"):
        strategic_merge({"metadata": {"finalizers": [{}]}}, {"metadata": {"finalizers": [{}]}})


def test_an_unknown_schema_is_refused_with_the_known_ones() -> None:
    """Merging by guesswork is refused: the type must be in the table."""
    with pytest.raises(MergeError, match=r"'Gadget'; known are ConfigMap, .*PodTemplateSpec"):
        strategic_merge({}, {}, "Gadget")


def test_true_is_not_one() -> None:
    """Scalars are compared as JSON does: a boolean never equals a number."""
    base = {"metadata": {"finalizers": [1, True]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": [True]}}
    assert strategic_merge(base, patch)["metadata"]["finalizers"] == [1]


def test_result_shares_nothing_with_its_inputs() -> None:
    """Changing the result afterwards changes neither the base nor the patch."""
    base = pod(
        containers=[{"name": "a", "args": ["x"]}, {"name": "b", "env": []}], dnsConfig={"searches": ["s"]}
    )
    patch = pod(
        containers=[{"name": "b", "args": ["y"]}, {"name": "c", "args": ["z"]}], tolerations=[{"key": "k"}]
    )
    before = copy.deepcopy((base, patch))
    merged = strategic_merge(base, patch)

    def spoil(value: Any) -> None:
        if isinstance(value, dict):
            for item in list(value.values()):
                spoil(item)
            value["spoiled"] = True
        elif isinstance(value, list):
            for item in value:
                spoil(item)
            value.append("spoiled")

    spoil(merged)
    assert (base, patch) == before
