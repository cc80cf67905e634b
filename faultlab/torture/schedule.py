"""Which actions happen, on what, when and for how long: a function of the seed.

The actions are cards of a deck. It is shuffled, dealt, and shuffled again, so that a long run has every
action several times, and a short one a fair sample. Two actions of one group never overlap: a slurmctld that
is frozen is not restarted at the same time, and at most one kubelet is silent.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

# The first jobs run before the first action; the last one has ended before the repair begins.
FIRST, LAST = 20.0, 30.0
_PAUSES: Final = (3.0, 18.0)
_NUMBERS: Final = 1000


@dataclass(frozen=True)
class Card:
    """A kind of action."""

    do: str
    about: str
    """What a person would say has happened."""
    cards: int = 1
    """How many of it are in the deck."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """How long it lasts."""
    group: str = ""
    """Of actions of one group, only one at a time."""
    rest: float = 0.0
    """How long its group is left alone afterwards."""


# SlurmdTimeout is 300 s, and probes forgive a minute of silence: what is frozen is released well before, as
# what is tested is a disturbance and not the death of a daemon.
DECK: Final = (
    Card("scale", "scaled the NodeSet", 4),
    Card("update", "changed the NodeSet's template", 3),
    Card("create-nodeset", "created a NodeSet", 2, group="spare"),
    Card("delete-nodeset", "deleted the spare NodeSet", 2, group="spare"),
    Card("cordon", "cordoned a node", 2, (15.0, 60.0), "node"),
    Card("drain", "drained a node with kubectl", 3, (30.0, 90.0), "node"),
    Card("taint", "tainted a node NoSchedule", 1, (15.0, 60.0), "node"),
    Card("evacuate", "tainted a node NoExecute", 1, (15.0, 45.0), "node"),
    Card("slurm-drain", "drained a worker with scontrol", 2, (20.0, 60.0), "slurm-drain"),
    Card("evict", "evicted a worker", 3),
    Card("delete-worker", "deleted the pod of a worker", 3),
    Card("delete-slurmctld", "deleted the pod of slurmctld", 1, group="slurmctld", rest=45.0),
    Card("freeze-slurmctld", "stopped slurmctld with SIGSTOP", 1, (5.0, 20.0), "slurmctld"),
    Card("delete-slurmrestd", "deleted the pod of slurmrestd", 1, group="slurmrestd", rest=20.0),
    Card("kill-slurmrestd", "killed slurmrestd with SIGKILL", 1, group="slurmrestd", rest=20.0),
    Card("freeze-slurmrestd", "stopped slurmrestd with SIGSTOP", 1, (5.0, 40.0), "slurmrestd"),
    Card("cut", "cut the operator off from slurmrestd", 2, (10.0, 60.0), "slurmrestd"),
    Card("freeze-slurmd", "stopped the slurmd of a worker with SIGSTOP", 2, (5.0, 45.0), "slurmd"),
    Card("freeze-kubelet", "stopped a kubelet with SIGSTOP", 2, (10.0, 60.0), "node"),
    Card("kill-kubelet", "killed a kubelet with SIGKILL", 1, group="node", rest=20.0),
    Card("kill-operator", "killed the operator with SIGKILL", 3, group="operator", rest=10.0),
    Card("delete-operator", "deleted the pod of the operator", 1, group="operator", rest=15.0),
    Card("freeze-operator", "stopped the operator with SIGSTOP", 2, (5.0, 40.0), "operator"),
    Card("kill-webhook", "killed the webhook with SIGKILL", 1, group="webhook", rest=10.0),
    Card("freeze-webhook", "stopped the webhook with SIGSTOP", 1, (5.0, 25.0), "webhook"),
    Card("restart-apiserver", "killed kube-apiserver and started it again", 1, group="apiserver", rest=20.0),
    Card("freeze-apiserver", "stopped kube-apiserver with SIGSTOP", 1, (3.0, 15.0), "apiserver"),
    Card("jwt-key", "replaced the JWT key", 1, group="slurmctld", rest=60.0),
    Card("key-step", "took the next step of a rotation of the Slurm key", 3, group="slurmctld", rest=60.0),
    Card("helm-upgrade", "upgraded the release with helm", 2, group="helm", rest=20.0),
)
ABOUT: Final = {card.do: card.about for card in DECK}


@dataclass(frozen=True)
class Action:
    """One action of a run."""

    at: float
    """Seconds since the start."""
    do: str
    seconds: float
    """How long it lasts."""
    number: int
    """Chooses among what is there at the time: a node, a worker, how many replicas."""

    @property
    def end(self) -> float:
        """When it is over."""
        return self.at + self.seconds


def schedule(seed: int, minutes: float) -> list[Action]:
    """Return the actions of a run in order of time."""
    chance = random.Random(f"actions {seed}")  # noqa: S311 - to choose, not to hide
    total = minutes * 60
    free: dict[str, float] = {}
    deck: list[Card] = []
    actions: list[Action] = []
    at = FIRST
    while True:
        if not deck:
            deck = [card for card in DECK for _ in range(card.cards)]
            chance.shuffle(deck)
        index = next((i for i, card in enumerate(deck) if free.get(card.group, 0.0) <= at), None)
        if index is not None:
            card = deck.pop(index)
            action = Action(
                round(at, 1), card.do, round(chance.uniform(*card.seconds), 1), chance.randrange(_NUMBERS)
            )
            if action.end > total - LAST:
                return actions
            actions.append(action)
            if card.group:
                free[card.group] = action.end + card.rest
        at += chance.uniform(*_PAUSES)
