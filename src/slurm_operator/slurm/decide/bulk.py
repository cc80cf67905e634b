"""Bulk requests: which nodes get the same update, and what to do with a request that was refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_operator.slurm.model.hostlist import expand, natural, single, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurm_operator.slurm.model.records import NodeUpdate

# slurmrestd took 180 kB in one request; 32 kB hold some 600 names that cannot be folded at all.
MAX_HOSTLIST_BYTES: Final = 32_768


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that get the same update with one request."""

    hostlist: str
    names: tuple[str, ...]
    update: NodeUpdate


def grouped(updates: Mapping[str, NodeUpdate], max_bytes: int = MAX_HOSTLIST_BYTES) -> Iterator[Group]:
    """Yield the requests that carry out the updates, as few as there are different ones."""
    members: dict[NodeUpdate, list[str]] = {}
    for name, update in updates.items():
        members.setdefault(update, []).append(name)
    for update, names in members.items():
        if len(names) == 1:
            # Comments differ from node to node: thousands of these are all that there is to group.
            yield Group(single(names[0]), (names[0],), update)
            continue
        for hostlist in split(names, max_bytes):
            yield Group(hostlist, tuple(expand(hostlist, len(names))), update)


def narrowed(group: Group, names: Sequence[str]) -> Iterator[Group]:
    """Yield the requests for some of the nodes of one: mostly one; gaps make a hostlist longer."""
    if len(names) == len(group.names):
        yield group
    else:
        yield from grouped(dict.fromkeys(names, group.update))


def regrouped(refused: Group, left: Mapping[str, NodeUpdate]) -> Iterator[Group]:
    """Yield requests for what is left of a refused one: all together, or halves if nothing is settled."""
    names = sorted(left, key=natural)
    middle = len(names) // 2 if len(names) == len(refused.names) else len(names)
    for part in (names[:middle], names[middle:]):
        yield from grouped({name: left[name] for name in part})
