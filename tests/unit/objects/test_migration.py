"""Workloads that run already are not restarted for differences that nobody asked for."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.objects import slurmctld, slurmrestd
from slurm_operator.objects.migration import contained, settle
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.support.objects.golden_cases import WORLDS
from tests.support.objects.resources import controller, found, node_set, restapi

if TYPE_CHECKING:
    from slurm_operator.objects.desired import Manifest

CASES = ["01-minimal", "02-accounting", "03-login", "04-config-merge", "06-nodeset-rich", "08-external"]
ACTIVE = "controller.slinky.slurm.net/active"
KEY_HASH = "slinky.slurm.net/slurm-key-hash"


@pytest.mark.parametrize("name", CASES)
def test_what_the_reference_runs_is_not_restarted(name: str) -> None:
    """Applied over the reference's workload, ours has nothing in its pod template that is not there."""
    world = WORLDS[name]
    for item in world.workloads():
        live = world.running(item)
        settled = settle(item, live)
        template, running = settled["spec"]["template"], live["spec"]["template"]
        assert contained(template, running)
        for part in ("labels", "annotations"):
            assert template["metadata"][part] == running["metadata"][part]
        assert _adopted(settled) != contained(item["spec"]["template"], running)


def _controller(**spec: Any) -> Manifest:
    return slurmctld.stateful_set(SlurmCluster(controller(**spec)), found())


def _older(item: Manifest) -> Manifest:
    """Return a workload as an older operator would have left it: without the label, with other scripts."""
    live = copy.deepcopy(item)
    template = live["spec"]["template"]
    del template["metadata"]["labels"][ACTIVE]
    template["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    template["metadata"]["annotations"]["team"] = "old value"
    template["spec"]["initContainers"][0]["command"][-1] = "another text"
    template["spec"]["dnsPolicy"] = "ClusterFirst"
    return live


def _mark(item: Manifest) -> str:
    mark: str = item["metadata"]["annotations"]["slinky.slurm.net/template-hash"]
    return mark


def _adopted(item: Manifest) -> bool:
    """Return whether a workload runs with another template than the rendered one."""
    return "." not in _mark(item)


def _full(item: Manifest, settled: Manifest) -> bool:
    return settled["spec"] == item["spec"] and not _adopted(settled)


def _running(settled: Manifest) -> Manifest:
    """Return a workload as it runs after it was applied."""
    live = copy.deepcopy(settled)
    live["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    return live


def test_differences_nobody_asked_for_stay() -> None:
    """Scripts, copied annotations and the missing label stay as they run."""
    item = _controller()
    settled = settle(item, _older(item))
    template = settled["spec"]["template"]
    assert template["spec"]["initContainers"][0]["command"] == ["sh", "-c", "another text"]
    assert template["metadata"]["annotations"]["team"] == "old value"
    assert ACTIVE not in template["metadata"]["labels"]
    assert _adopted(settled)
    assert settle(item, _running(settled)) == settled


def test_a_template_of_our_own_is_put_back() -> None:
    """Nobody's edit of a script or of the label is taken for the way of another operator."""
    item = _controller()
    live = _running(settle(item, None))
    assert settle(item, live) == settle(item, None)
    live["spec"]["template"]["spec"]["initContainers"][0]["command"][-1] = "an edit"
    del live["spec"]["template"]["metadata"]["labels"][ACTIVE]
    assert _full(item, settle(item, live))


def test_another_script_of_a_newer_operator_restarts_nothing() -> None:
    """A workload of ours keeps its scripts until something else changes as well."""
    item = _controller()
    live = _running(settle(item, None))
    live["spec"]["template"]["spec"]["initContainers"][0]["command"][-1] = "the text of an older version"
    core = _mark(live).partition(".")[0]
    live["metadata"]["annotations"]["slinky.slurm.net/template-hash"] = f"{core}.0123456789abcdef"
    settled = settle(item, live)
    assert settled["spec"]["template"]["spec"]["initContainers"][0]["command"][-1].startswith("the text")
    assert settle(item, _running(settled)) == settled
    changed = _controller(extraConf="X=1")
    assert _full(changed, settle(changed, _running(settled)))


@pytest.mark.parametrize(
    "spec",
    [
        {"slurmctld": {"image": "new"}},
        {"extraConf": "X=1"},
        {"logfile": {"command": ["sleep"]}},
        {"template": {"metadata": {"labels": {"a": "b"}}}},
        {"slurmctld": {"env": [{"name": "A", "value": "1"}]}},
        {"inplaceReconfigure": True},
    ],
)
def test_the_first_real_change_brings_everything(spec: dict[str, Any]) -> None:
    """Where something else differs, too, the workload is the desired one in full."""
    changed = _controller(**spec)
    assert _full(changed, settle(changed, _older(_controller())))
    adopted = _running(settle(_controller(), _older(_controller())))
    assert _full(changed, settle(changed, adopted))


def test_something_that_was_removed_is_a_real_change() -> None:
    """A container, variable or mount that is no longer wanted makes the whole desired template count."""
    before = _controller(slurmctld={"env": [{"name": "A", "value": "1"}]})
    assert _full(_controller(), settle(_controller(), _older(before)))
    adopted = _running(settle(before, _older(before)))
    assert _full(_controller(), settle(_controller(), adopted))


def test_a_removed_setting_brings_everything_too() -> None:
    """After the migration, a scalar that is no longer wanted is a change like any other."""
    before = _controller(slurmctld={"imagePullPolicy": "Always"})
    adopted = _running(settle(before, _older(before)))
    assert _full(_controller(), settle(_controller(), adopted))


def test_nothing_runs_yet() -> None:
    """Without a running workload the desired one is applied as it is."""
    assert _full(_controller(), settle(_controller(), None))


def _restapi(key: bytes = b"k") -> Manifest:
    return slurmrestd.deployment(
        restapi(), SlurmCluster(controller()), found({"auth-slurm": {"slurm.key": key}})
    )


def test_a_hash_that_the_template_lacks_is_remembered_beside_it() -> None:
    """A key that changes after the migration replaces pods whose template had no hash of it."""
    live = copy.deepcopy(_restapi())
    annotations = live["spec"]["template"]["metadata"]["annotations"]
    for name in (KEY_HASH, "slinky.slurm.net/slurm-config-hash"):
        del annotations[name]
    first = settle(_restapi(), live)
    assert KEY_HASH not in first["spec"]["template"]["metadata"]["annotations"]
    assert settle(_restapi(), _running(first)) == first
    assert _full(_restapi(b"new"), settle(_restapi(b"new"), _running(first)))


def test_files_that_are_referred_to_are_no_reason_to_restart() -> None:
    """Slinky hashed only what it wrote itself; its slurmctld runs on, until such a file changes."""
    cluster = SlurmCluster(controller(configFileRefs=[{"name": "x"}]))
    item = slurmctld.stateful_set(cluster, found(x={"gres.conf": "1"}))
    live = _older(item)
    del live["spec"]["template"]["metadata"]["annotations"]["slinky.slurm.net/referenced-files-hash"]
    adopted = settle(item, live)
    assert _adopted(adopted)
    changed = slurmctld.stateful_set(cluster, found(x={"gres.conf": "2"}))
    assert _full(changed, settle(changed, _running(adopted)))


def test_a_node_set_does_not_end_the_peace_of_slurmrestd() -> None:
    """What does not concern slurmrestd leaves its settled template alone."""
    live = copy.deepcopy(_restapi())
    live["spec"]["template"]["metadata"]["annotations"].pop(KEY_HASH)
    first = settle(_restapi(), live)
    other = slurmrestd.deployment(restapi(), SlurmCluster(controller(), [node_set("a")]), found())
    assert settle(other, _running(first)) == first


@pytest.mark.parametrize(
    ("wanted", "running", "there"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": False}, {}, True),
        ({"a": ""}, {}, True),
        ({"a": True}, {}, False),
        ({"a": []}, {}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({}, {"resources": {}}, True),
        ({}, {"env": [{"name": "x"}]}, False),
        ({"a": {"b": 1}}, {"a": 1}, False),
        ({"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}, True),
        ({"limits": {"cpu": 1}}, {"limits": {"cpu": "1"}}, True),
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": "1"}}, False),
    ],
)
def test_contained(wanted: Any, running: Any, there: bool) -> None:  # noqa: FBT001 - what is expected
    """Defaults that the server filled in do not count, what the user took out of a list does."""
    assert contained(wanted, running) is there
