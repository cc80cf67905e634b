"""What slurmd is told about its node: the argument of `--conf`, and what it may use.

The argument is a contract with the images. Their entrypoint hands it to a shell once more, so it carries its
own quotes: everything stands between single quotes, except the topology, which the shell takes from the
environment, and which reaches it there from an annotation of the pod:

    'Features=gpu Gres=gpu:8 Weight=10 Topology='"$SLINKY_TOPOLOGY"''

A value of the user may use the same trick, `'"$NAME"'`. Any other single quote is refused: it would end the
argument, and what follows would be read as commands.

Names of options come in any case and are written with a capital; options given twice are joined by commas.
They are sorted, but the topology is last. Where none is set it is empty, and slurmd takes what follows an
empty value for the value: `Topology= Weight=10` is the topology `Weight=10`, and an invalid registration.
"""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.kube.manifests.semantics import canonical_quantity
from slurm_operator.objects.desired import invalid
from slurm_operator.objects.pod_parts import take

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet

ENV_TOPOLOGY: Final = "SLINKY_TOPOLOGY"
ENV_CPUS: Final = "POD_CPUS"
ENV_MEMORY: Final = "POD_MEMORY"

_WHERE = "spec.extraConf"
_TEMPLATE = "spec.template.spec"
_TOPOLOGY = "Topology"
# Options are read with a capital first letter; these are looked for by the name that Slurm has for them.
_SPELLED = {"Cpus": "CPUs", "Realmemory": "RealMemory"}
# Slurm knows the option under both names.
_FEATURES = ("Feature", "Features")
_FEATURE = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]*")
# Out of the single quotes and back again, with something in double quotes for the shell to fill in.
_FILLED_IN = re.compile(r"""'"[^'"`\\]*"'""")
_MIB = 1024 * 1024
# slurmd and one slurmstepd were measured at 5 to 15 MiB each; sshd and a login shell are as large.
_LEAST_RESERVE = 64
_MOST_RESERVE = 1024


def node_conf(nodeset: NodeSet) -> str:
    """Return the argument of slurmd's `--conf`, in the quotes that the images expect."""
    values = {_TOPOLOGY: f"'\"${ENV_TOPOLOGY}\"'", **_values(nodeset)}
    names = sorted(values, key=lambda name: (name == _TOPOLOGY, name))
    return "'" + " ".join(f"{name}={values[name]}" for name in names) + "'"


def record_options(nodeset: NodeSet) -> dict[str, str]:
    """Return the options of a node that has no slurmd yet, by their names as Slurm writes them."""
    values = _values(nodeset)
    for name, value in values.items():
        if "'" in value or "$" in value:
            raise invalid(
                _WHERE,
                f"{name}={value} is known only in a running worker; with spec.autoscaling, set a value",
            )
    return {_SPELLED.get(name, name): value for name, value in values.items()}


def _values(nodeset: NodeSet) -> dict[str, str]:
    """Return the options of the nodes, those given twice joined, with the feature of the NodeSet."""
    options = _options(nodeset.spec.extra_conf)
    if not _FEATURE.fullmatch(nodeset.slurm_name):
        raise invalid(
            "spec.template.spec.hostname",
            f"{nodeset.slurm_name!r} cannot be the name of a Slurm feature; use letters, digits and dashes",
        )
    features = {nodeset.slurm_name}
    for name in _FEATURES:
        features.update(item for value in options.pop(name, ()) for item in value.split(",") if item)
    return {
        **{name: ",".join(given) for name, given in options.items()},
        "Features": ",".join(sorted(features)),
    }


def _options(extra: str) -> dict[str, list[str]]:
    options: defaultdict[str, list[str]] = defaultdict(list)
    for item in extra.split():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise invalid(
                _WHERE,
                f"{item!r} is not an option; write Option=value, without spaces in the value",
            )
        if "'" in _FILLED_IN.sub("", item):
            raise invalid(
                _WHERE, f"{item!r} has a single quote, which would end the argument of slurmd; remove it"
            )
        options[name.capitalize()].append(value)
    return dict(options)


# -------------------------------------------------------------------------------------------------- resources


def resource_environment(nodeset: NodeSet, *, reserve: bool = False) -> list[dict[str, Any]]:
    """Return the variables from which slurmd learns what it may use; 0 stands for no limit.

    CPUs are rounded up, because Slurm counts whole ones; memory is rounded down, because Slurm hands out all
    that it is told of. With `reserve`, some of it is kept for slurmd and what runs beside it.
    """
    cpus, cpu_field = _limit(nodeset, "cpu")
    memory, memory_field = _limit(nodeset, "memory")
    return [
        {"name": ENV_CPUS, "value": _whole(cpus, 1, ROUND_CEILING, cpu_field)},
        {"name": ENV_MEMORY, "value": _offered(_whole(memory, _MIB, ROUND_FLOOR, memory_field), reserve)},
    ]


def _offered(limit: str, reserve: bool) -> str:  # noqa: FBT001 - private, and named by its caller
    """Return the memory for jobs in MiB: a twentieth is kept, at least 64 and at most 1024, never half."""
    whole = int(limit)
    if not reserve or whole <= 0:
        return limit
    return str(whole - min(max(whole // 20, _LEAST_RESERVE), _MOST_RESERVE, whole // 2))


def own_container(nodeset: NodeSet) -> list[tuple[str, dict[str, Any]]]:
    """Return what a user wrote about the container slurmd, with the fields; what wins comes first."""
    wishes = take(nodeset.spec.template.spec, "containers", list, _TEMPLATE)
    return [
        *(
            (f"{_TEMPLATE}.containers[{index}]", item)
            for index, item in enumerate(wishes)
            if isinstance(item, dict) and item.get("name") == wellknown.APP_SLURMD
        ),
        ("spec.slurmd", nodeset.spec.slurmd),
    ]


def _limit(nodeset: NodeSet, resource: str) -> tuple[Any, str]:
    """Return a limit of the container slurmd, wherever it is set, else of the pod, and the field it is in."""
    pod = (_TEMPLATE, nodeset.spec.template.spec)
    for field, holder in (*own_container(nodeset), pod):
        limits = take(take(holder, "resources", dict, field), "limits", dict, f"{field}.resources")
        if limits.get(resource) is not None:
            return limits[resource], f"{field}.resources.limits.{resource}"
    return 0, ""


def _whole(quantity: Any, unit: int, rounding: str, where: str) -> str:
    try:
        amount = Decimal(str(canonical_quantity(quantity)))
        return format((amount / unit).to_integral_value(rounding), "f")
    except InvalidOperation:
        raise invalid(
            where, f"{quantity!r} is not a quantity; write a number such as 4, 500m or 16Gi"
        ) from None
