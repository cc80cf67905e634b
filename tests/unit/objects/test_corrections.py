"""What the Slinky operator wrote stays, as long as nothing but our corrections of it differs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import wellknown
from slurm_operator.objects import corrections, slurmctld
from slurm_operator.objects.content_references import data_checksum
from slurm_operator.objects.corrections import Files, Kept, differences
from slurm_operator.objects.desired import ObjectName
from slurm_operator.objects.migration import is_adopted, is_settled
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.fixtures.slinky_releases import LEFT_BEHIND
from tests.support.objects.golden_cases import WORLDS, world
from tests.support.objects.resources import accounting, controller, found, node_set

if TYPE_CHECKING:
    from slurm_operator.objects.desired import Manifest
    from tests.fixtures.golden import Case

CONFIG_HASH = wellknown.ANNOTATION_SLURM_CONFIG_HASH
FILES = Files("ConfigMap", "slurm-config", CONFIG_HASH)
WORKLOAD = ObjectName("apps/v1", "StatefulSet", "slurm-controller")


def _live(item: Manifest, files: dict[str, str]) -> Manifest:
    """Return a workload that runs with these files."""
    live = copy.deepcopy(item)
    annotations = live["spec"]["template"]["metadata"]["annotations"]
    if CONFIG_HASH in annotations:
        annotations[CONFIG_HASH] = data_checksum({name: text.encode() for name, text in files.items()})
    return live


def _kept(cluster: SlurmCluster, live: Manifest | None, written: dict[str, str]) -> Kept:
    desired = slurmctld.desired(cluster, found(), service_monitors=False)
    return corrections.keep(desired, FILES, WORKLOAD, live, written, corrections.former_slurm_lines(cluster))


def _written(kept: Kept) -> Any:
    config = kept.desired.find("ConfigMap", "slurm-config")
    assert config is not None
    return config["data"]


def _workload(kept: Kept) -> Manifest:
    item = kept.desired.find("StatefulSet", "slurm-controller")
    assert item is not None
    return item


def _with_port(port: int | None, **spec: Any) -> SlurmCluster:
    acct = accounting(**({"service": {"port": port}} if port else {}))
    return SlurmCluster(controller(accountingRef={"name": "acct"}, **spec), [node_set("a")], acct)


def _slinky(**spec: Any) -> tuple[Manifest, dict[str, str]]:
    """Return the workload and the files of a cluster whose slurmdbd has the port 6819 in slurm.conf."""
    desired = slurmctld.desired(_with_port(None, **spec), found(), service_monitors=False)
    item, config = (desired.find(*WORKLOAD[1:]), desired.find("ConfigMap", "slurm-config"))
    assert item is not None
    assert config is not None
    return _live(item, config["data"]), config["data"]


def test_a_correction_waits_and_is_named() -> None:
    """Files and pods stay, and again after they were applied."""
    live, files = _slinky()
    kept = _kept(_with_port(7000), live, files)
    assert kept.waiting == ("AccountingStoragePort=6819 becomes AccountingStoragePort=7000",)
    assert _written(kept) == files
    assert is_adopted(_workload(kept))
    assert _workload(kept)["spec"]["template"] == live["spec"]["template"]
    applied = copy.deepcopy(_workload(kept))
    assert _kept(_with_port(7000), applied, files) == kept


@pytest.mark.parametrize(
    "spec",
    [
        {"slurmctld": {"image": "new"}},
        {"extraConf": "X=1"},
        {"template": {"metadata": {"labels": {"a": "b"}}}},
    ],
)
def test_the_next_change_brings_the_correction(spec: dict[str, Any]) -> None:
    """Whatever restarts slurmctld, before the migration or after it, brings the new files."""
    live, files = _slinky()
    adopted = copy.deepcopy(_workload(_kept(_with_port(7000), live, files)))
    for running in (live, adopted):
        kept = _kept(_with_port(7000, **spec), running, files)
        assert kept.waiting == ()
        assert "AccountingStoragePort=7000\n" in _written(kept)["slurm.conf"]


def test_more_room_after_the_migration_is_a_change() -> None:
    """A cluster that is scaled beyond its room gets the room, although another release wrote 1024 as well."""
    live, files = _slinky()
    adopted = copy.deepcopy(_workload(_kept(_with_port(7000), live, files)))
    large = SlurmCluster(
        _with_port(7000).controller, [node_set("a", replicas=2000)], _with_port(7000).accounting
    )
    assert _kept(large, live, files).waiting[0].startswith("MaxNodeCount=1024 becomes MaxNodeCount=2048")
    kept = _kept(large, adopted, files)
    assert kept.waiting == ()
    assert "MaxNodeCount=2048\n" in _written(kept)["slurm.conf"]


def test_files_that_no_pod_runs_with_are_not_kept() -> None:
    """If the Slinky operator was about to restart slurmctld, ours does so with its own files."""
    live, files = _slinky()
    live["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH] = "other"
    kept = _kept(_with_port(7000), live, files)
    assert kept.waiting == ()
    assert _written(kept) != files


def test_without_a_hash_pods_do_not_stay_behind_their_files() -> None:
    """Pods of 1.0 and 1.1 have no hash of slurm.conf: a change of it makes their whole template ours."""
    live, files = _slinky()
    del live["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH]
    assert _kept(_with_port(7000), live, files).waiting
    kept = _kept(_with_port(7000, extraConf="X=1"), live, files)
    assert is_settled(_workload(kept))
    assert not is_adopted(_workload(kept))


def test_nothing_runs_yet() -> None:
    """Without a workload or files there is nothing to keep."""
    live, files = _slinky()
    assert _kept(_with_port(7000), None, files).waiting == ()
    assert _kept(_with_port(7000), live, {}).waiting == ()


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ("A=1\n", "A=1\n", ["comments and empty lines"]),
        ("#\n\nA=1\n", "# x\nA=1\n", ["comments and empty lines"]),
        ("ReturnToService=2\nA=1\n", "A=1\n", ["ReturnToService=2 is removed"]),
        ("A=1\n", "SlurmctldAddr=x\nA=1\n", ["SlurmctldAddr=x is added"]),
        ("StoragePass=two words\n", 'StoragePass="two words"\n', ["StoragePass gets quotes"]),
        ("StoragePass=old\n", "StoragePass=new\n", None),
        ("A=1\n", "", None),
        ("", "A=1\n", None),
        ("ReturnToService=1\n", "", None),
    ],
)
def test_what_is_a_correction(theirs: str, ours: str, expected: list[str] | None) -> None:
    """Lines that a release wrote may go, known parameters may change, and all else is the user's change."""
    former = corrections.former_slurmdbd_lines(b"two words")
    assert differences({"x.conf": theirs}, {"x.conf": ours}, former) == expected


@pytest.mark.parametrize("case", LEFT_BEHIND, ids=lambda case: case.name)
def test_what_releases_leave_behind_stays(case: Case) -> None:
    """slurm.conf and the template of slurmctld of charts 1.0 to 1.2 stay, with the Service of the time."""
    seen = world(case)
    made = {(item["kind"], item["metadata"]["name"]): item for item in case.made}
    files = made["ConfigMap", "slurm-config"]["data"]
    live = _live(made["StatefulSet", "slurm-controller"], files)
    kept = corrections.keep(
        slurmctld.desired(seen.cluster, seen.found, service_monitors=False),
        FILES,
        WORKLOAD,
        live,
        files,
        corrections.former_slurm_lines(seen.cluster),
    )
    assert kept.waiting
    assert _written(kept) == files
    assert _workload(kept)["spec"]["serviceName"] == "slurm-controller"
    assert _workload(kept)["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize("name", ["01-minimal", "02-accounting", "04-config-merge"])
def test_recorded_files_need_no_correction(name: str) -> None:
    """For what was recorded of the Slinky operator, nothing waits."""
    seen = WORLDS[name]
    files = seen.data("ConfigMap", "slurm-config")
    desired = slurmctld.desired(seen.cluster, seen.found, service_monitors=False)
    live = _live(seen.made("StatefulSet", "slurm-controller"), files)
    kept = corrections.keep(
        desired, FILES, WORKLOAD, live, files, corrections.former_slurm_lines(seen.cluster)
    )
    assert kept == Kept(desired)
