"""The Services in front of the daemons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.objects.desired import Manifest, invalid
from slurm_operator.objects.pod_parts import take

if TYPE_CHECKING:
    from slurm_operator.api.shared import ServiceSpec


_SPEC = "spec.service.spec"


def service(
    metadata: dict[str, Any], wish: ServiceSpec, *, port_name: str, port: int, selector: dict[str, str]
) -> Manifest:
    """Return a Service: the user's spec, with our port after the user's ports, and our selector.

    `externalIPs` is dropped: it would let a user who may edit the custom resource capture traffic to the
    addresses of others.
    """
    ports = [
        *take(wish.spec, "ports", list, _SPEC),
        {
            "name": port_name,
            "protocol": "TCP",
            "port": wish.port or port,
            "targetPort": port_name,
            **({"nodePort": wish.node_port} if wish.node_port else {}),
        },
    ]
    _check_ports(ports)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            **{key: value for key, value in wish.spec.items() if key != "externalIPs" and value is not None},
            "ports": ports,
            "selector": take(wish.spec, "selector", dict, _SPEC) | selector,
        },
    }


def headless_service(
    metadata: dict[str, Any], *, port_name: str, port: int, selector: dict[str, str]
) -> Manifest:
    """Return a Service that only gives names to pods, ready or not."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "ports": [{"name": port_name, "protocol": "TCP", "port": port, "targetPort": port_name}],
            "selector": selector,
        },
    }


def pod_service(metadata: dict[str, Any], *, port_name: str, port: int, selector: dict[str, str]) -> Manifest:
    """Return a Service that gives one pod an address that stays, whether there is such a pod or not.

    Its port has no name: monitors ask for it by name, and would scrape the pod once more.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "publishNotReadyAddresses": True,
            "ports": [{"protocol": "TCP", "port": port, "targetPort": port_name}],
            "selector": selector,
        },
    }


def _check_ports(ports: list[Any]) -> None:
    """Refuse ports of a user that collide with each other or with the daemon's, which stands last."""
    names: set[Any] = set()
    numbers: set[Any] = set()
    for index, port in enumerate(ports):
        where = f"{_SPEC}.ports[{index}]" if index < len(ports) - 1 else "spec.service.port"
        if not isinstance(port, dict):
            raise invalid(where, "must be a map")
        name, number = port.get("name"), (port.get("port"), port.get("protocol") or "TCP")
        if len(ports) > 1 and not name:
            raise invalid(where, "has no name; set one, as each of several ports needs it")
        if any(isinstance(value, dict | list) for value in (name, *number)):
            raise invalid(where, "name, port and protocol must be strings or numbers")
        if name in names:
            raise invalid(where, f"two ports have the name {name!r}; rename one in {_SPEC}.ports")
        if number in numbers:
            raise invalid(where, f"port {number[0]} is used twice; change one in {_SPEC}.ports")
        names.add(name)
        numbers.add(number)
