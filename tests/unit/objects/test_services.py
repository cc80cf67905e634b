"""The Services in front of the daemons."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.api.shared import ServiceSpec
from slurm_operator.objects import services
from slurm_operator.objects.desired import Unbuildable

OWN = {"name": "slurmctld", "protocol": "TCP", "port": 6817, "targetPort": "slurmctld"}


def _spec(**wish: Any) -> dict[str, Any]:
    made = services.service(
        {}, msgspec.convert(wish, ServiceSpec), port_name="slurmctld", port=6817, selector={"app": "x"}
    )
    spec: dict[str, Any] = made["spec"]
    return spec


def test_the_users_ports_come_first() -> None:
    """Ports of the user stand before ours."""
    http = {"name": "http", "port": 80}
    assert _spec(spec={"ports": [http]})["ports"] == [http, OWN]


def test_port_and_node_port_are_the_users() -> None:
    """The port that clients see, and that of the nodes, can be chosen."""
    assert _spec(port=7000, nodePort=30017)["ports"] == [OWN | {"port": 7000, "nodePort": 30017}]


def test_the_selector_can_only_be_narrowed() -> None:
    """Our labels win in the selector, so that a Service never leads to somebody else's pods."""
    assert _spec(spec={"selector": {"app": "other", "zone": "a"}})["selector"] == {"app": "x", "zone": "a"}


def test_external_ips_are_dropped() -> None:
    """externalIPs, which captures traffic of others, is never passed on; everything else is."""
    assert _spec(spec={"externalIPs": ["10.0.0.1"], "type": "LoadBalancer", "externalName": None}) == {
        "type": "LoadBalancer",
        "ports": [OWN],
        "selector": {"app": "x"},
    }


@pytest.mark.parametrize(
    ("ports", "field"),
    [
        ([{"name": "slurmctld", "port": 1}], "spec.service.port"),
        ([{"name": "a", "port": 6817}], "spec.service.port"),
        ([{"name": "a", "port": 1}, {"name": "a", "port": 2}], "spec.service.spec.ports[1]"),
        ([{"name": "a", "port": 1}, {"name": "b", "port": 1}], "spec.service.spec.ports[1]"),
        ([{"port": 1}], "spec.service.spec.ports[0]"),
        (["x"], "spec.service.spec.ports[0]"),
        ([{"name": ["a"], "port": 1}], "spec.service.spec.ports[0]"),
        ([{"name": "a", "port": {"b": 1}}], "spec.service.spec.ports[0]"),
        ("x", "spec.service.spec.ports"),
    ],
)
def test_ports_that_collide_are_refused(ports: Any, field: str) -> None:
    """Two ports of the same name or number are refused with the field of the second."""
    with pytest.raises(Unbuildable) as caught:
        _spec(spec={"ports": ports})
    assert caught.value.problems[0].field == field


def test_one_number_for_two_protocols() -> None:
    """The same number is no collision when the protocols differ."""
    assert len(_spec(spec={"ports": [{"name": "udp", "port": 6817, "protocol": "UDP"}]})["ports"]) == 2
