"""What the kinds say about themselves: names, defaults and resolved references."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pytest

from slurm_operator.api import KINDS, Accounting, Cluster, Controller, LoginSet, NodeSet, RestApi, Token
from slurm_operator.api.nodeset import ScalingMode, daemon_hostname, slurm_node_name, worker_service_fqdn
from slurm_operator.api.shared import Condition, Kind, SecretKeySelector, find_condition
from slurm_operator.api.updates import ScheduledUpdate, UpdateStrategyType
from slurm_operator.kube.models.meta import Object

KindT = TypeVar("KindT", bound=Object)


def _make(kind: type[KindT], spec: dict[str, Any] | None = None) -> KindT:
    return msgspec.convert({"metadata": {"name": "blue", "namespace": "hpc"}, "spec": spec or {}}, kind)


def _key(name: str, key: str = "k") -> dict[str, str]:
    return {"name": name, "key": key}


# ------------------------------------------------------------------------------------------------- Controller
def test_controller_names() -> None:
    """Everything made for a Controller is named after it."""
    controller = _make(Controller)
    assert controller.cluster_name == "hpc_blue"
    assert controller.workload_name == "blue-controller"
    assert controller.config_name == "blue-config"
    assert controller.service_name == "blue-controller"
    assert controller.service_address == "blue-controller.hpc"
    assert controller.service_fqdn("example.net") == "blue-controller.hpc.svc.example.net"
    assert controller.internal_service_name == "blue-controller-internal"
    assert controller.internal_service_address == "blue-controller-internal.hpc"
    assert controller.pod_name(1) == "blue-controller-1"
    assert controller.pod_address(1) == "blue-controller-1.blue-controller-internal.hpc"
    assert controller.primary_name == "blue-controller-0"
    assert controller.primary_address == "blue-controller-0.blue-controller-internal.hpc"
    assert controller.claim_name(0) == "statesave-blue-controller-0"


def test_cluster_name_can_be_chosen() -> None:
    """A cluster name in the spec wins over the computed one."""
    assert _make(Controller, {"clusterName": "hal"}).cluster_name == "hal"


def test_external_controller_is_its_host() -> None:
    """The primary of an external Controller is the host that the user named."""
    controller = _make(
        Controller, {"external": True, "externalConfig": {"host": "ctl.example.com", "port": 6817}}
    )
    assert controller.primary_name == "ctl.example.com"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 1),
        ({"ha": {"enabled": False, "backups": 3}}, 1),
        ({"ha": {"enabled": True}}, 2),
        ({"ha": {"enabled": True, "backups": 2}}, 3),
        ({"external": True, "ha": {"enabled": True}}, 1),
    ],
)
def test_controller_replicas(spec: dict[str, Any], expected: int) -> None:
    """There is one slurmctld, plus its standbys where high availability is on and slurmctld is ours."""
    assert _make(Controller, spec).replicas == expected


@pytest.mark.parametrize("kind", [Controller, Accounting, Token])
def test_jwt_key_has_two_spellings(kind: type[Controller | Accounting | Token]) -> None:
    """The JWT key is jwtKeyRef, else its older name, else nothing."""
    old, new = _key("old"), _key("new")
    assert _make(kind).jwt_key is None
    assert _make(kind, {"jwtHs256KeyRef": old}).jwt_key == SecretKeySelector(name="old", key="k")
    both = _make(kind, {"jwtHs256KeyRef": old, "jwtKeyRef": new})
    assert both.jwt_key == SecretKeySelector(name="new", key="k")


def test_claim_spec_is_what_the_user_wrote() -> None:
    """The description of a claim comes out exactly as it went in, an empty storage class included."""
    claim = {
        "accessModes": ["ReadWriteMany"],
        "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"},
        "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "p", "namespace": "other"},
        "resources": {"requests": {"storage": "4Gi"}, "limits": {"storage": 5}},
        "selector": {
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
        },
        "storageClassName": "",
        "volumeAttributesClassName": "gold",
        "volumeMode": "Filesystem",
        "volumeName": "pv",
    }
    controller = _make(Controller, {"persistence": {"enabled": True, "existingClaim": "x", **claim}})
    assert controller.spec.persistence.claim_spec() == claim


# ---------------------------------------------------------------------------------------------------- NodeSet
def test_nodeset_defaults() -> None:
    """A NodeSet that says only which cluster it joins has the documented defaults."""
    spec = _make(NodeSet, {"controllerRef": {"name": "red"}}).spec
    assert (spec.replicas, spec.scaling_mode, spec.revision_history_limit) == (1, "StatefulSet", 0)
    assert spec.update_strategy.type == UpdateStrategyType.ROLLING_UPDATE
    assert spec.update_strategy.rolling_update.max_unavailable == "25%"
    assert spec.update_strategy.scheduled_update.length() == timedelta(minutes=30)
    assert spec.persistent_volume_claim_retention_policy.when_deleted == "Retain"
    assert spec.persistent_volume_claim_retention_policy.when_scaled == "Retain"
    assert (spec.min_ready_seconds, spec.ordinal_padding) == (0, 0)
    assert (spec.pin_to_node, spec.oversubscribe_node) == (False, False)
    assert spec.workload_disruption_protection is True
    assert spec.prune_slurm_node_records == "Never"


def test_nodeset_names() -> None:
    """Everything made for a NodeSet is named after it or after the cluster whose workers share it."""
    nodeset = _make(NodeSet, {"controllerRef": {"name": "red"}})
    assert nodeset.pod_name(7) == "blue-7"
    assert nodeset.pod_hostname(7) == "blue-7"
    assert nodeset.pod_generate_name == "blue-"
    assert nodeset.claim_name("data", nodeset.padded(7)) == "data-blue-7"
    assert nodeset.headless_service_name == "blue-headless"
    assert nodeset.worker_service_name == "slurm-workers-red"
    assert nodeset.worker_service_fqdn("example.net") == "slurm-workers-red.hpc.svc.example.net"
    assert worker_service_fqdn("red", "hpc", "example.net") == nodeset.worker_service_fqdn("example.net")
    assert nodeset.worker_pdb_name == "slurm-workers-pdb-red"
    assert nodeset.ssh_config_name == "blue-ssh-config"
    assert nodeset.reservation_name == "SlurmOperatorMaint-blue"
    assert nodeset.selector == "app.kubernetes.io/instance=blue,app.kubernetes.io/name=slurmd"


def test_padding_widens_numbers_and_never_cuts_them() -> None:
    """A worker's number has at least as many digits as ordinalPadding asks for."""
    nodeset = _make(NodeSet, {"ordinalPadding": 3, "template": {"spec": {"hostname": "gpu-"}}})
    assert [nodeset.pod_name(n) for n in (0, 42, 1234)] == ["blue-000", "blue-042", "blue-1234"]
    assert nodeset.pod_hostname(42) == "gpu-042"


@pytest.mark.parametrize(
    ("hostname", "expected"),
    [
        (None, "blue"),
        ("", "blue"),
        ("gpu-", "gpu"),
        ("-gpu-", "gpu"),
        ("gpu-a", "gpu-a"),
        ("gpu State=DOWN", "gpu"),
        ("   ", "blue"),
        ("-", "blue"),
    ],
)
def test_slurm_name_is_one_word(hostname: str | None, expected: str) -> None:
    """The name in slurm.conf is one word of the hostname, so that nothing can be smuggled in beside it."""
    assert _make(NodeSet, {"template": {"spec": {"hostname": hostname}}}).slurm_name == expected


@pytest.mark.parametrize(
    ("node", "annotations", "expected"),
    [
        ("n1.example.com", {}, "n1"),
        ("n1", {}, "n1"),
        ("n1.example.com", {"nodeset.slinky.slurm.net/hostname-override": "a.b"}, "a.b"),
        ("n1", {"nodeset.slinky.slurm.net/hostname-override": ""}, "n1"),
    ],
)
def test_daemon_hostname(node: str, annotations: dict[str, str], expected: str) -> None:
    """A DaemonSet-mode worker has the short name of its node, or the one that the node's annotation gives."""
    assert daemon_hostname(node, annotations) == expected


@pytest.mark.parametrize(
    ("mode", "hostname", "host_network", "stated", "expected"),
    [
        (ScalingMode.STATEFUL_SET, "h", False, False, "h"),
        (ScalingMode.STATEFUL_SET, "", False, False, "p"),
        (ScalingMode.STATEFUL_SET, "h", True, False, "n"),
        (ScalingMode.STATEFUL_SET, "h", True, True, "n"),
        (ScalingMode.DAEMON_SET, "h", False, False, "h"),
        (ScalingMode.DAEMON_SET, "h", True, True, "h"),
        (ScalingMode.DAEMON_SET, "h", True, False, "n"),
        ("", "h", True, False, "n"),
        ("", "h", False, False, "h"),
    ],
)
def test_slurm_node_name(mode: str, hostname: str, host_network: bool, stated: bool, expected: str) -> None:  # noqa: FBT001 - a table of cases
    """A worker's name in Slurm follows from the mode on its label, its hostname and its network."""
    found = slurm_node_name(
        scaling_mode=mode,
        stated=stated,
        pod_name="p",
        hostname=hostname,
        host_network=host_network,
        node_name="n",
    )
    assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01T04:00:00Z",
        "2026-12-01t04:00:00z",
        "2026-12-01T05:00:00+01:00",
        "2026-12-01T04:00:00.000000000Z",
    ],
)
def test_window_opens_at_the_written_time(text: str) -> None:
    """Every spelling of a point in time that the API server stores is understood."""
    assert ScheduledUpdate(start_time=text).opens() == datetime(2026, 12, 1, 4, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "2026-12-01T04:00:00", "0000-01-01T00:00:00Z"])
def test_window_without_a_time_is_an_error_that_names_the_field(text: str) -> None:
    """A start that is no point in time is an error with the field, the value and an example."""
    expected = f"spec.updateStrategy.scheduledUpdate.startTime: {text!r}"
    with pytest.raises(ValueError, match=re.escape(expected)):
        ScheduledUpdate(start_time=text).opens()


def test_window_with_a_bad_length_is_an_error_that_names_the_field() -> None:
    """A length that is no duration is an error with the field and the value."""
    with pytest.raises(ValueError, match=r"spec\.updateStrategy\.scheduledUpdate\.duration: '2 hours'"):
        ScheduledUpdate(duration="2 hours").length()


# ------------------------------------------------------------------------------------------------ other kinds
def test_loginset_names() -> None:
    """Everything made for a LoginSet is named after it."""
    loginset = _make(LoginSet)
    assert (loginset.workload_name, loginset.service_name) == ("blue", "blue")
    assert loginset.ssh_config_name == "blue-ssh-config"
    assert loginset.ssh_host_keys_name == "blue-ssh-host-keys"
    assert loginset.selector == "app.kubernetes.io/instance=blue,app.kubernetes.io/name=login"


def test_accounting_names() -> None:
    """Everything made for an Accounting is named after it."""
    accounting = _make(Accounting)
    assert accounting.workload_name == accounting.service_name == accounting.config_name == "blue-accounting"
    assert accounting.primary_name == "blue-accounting-0"


def test_restapi_names() -> None:
    """The address of slurmrestd follows from the RestApi's name and the port of its Service."""
    assert _make(RestApi).workload_name == "blue-restapi"
    assert _make(RestApi).server_url == "http://blue-restapi.hpc:6820"
    assert _make(RestApi, {"service": {"port": 8080}}).server_url == "http://blue-restapi.hpc:8080"


def test_token_secret_has_a_default_name() -> None:
    """A token goes where secretRef says, else to a Secret named after Token and user."""
    token = _make(Token, {"username": "alice"})
    assert (token.secret_name, token.secret_key) == ("blue-jwt-alice", "SLURM_JWT")
    token = _make(Token, {"username": "alice", "secretRef": _key("mine", "TOKEN")})
    assert (token.secret_name, token.secret_key) == ("mine", "TOKEN")


def test_token_without_user_is_for_nobody() -> None:
    """An empty user name never becomes a token for somebody with rights."""
    assert _make(Token).username == "nobody"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("0", timedelta(0)),
        ("-1h", timedelta(0)),
        ("2000000h", timedelta(seconds=2**31 - 2)),
    ],
)
def test_token_lifetime_is_clamped(text: str, expected: timedelta) -> None:
    """A lifetime is a quarter of an hour when unset, never negative, never more than 31 bits of seconds."""
    assert _make(Token, {"lifetime": text}).lifetime() == expected


def test_bad_token_lifetime_names_the_field() -> None:
    """A lifetime that is no duration is an error with the field and the value."""
    with pytest.raises(ValueError, match=r"spec\.lifetime: 'a day'"):
        _make(Token, {"lifetime": "a day"}).lifetime()


def test_cluster_token_secret() -> None:
    """A Cluster names the Secret with its token."""
    cluster = _make(Cluster, {"token": {"secretRef": "t"}})
    assert (cluster.spec.server, cluster.token_secret_name) == ("", "t")


def test_condition_is_found_by_type() -> None:
    """A condition is looked up by its type, and one that was never observed is absent."""
    ready = Condition(type="Ready", status="True")
    assert find_condition((Condition(type="Other", status="False"), ready), "Ready") is ready
    assert find_condition((), "Ready") is None


def test_values_from_a_newer_version_stay_readable() -> None:
    """An object with a field or a value that this version does not know is decoded all the same."""
    nodeset = _make(
        NodeSet,
        {
            "controllerRef": {"name": "red", "zone": "z"},
            "scalingMode": "Elastic",
            "updateStrategy": {"type": "Canary", "canary": {"steps": [1]}},
            "template": {"spec": {"containers": "none of our business"}},
        },
    )
    assert (nodeset.spec.scaling_mode, nodeset.spec.update_strategy.type) == ("Elastic", "Canary")
    assert nodeset.worker_service_name == "slurm-workers-red"


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_object_has_all_defaults(kind: type[Kind]) -> None:
    """Every kind can be decoded from nothing, and writes nothing but what differs from its defaults."""
    assert msgspec.to_builtins(msgspec.json.decode(b"{}", type=kind)) == {"metadata": {}}
