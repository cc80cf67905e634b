"""What Slurm is told about the nodes of autoscaled workers before any of them runs.

With `spec.autoscaling` Slurm has a record for each of `maxReplicas` workers, and schedules jobs by it. So
CPUs and memory must be known in advance: from `extraConf`, else from the limits of the container slurmd,
computed as the pods compute them. What the record promises, slurmd must register with; Slurm drains a node
with less.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_operator.objects import slurmd_conf
from slurm_operator.objects.desired import invalid
from slurm_operator.slurm.model import hostlist
from slurm_operator.slurm.model.slurm_address import check_node_conf

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.api import NodeSet
    from slurm_operator.slurm.model.records import Node

_CPUS: Final = "CPUs"
_MEMORY: Final = "RealMemory"
_LIMITS: Final = {_CPUS: "cpu", _MEMORY: "memory"}
# What belongs to one node, or is the operator's.
_NOT_OF_ALL: Final = frozenset({"nodename", "nodeaddr", "nodehostname", "state", "suspendtime"})
_MAX_DIGITS: Final = 9
_SOCKETS: Final = re.compile(r"\([^)]*\)")


@dataclass(frozen=True, slots=True)
class RecordShape:
    """What the records of all workers of a NodeSet have in common; `options` as a NodeName line has them."""

    cpus: int
    memory: int
    features: frozenset[str]
    gres: frozenset[str]
    idle: int
    options: str

    def line(self, names: Iterable[str]) -> str:
        """Return the line from which Slurm creates the records of these workers."""
        return f"NodeName={hostlist.fold(names)} {self.options} State=CLOUD"

    def describes(self, node: Node) -> bool:
        """Return whether a record that is powered down says what a new one would."""
        return (
            node.cpus == self.cpus
            and node.real_memory == self.memory
            and self.features <= {*node.features}
            and gres_names(node.gres) == self.gres
            and node.suspend_time.value in (None, self.idle)
        )


def record_shape(nodeset: NodeSet, *, reserve: bool = False) -> RecordShape:
    """Return what the records of a NodeSet say; raise Unbuildable if that is not known in advance."""
    options = slurmd_conf.record_options(nodeset)
    environment = slurmd_conf.resource_environment(nodeset, reserve=reserve)
    for (name, resource), given in zip(_LIMITS.items(), environment, strict=True):
        if name in options:
            continue
        if given["value"] == "0":
            raise invalid(
                "spec.autoscaling",
                f"{name} of a worker must be known before it starts: set "
                f"spec.slurmd.resources.limits.{resource}, or {name}= in spec.extraConf",
            )
        options[name] = given["value"]
    for name in options:
        if name.lower() in _NOT_OF_ALL:
            raise invalid(
                "spec.extraConf",
                f"{name}= cannot be set with spec.autoscaling: the operator sets it; remove it",
            )
    if nodeset.spec.autoscaling is not None:
        # It applies whatever partitions the node is in, and the record keeps it for life: also a record
        # without it would keep the longest time that its partitions had when it was created.
        options["SuspendTime"] = str(nodeset.spec.autoscaling.idle_seconds)
    shape = RecordShape(
        cpus=_number(options, _CPUS),
        memory=_number(options, _MEMORY),
        features=frozenset(options["Features"].split(",")),
        gres=gres_names(options.get("Gres", "")),
        idle=0 if nodeset.spec.autoscaling is None else nodeset.spec.autoscaling.idle_seconds,
        options=" ".join(f"{name}={options[name]}" for name in sorted(options)),
    )
    try:
        check_node_conf(shape.line(["node-0"]))
    except ValueError as error:
        raise invalid("spec.extraConf", f"with spec.autoscaling: {error}") from None
    return shape


def gres_names(text: str) -> frozenset[str]:
    """Return the generic resources of a record, without the sockets that Slurm adds."""
    return frozenset(filter(None, _SOCKETS.sub("", text).split(",")))


def _number(options: dict[str, str], name: str) -> int:
    value = options[name]
    # Slurm has 9 digits at most (`check_node_conf`), and Python refuses to read thousands of them.
    if not (value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS and int(value)):
        shown = value if len(value) <= _MAX_DIGITS else f"{value[:_MAX_DIGITS]}…"
        raise invalid("spec.extraConf", f"{name}={shown} is not valid; use a number of 1 or more")
    return int(value)
