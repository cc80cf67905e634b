"""What this process remembers of a NodeSet between two looks at it.

All of it saves work or keeps an old view from being believed, and none of it has to survive: a new process
starts with an empty memory and comes to the same end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_operator.controllers.nodeset.memo import Memo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.nodeset.actions import Note
    from slurm_operator.controllers.nodeset.engine.history import Known
    from slurm_operator.controllers.nodeset.engine.outcome import Trouble
    from slurm_operator.controllers.nodeset.observation import Asked, Worker
    from slurm_operator.kube.models import Pod
    from slurm_operator.objects.nodefit import Fit
    from slurm_operator.objects.slurmd import WorkerTemplate
    from slurm_operator.slurm.wishes import Wish

# Answers about single nodes are asked for anew long before.
_FORGET_SECONDS = 3600.0


@dataclass(slots=True)
class Memory:
    """Of one NodeSet, by its UID: one of the same name that comes later starts with nothing."""

    uid: str
    workers: dict[str, tuple[Pod, Mapping[str, str], Worker]] = field(default_factory=dict)
    """Pods as they were read, by UID; a pod object that is still the same is not read again."""
    changed: dict[str, Pod] = field(default_factory=dict)
    """Pods as our own last change left them, by UID, until the cache has them so.

    Else the next pass would not know which worker the last one has begun to drain, and choose another."""
    written: dict[str, float] = field(default_factory=dict)
    """When this process last changed, or tried to change, the state of a Slurm node."""
    asked: dict[str, Asked] = field(default_factory=dict)
    memo: Memo = field(default_factory=Memo)
    """What the last plans found out about pods and nodes that have not changed."""
    said: frozenset[Note] = frozenset()
    """What the last plan had to tell, so that it is not told again while nothing else happens."""
    complained: frozenset[str] = frozenset()
    fit: tuple[int, Fit] | None = None
    """By the generation it was made for."""
    template: tuple[Any, WorkerTemplate] | None = None
    """By what it was made from."""
    history: Known | None = None
    refused: Trouble | None = None
    """What Slurm did not take when it was last told about nodes in the background."""
    resisted: frozenset[tuple[str, Wish]] = frozenset()
    """What that was, by node: only this waits until `retry_at`."""
    refusals: int = 0
    retry_at: float = 0.0
    unsaid: dict[Trouble, None] = field(default_factory=dict)
    """What went wrong in the last pass after the status was written."""
    busy: float = 0.0
    """What the last plan took of a processor, in seconds."""
    ended: float = 0.0
    reported: float = 0.0
    """When the status was last written."""

    def newest(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return pods as they were last seen: in the cache, or in the answer to our own last change."""
        if not self.changed:
            return [*pods]
        found = [self._newest(pod) for pod in pods]
        self.changed = {pod.metadata.uid: pod for pod in found if self.changed.get(pod.metadata.uid) is pod}
        return found

    def _newest(self, pod: Pod) -> Pod:
        ours = self.changed.get(pod.metadata.uid)
        return ours if ours is not None and _version(ours) > _version(pod) else pod

    def tidy(self, names: frozenset[str], now: float) -> None:
        """Forget nodes that no worker has any more."""
        horizon = now - _FORGET_SECONDS
        self.written = {name: at for name, at in self.written.items() if name in names or at > horizon}
        self.asked = {name: one for name, one in self.asked.items() if one.at > horizon}


def _version(pod: Pod) -> int:
    # Kubernetes promises that versions of a kind can be compared as numbers.
    text = pod.metadata.resource_version
    return int(text) if text.isdecimal() else 0


class Memories:
    """The memory of every NodeSet."""

    def __init__(self) -> None:
        self._by_key: dict[object, Memory] = {}

    def of(self, key: object, uid: str) -> Memory:
        """Return the memory of a NodeSet."""
        found = self._by_key.get(key)
        if found is None or found.uid != uid:
            found = self._by_key[key] = Memory(uid)
        return found

    def forget(self, key: object) -> None:
        """Drop the memory of a NodeSet that is gone."""
        self._by_key.pop(key, None)
