"""The names and defaults of the structs against what the reference operator was seen to make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import KINDS, Accounting, Controller, LoginSet, NodeSet, RestApi, Token
from slurm_operator.api.nodeset import ScalingMode, daemon_hostname, slurm_node_name
from tests.fixtures.golden import CASES, NAMES, Case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_operator.kube.models.meta import Object

_BY_KIND = {kind.RESOURCE.kind: kind for kind in KINDS}
_DOMAIN = "cluster.local"
_NAMESPACE = "NS"


def _decode(manifest: dict[str, Any], status: Any = None) -> Object:
    body = {
        "metadata": manifest["metadata"] | {"namespace": _NAMESPACE},
        "spec": manifest["spec"],
        "status": status or {},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=_BY_KIND[manifest["kind"]])


def _stored(case: Case) -> dict[tuple[str, str], Object]:
    return {(item["kind"], item["metadata"]["name"]): _decode(item, item["status_"]) for item in case.stored}


def _written(case: Case) -> dict[tuple[str, str], Object]:
    return {
        (item["kind"], item["metadata"]["name"]): _decode(item)
        for item in case.inputs
        if item["kind"] in _BY_KIND
    }


def _of(case: Case, kind: type[Any]) -> Iterator[Any]:
    return (item for item in _stored(case).values() if isinstance(item, kind))


def _made(case: Case, kind: str) -> dict[str, Any]:
    return {item["metadata"]["name"]: item for item in case.made if item["kind"] == kind}


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_struct_defaults_are_the_stored_defaults(case: Case) -> None:
    """An object decoded as a user wrote it has the same spec as the one with the API server's defaults."""
    stored = _stored(case)
    assert stored
    for key, written in _written(case).items():
        assert msgspec.structs.asdict(written)["spec"] == msgspec.structs.asdict(stored[key])["spec"]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_controller_children(case: Case) -> None:
    """A Controller's ConfigMap, Services, StatefulSet and claim have the names seen in the reference."""
    for controller in _of(case, Controller):
        assert controller.config_name in case.made_names("ConfigMap")
        if controller.spec.external:
            assert controller.service_name not in case.made_names("Service")
            continue
        assert {controller.service_name, controller.internal_service_name} <= case.made_names("Service")
        assert controller.claim_name(0) in case.made_names("PersistentVolumeClaim")
        workload = _made(case, "StatefulSet")[controller.workload_name]["spec"]
        assert workload["replicas"] == controller.replicas
        assert workload["serviceName"] == controller.internal_service_name


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_addresses_in_slurm_conf(case: Case) -> None:
    """The cluster name and the addresses in slurm.conf are those that the Controller's helpers give."""
    for controller in _of(case, Controller):
        lines = _made(case, "ConfigMap")[controller.config_name]["data"]["slurm.conf"].splitlines()
        assert f"ClusterName={controller.cluster_name}" in lines
        if controller.spec.external:
            assert f"SlurmctldHost={controller.primary_name}" in lines
            continue
        assert f"SlurmctldHost={controller.pod_name(0)}({controller.pod_address(0)})" in lines
        assert f"SlurmctldAddr={controller.service_address}" in lines
        for nodeset in _of(case, NodeSet):
            assert f"NodeSet={nodeset.slurm_name} Feature={nodeset.slurm_name}" in lines
        for accounting in _of(case, Accounting):
            assert f"AccountingStorageHost={accounting.service_name}" in lines


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_other_children(case: Case) -> None:
    """The children of Accountings, RestApis, LoginSets and Tokens have the names seen in the reference."""
    for accounting in _of(case, Accounting):
        assert accounting.workload_name in case.made_names("StatefulSet")
        assert accounting.service_name in case.made_names("Service")
        assert accounting.config_name in case.made_names("Secret")
    for restapi in _of(case, RestApi):
        assert restapi.workload_name in case.made_names("Deployment")
        service = _made(case, "Service")[restapi.service_name]
        assert [port["port"] for port in service["spec"]["ports"]] == [restapi.port]
    for loginset in _of(case, LoginSet):
        assert loginset.workload_name in case.made_names("Deployment")
        assert loginset.service_name in case.made_names("Service")
        assert loginset.ssh_config_name in case.made_names("ConfigMap")
        assert loginset.ssh_host_keys_name in case.made_names("Secret")
        assert loginset.selector == loginset.status.selector
    for token in _of(case, Token):
        assert list(_made(case, "Secret")[token.secret_name]["data"]) == [token.secret_key]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_nodeset_children(case: Case) -> None:
    """The Service, budget, ConfigMap and claims around a NodeSet have the names seen in the reference."""
    for nodeset in _of(case, NodeSet):
        assert nodeset.worker_service_name in case.made_names("Service")
        assert nodeset.worker_pdb_name in case.made_names("PodDisruptionBudget")
        assert (nodeset.ssh_config_name in case.made_names("ConfigMap")) == nodeset.spec.ssh.enabled
        assert nodeset.selector == nodeset.status.selector
        for template in nodeset.spec.volume_claim_templates or ():
            claims = {
                nodeset.claim_name(template["metadata"]["name"], nodeset.padded(ordinal))
                for ordinal in range(nodeset.spec.replicas)
            }
            assert claims <= case.made_names("PersistentVolumeClaim")


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_workers(case: Case) -> None:
    """The names, hostnames, Slurm names and search domains of worker pods are those seen in the reference."""
    for nodeset in _of(case, NodeSet):
        pods = [pod for pod in _made(case, "Pod").values() if _owner(pod) == nodeset.metadata.name]
        assert len(pods) == nodeset.status.replicas
        for pod in pods:
            labels, spec = pod["metadata"]["labels"], pod["spec"]
            assert pod["metadata"]["generateName"] == nodeset.pod_generate_name
            assert spec["subdomain"] == nodeset.worker_service_name
            assert spec["dnsConfig"]["searches"] == [nodeset.worker_service_fqdn(_DOMAIN)]
            if nodeset.spec.scaling_mode == ScalingMode.STATEFUL_SET:
                ordinal = int(labels["nodeset.slinky.slurm.net/pod-index"])
                assert pod["metadata"]["name"] == nodeset.pod_name(ordinal)
                assert spec["hostname"] == nodeset.pod_hostname(ordinal)
            else:
                assert spec["hostname"] == daemon_hostname(_target(spec), {})
            assert labels["nodeset.slinky.slurm.net/pod-hostname"] == slurm_node_name(
                scaling_mode=labels["nodeset.slinky.slurm.net/scaling-mode"],
                stated=False,
                pod_name=pod["metadata"]["name"],
                hostname=spec["hostname"],
                host_network=False,
                node_name="",
            )


def _owner(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["name"])


def _target(spec: dict[str, Any]) -> str:
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
