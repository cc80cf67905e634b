"""Names in Slurm that the numbered workers of a NodeSet have or will have.

A `Series` is a prefix and the numbers from 0 up to a count, each with as many digits as the NodeSet asks for.
It answers without making a list, for a NodeSet may ask for very many workers. Two series can share names
although they have different prefixes: `gpu` and `gpu1` both have a `gpu10`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.objects.slurmd_identity import MAX_ORDINAL_DIGITS

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet

_DIGITS: Final = re.compile(r"[0-9]+")
# Whether a number fits behind another prefix depends on how many digits it has, and the lowest of so many
# digits fits first. So these are the only ones to try.
_LOWEST: Final = (0, *(10**digits for digits in range(MAX_ORDINAL_DIGITS + 1)))


@dataclass(frozen=True, slots=True)
class Series:
    """The names of so many workers, numbered from 0."""

    prefix: str
    padding: int
    count: int

    def name(self, ordinal: int) -> str:
        """Return the name of a worker."""
        return f"{self.prefix}{str(ordinal).zfill(self.padding)}"

    def __contains__(self, name: str) -> bool:
        digits = name.removeprefix(self.prefix)
        if len(digits) > MAX_ORDINAL_DIGITS + 1 or not _DIGITS.fullmatch(digits):
            return False
        ordinal = int(digits)
        return ordinal < self.count and self.name(ordinal) == name


def series(nodeset: NodeSet) -> Series | None:
    """Return the names of the workers that a NodeSet asks for; None where nodes give the names."""
    spec = nodeset.spec
    if spec.scaling_mode != ScalingMode.STATEFUL_SET or spec.template.spec.get("hostNetwork"):
        return None
    count = 0 if nodeset.deleting else nodeset.most_replicas
    prefix = str(spec.template.spec.get("hostname") or "") or nodeset.pod_generate_name
    return Series(prefix, nodeset.padding, count)


def shared_name(one: NodeSet, other: NodeSet) -> str:
    """Return the first name in Slurm that numbered workers of both NodeSets would have; empty if none."""
    first, second = series(one), series(other)
    if first is None or second is None:
        return ""
    short, long = sorted((first, second), key=lambda each: len(each.prefix))
    tried = (long.name(ordinal) for ordinal in _LOWEST if ordinal < long.count)
    return next((name for name in tried if name in short), "")
