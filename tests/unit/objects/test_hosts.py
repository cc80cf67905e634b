"""Services of single slurmctlds: before anybody is sent there, and until nobody is."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.objects import hosts, slurm_conf, slurmctld
from slurm_operator.objects.desired import ObjectName
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.support.objects.resources import controller, found, node_set

if TYPE_CHECKING:
    from slurm_operator.objects.desired import Desired, Manifest

SHARED = {"persistence": {"existingClaim": "state"}}
FIRST, SECOND, THIRD = (f"slurm-controller-{ordinal}" for ordinal in range(3))


def _cluster(backups: int = 1, nodes: int = 1, **spec: Any) -> SlurmCluster:
    ha = {"enabled": backups > 0, "backups": max(backups, 1)}
    return SlurmCluster(controller(**{"ha": ha, **SHARED, **spec}), [node_set("a", replicas=nodes)])


def _written(cluster: SlurmCluster) -> str:
    return slurm_conf.controller_files(cluster, found())["slurm.conf"]


def _running(cluster: SlurmCluster) -> str:
    return slurmctld.config_hash(cluster, found())


def _in_order(cluster: SlurmCluster, there: set[str], *, settled: bool = True) -> Desired:
    desired = slurmctld.desired(cluster, found(), service_monitors=False)
    return hosts.in_order(cluster, desired, there, settled=settled)


def _kinds(desired: Desired) -> set[str]:
    return {item["kind"] for item in desired.objects}


# -------------------------------------------------------------------------------------------------- Services


def test_each_slurmctld_has_a_service() -> None:
    """Each slurmctld has a Service called like its pod, made before the slurm.conf that names it."""
    owner = controller(
        {"labels": {"team": "a"}},
        ha={"enabled": True},
        service={"port": 7000, "spec": {"type": "LoadBalancer"}},
        **SHARED,
    )
    desired = slurmctld.desired(SlurmCluster(owner), found(), service_monitors=True)
    assert [f"{item['kind']}/{item['metadata']['name']}" for item in desired.objects] == [
        "Service/slurm-controller-internal",
        "Service/slurm-controller",
        "Service/slurm-controller-0",
        "Service/slurm-controller-1",
        "ConfigMap/slurm-config",
        "StatefulSet/slurm-controller",
    ]
    internal, first = desired.objects[0], desired.objects[2]
    assert first["metadata"] == internal["metadata"] | {"name": "slurm-controller-0"}
    assert first["spec"] == {
        "publishNotReadyAddresses": True,
        "ports": [{"protocol": "TCP", "port": 7000, "targetPort": "slurmctld"}],
        "selector": {
            **internal["spec"]["selector"],
            "statefulset.kubernetes.io/pod-name": "slurm-controller-0",
        },
    }


@pytest.mark.parametrize("ha", [{}, {"ha": {"enabled": True}, **SHARED}])
def test_a_monitor_keeps_the_service_of_clients(ha: dict[str, Any]) -> None:
    """Of all Services with the labels and the port of a ServiceMonitor, it keeps the one of clients."""
    metrics = {"enabled": True, "serviceMonitor": {"enabled": True}}
    owner = controller(metrics=metrics, **ha)
    desired = slurmctld.desired(SlurmCluster(owner), found(), service_monitors=True)
    monitor = desired.find("ServiceMonitor", "slurm-controller")
    assert monitor is not None
    made = [item for item in desired.objects if item["kind"] == "Service"]
    for endpoint in monitor["spec"]["endpoints"]:
        assert _scraped(monitor, endpoint, made) == ["slurm-controller"]
        assert endpoint["followRedirects"] is False


def _scraped(monitor: Manifest, endpoint: dict[str, Any], made: list[Manifest]) -> list[str]:
    """Return the Services behind which Prometheus finds targets, by the rules of its operator."""
    labels = monitor["spec"]["selector"]["matchLabels"].items()
    names = [
        item["metadata"]["name"]
        for item in made
        if labels <= item["metadata"]["labels"].items()
        and endpoint["port"] in [port.get("name") for port in item["spec"]["ports"]]
    ]
    for rule in endpoint.get("relabelings", ()):
        if rule["action"] == "keep":
            assert rule["sourceLabels"] == ["__meta_kubernetes_service_name"]
            names = [name for name in names if re.fullmatch(rule["regex"], name)]
    return names


# ----------------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize("there", [set(), {FIRST}, {SECOND, THIRD}])
def test_no_configuration_before_its_services(there: set[str]) -> None:
    """While a Service is missing, slurm.conf and pods stay as they are, and all Services are made."""
    held = _in_order(_cluster(), there)
    assert not hosts.complete(_cluster(), there)
    assert _kinds(held) == {"Service"}
    assert {FIRST, SECOND} <= {item["metadata"]["name"] for item in held.objects}


def test_the_configuration_follows_its_services() -> None:
    """With all Services there, everything is made."""
    assert _kinds(_in_order(_cluster(), {FIRST, SECOND})) == {"Service", "ConfigMap", "StatefulSet"}


def test_names_of_pods_wait_for_no_service() -> None:
    """A slurm.conf that names the pods needs no Service, and is held for none."""
    by_pod = replace(_cluster(), by_pod=True)
    assert _kinds(_in_order(by_pod, set())) == {"Service", "ConfigMap", "StatefulSet"}


def test_one_slurmctld_waits_for_nothing() -> None:
    """Without standbys nothing is held, made or removed."""
    cluster = _cluster(0)
    assert _in_order(cluster, set()) == slurmctld.desired(cluster, found(), service_monitors=False)


@pytest.mark.parametrize(
    ("backups", "needless"), [(0, [FIRST, SECOND, THIRD]), (1, [THIRD]), (2, []), (9, [])]
)
def test_needless_services_go_last(backups: int, needless: list[str]) -> None:
    """Services of slurmctlds that should not be there go once all pods are what they should be."""
    there = {FIRST, SECOND, THIRD}
    assert _in_order(_cluster(backups), there, settled=False).unwanted == ()
    assert [*_in_order(_cluster(backups), there).unwanted] == [
        ObjectName("v1", "Service", name) for name in needless
    ]


def test_an_external_slurmctld_needs_none() -> None:
    """When slurmctld moves elsewhere, the Services of all that ran here go."""
    cluster = _cluster(1, external=True, externalConfig={"host": "h", "port": 1})
    unwanted = _in_order(cluster, {FIRST, SECOND}).unwanted
    assert {FIRST, SECOND} <= {named.name for named in unwanted}
    assert _kinds(_in_order(cluster, set())) == {"ConfigMap"}


def test_every_service_that_can_be_made_is_known() -> None:
    """Also the Services of the most standbys that the API allows are found again when they are needless."""
    most = controller(ha={"enabled": True, "backups": 9}, **SHARED)
    made = {item["metadata"]["name"] for item in slurmctld.host_services(most)}
    assert len(made) == 10
    assert made <= hosts.possible(most)
    assert hosts.possible(most) == hosts.possible(controller())


# ------------------------------------------------------------------------------------------- running clusters


def test_nothing_is_restarted_for_its_address() -> None:
    """A cluster whose slurm.conf names pods keeps these while nothing else in it changes."""
    before = replace(_cluster(), by_pod=True)
    for written in (_written(before), ""):
        kept = hosts.keep_running(_cluster(), found(), written, _running(before))
        assert kept.by_pod
        assert _running(kept) == _running(before)


@pytest.mark.parametrize("nodes", [1, 3000])
def test_the_next_change_brings_the_services(nodes: int) -> None:
    """With any other change of slurm.conf the Services come, once and for all; room is kept as ever."""
    before = replace(_cluster(nodes=nodes), by_pod=True)
    changed = hosts.keep_running(_cluster(extraConf="X=1"), found(), _written(before), _running(before))
    assert not changed.by_pod
    assert slurm_conf.max_nodes(changed.controller, (), changed.room) == (1024 if nodes == 1 else 4096)
    back = hosts.keep_running(_cluster(nodes=nodes), found(), _written(changed), _running(changed))
    assert not back.by_pod


def test_what_is_told_of_changes_is_told_of_services() -> None:
    """Where slurmctld is reconfigured and not restarted, the Services come at once."""
    told = _cluster(inplaceReconfigure=True)
    written = _written(replace(told, by_pod=True))
    assert not hosts.keep_running(told, found(), written, "").by_pod


def test_a_stateful_set_that_is_replaced_is_no_restart() -> None:
    """While there is no StatefulSet, its pods may run on: the slurm.conf that they have tells the same."""
    before = replace(_cluster(nodes=3000), by_pod=True)
    kept = hosts.keep_running(_cluster(), found(), _written(before), "")
    assert (kept.by_pod, _running(kept)) == (True, _running(before))
    changed = hosts.keep_running(_cluster(extraConf="X=1"), found(), _written(before), "")
    assert not changed.by_pod


@pytest.mark.parametrize("spec", [{"configFileRefs": [{"name": "missing"}]}, {}])
def test_a_new_cluster_has_services(spec: dict[str, Any]) -> None:
    """Without a slurmctld, or without the files that it needs, there are no names of pods to keep."""
    for running in ("", "of other files"):
        assert not hosts.keep_running(_cluster(**spec), found(), "", running).by_pod


def test_one_slurmctld_has_nothing_to_keep() -> None:
    """Without standbys both ways are one, and nothing is remembered."""
    cluster = _cluster(0)
    assert hosts.keep_running(cluster, found(), "", _running(cluster)) == cluster
