"""Rules about the lines that users add to Slurm's configuration files.

A user's line stands behind the operator's and wins. For most parameters that is what it is for. For those
that the operator writes itself it is a trap: pods, probes, volumes and Services are built for the operator's
value, and with another one the cluster does not come up, or keeps its state where it is lost. Which ones
these are is not listed here; they are read off the file that the operator would write. Listed are the
exceptions: lists that are merged, parameters that may have another value, and those where a warning will do.

Lines are read as Slurm reads them: several `Name=value` on one line are several settings, blanks around `=`
and operators such as `+=` are allowed, names come in any case. A line that begins a record (`NodeName=`,
`PartitionName=` …) sets no parameter of the cluster. Values are not quoted in findings: a password may be
among them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurm_operator.slurm.conf.conf_lines import logical_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurm_operator.webhook.rules.findings import Findings

# Possessive, and only from the beginning of a name: a megabyte of letters must not take a megabyte squared.
_PAIR: Final = re.compile(r"""(?<![A-Za-z0-9_.])([A-Za-z0-9_.]++)\s*+[-+*/]?=\s*+("[^"]*"|\S*+)""", re.ASCII)
_RECORDS: Final = frozenset({"downnodes", "frontendname", "nodename", "nodeset", "partitionname"})
# Long enough for every number that counts; a megabyte of digits is none.
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# What would name other nodes, or begin another record, on the line of a partition.
_NOT_IN_PARTITION: Final = {
    "partitionname": "the partition has the name of the NodeSet",
    "nodes": "the partition consists of exactly the nodes of this NodeSet",
    "nodename": "it would define other nodes",
    "nodeset": "it would define another set of nodes",
}
# What makes a node another one; all workers of a NodeSet have the same options.
_NOT_IN_NODE: Final = {
    "nodename": "each worker registers under its own hostname",
    "nodehostname": "each worker registers under its own hostname",
    "nodeaddr": "each worker registers with its own address",
    "nodeset": "the operator defines the NodeSet of these nodes",
    "partitionname": "use spec.partition for a partition of these nodes",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """The exceptions for one file, by names in lower case; `instead` has the fields to use for the others.

    `most` are whole numbers that may be anything up to one beyond which the daemon would not start.
    """

    free: frozenset[str]
    most: Mapping[str, int] = field(default_factory=dict)
    warned: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)


def check_extra(extra: str, own_text: str, policy: Policy, findings: Findings) -> None:
    """Validate `spec.extraConf` against the file that the operator writes without it."""
    path = "spec.extraConf"
    if _CONTROL.search(extra):
        findings.deny(path, "contains a control character; write plain text, one setting per line")
    ours: dict[str, set[str]] = {}
    for name, value in assignments(own_text):
        ours.setdefault(name.lower(), set()).add(value.lower())
    for name, value in assignments(extra):
        key = name.lower()
        if key in policy.most:
            if not _within(value, policy.most[key]):
                findings.deny(
                    path,
                    f"sets {name} to a value that slurmctld does not accept; use at most {policy.most[key]}",
                )
            continue
        if key not in ours or key in policy.free or value.lower() in ours[key]:
            continue
        if key in policy.warned:
            findings.warn(path, f"overrides {name}, which the operator sets: {policy.warned[key]}")
        else:
            use = policy.instead.get(key)
            advice = f"use {use} instead" if use else "pods and Services depend on its value"
            findings.deny(path, f"sets {name}, which the operator manages; remove it: {advice}")


def _within(text: str, most: int) -> bool:
    """Return whether Slurm reads a text as a number from 0 to the most; it knows hexadecimal ones, too."""
    if not _NUMBER.fullmatch(text):
        return False
    return int(text, 16 if text[1:2] in {"x", "X"} else 10) <= most


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters that lines of configuration set, and their values without quotes."""
    for line in logical_lines(text):
        pairs = [(match[1], match[2].strip('"')) for match in _PAIR.finditer(line)]
        if pairs and pairs[0][0].lower() not in _RECORDS:
            yield from pairs


def check_partition(config: str, findings: Findings) -> None:
    """Validate the options of a partition: nothing but options of this one partition may be in them."""
    path = "spec.partition.config"
    if "#" in config:
        findings.deny(path, "contains '#', which starts a comment; remove it")
        return
    rest = _PAIR.sub(" ", config)
    for match in _PAIR.finditer(config):
        if reason := _NOT_IN_PARTITION.get(match[1].lower()):
            findings.deny(path, f"must not set {match[1]}: {reason}; remove it")
    for word in rest.split():
        findings.deny(path, f"{word!r} is not an option; write Option=value, such as MaxTime=UNLIMITED")


def check_node(extra: str, findings: Findings) -> None:
    """Validate the options of a NodeSet's nodes; their form is checked by who writes them."""
    for word in extra.split():
        name = word.partition("=")[0]
        if reason := _NOT_IN_NODE.get(name.lower()):
            findings.deny("spec.extraConf", f"must not set {name}: {reason}; remove it")
