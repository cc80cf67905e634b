"""What is believed in any history of honest answers, lies, failures, restarts and deletions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import event, given
from hypothesis import strategies as st

from slurm_operator.slurm.decide.node_list_trust import NodeListTrust, TrustRules
from slurm_operator.slurm.errors import BadReply
from slurm_operator.slurm.model.view import Absent, ClusterView, Known
from tests.support.slurm.views import node, take_list

if TYPE_CHECKING:
    from slurm_operator.slurm.model.records import Node

TRUST = TrustRules(lists=3, seconds=10.0, wide_lists=6, wide_seconds=40.0, grace=20.0)
NAMES = tuple(f"n{index}" for index in range(8))
# Fewer lies in a row than it takes to believe one.
MOST_LIES = TRUST.lists - 1


@dataclass
class Listed:
    """One list that was sent: when, what it showed, and when the slurmctld that made it had started."""

    sent: float
    nodes: dict[str, Node]
    started: float


@dataclass
class World:
    """A cluster, a watcher of it, and everything that was ever said."""

    names: set[str] = field(default_factory=lambda: set(NAMES))
    now: float = 0.0
    started: float = -1000.0
    records: int = 0
    lies: int = 0
    lists: list[Listed] = field(default_factory=list)
    deleted: set[tuple[str, float]] = field(default_factory=set)
    node_trust: NodeListTrust = field(default_factory=lambda: NodeListTrust(TRUST))

    def answer(self, names: set[str]) -> None:
        """Send a list, good or bad, and then the uptime."""
        nodes = {name: node(name, comment=str(self.records)) for name in sorted(names)}
        self.lists.append(Listed(self.now, nodes, self.started))
        take_list(self.node_trust, [*nodes.values()], self.now)
        self.uptime()

    def uptime(self) -> None:
        self.node_trust.uptime(self.now - self.started, self.now)

    def honest(self) -> None:
        self.lies = 0
        self.answer(self.names)

    def lie(self, kept: set[str]) -> None:
        """Leave nodes out of a list, but not often enough in a row to be believed."""
        if self.lies < MOST_LIES:
            self.lies += 1
            self.answer(self.names & kept)
        else:
            self.honest()

    def unchanged(self) -> None:
        with suppress(BadReply):
            self.node_trust.unchanged(self.now)

    def restart(self, *, forget: bool) -> None:
        self.started = self.now
        if forget:
            self.names = set()

    def register(self, names: set[str]) -> None:
        self.names |= names

    def touch(self) -> None:
        self.records += 1

    def delete(self, names: set[str]) -> None:
        """Delete nodes on purpose and say so."""
        gone = names & self.names
        self.names -= gone
        self.node_trust.expect_gone(gone, self.now)
        self.deleted |= {(name, self.now) for name in gone}

    def lose(self, names: set[str]) -> None:
        """Let nodes vanish for good without a word."""
        self.names -= names

    @property
    def view(self) -> ClusterView:
        snapshot = self.node_trust.snapshot
        return ClusterView(
            nodes=snapshot.nodes,
            listed_at=snapshot.listed_at,
            complete=snapshot.complete,
            suspicion=snapshot.suspicion,
            doubts=snapshot.doubts,
            absent=snapshot.absent,
            others=snapshot.others,
            up_since=self.node_trust.started,
        )

    def check(self) -> None:
        """State what must be true of the answers at any moment."""
        for name in NAMES:
            answer = self.view.node(name, self.now)
            if isinstance(answer, Known):
                assert answer.node == self.lists[-1].nodes[name], "known is what the last list showed"
            elif isinstance(answer, Absent):
                assert name not in self.lists[-1].nodes, "absent is not what the last list showed"
                self.check_absence(name, answer)

    def check_absence(self, name: str, answer: Absent) -> None:
        silent: list[Listed] = []
        shown = float("-inf")
        for listed in reversed(self.lists):
            if name in listed.nodes:
                shown = listed.sent
                break
            silent.append(listed)
        if any(name == gone and shown <= at < silent[0].sent for gone, at in self.deleted):
            return
        grown = [listed for listed in silent if listed.sent >= listed.started + TRUST.grace]
        assert len(grown) >= TRUST.lists, "absent takes several lists"
        assert grown[0].sent - grown[-1].sent >= TRUST.seconds, "absent takes time"
        assert TRUST.lists <= answer.lists <= len(self.lists)
        assert answer.since <= grown[0].sent - TRUST.seconds
        if not self.lists[-1].nodes:
            assert len(grown) >= TRUST.wide_lists, "an empty list takes many"
            assert grown[0].sent - grown[-1].sent >= TRUST.wide_seconds


some = st.sets(st.sampled_from(NAMES))
steps = st.one_of(
    st.just(("honest",)),
    st.just(("honest",)),
    st.tuples(st.just("lie"), some),
    st.just(("unchanged",)),
    st.just(("uptime",)),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("register"), some),
    st.just(("touch",)),
    st.tuples(st.just("delete"), some),
)
gaps = st.sampled_from([0.5, 2.0, 5.0, 15.0])


def take(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("restart", bool(forget)):
            world.restart(forget=forget)
        case (str(name), *arguments):
            getattr(world, name)(*arguments)


@given(history=st.lists(st.tuples(steps, gaps), max_size=40))
def test_answers_are_backed_by_what_was_said(history: list[tuple[tuple[object, ...], float]]) -> None:
    """In any history known is what the last list shows, and absent has enough lists and time behind it."""
    world = World()
    for step, gap in history:
        world.now += gap
        take(world, step)
        world.check()


honest_steps = steps.filter(lambda step: step[0] not in ("restart", "delete"))


@given(history=st.lists(st.tuples(honest_steps, gaps), max_size=60))
def test_lies_that_are_too_few_never_make_a_node_absent(
    history: list[tuple[tuple[object, ...], float]],
) -> None:
    """While nodes are there and fewer lies in a row are told than it takes, no node is ever absent."""
    world = World()
    world.honest()
    for step, gap in history:
        world.now += gap
        take(world, step)
        answers = {name: world.view.node(name, world.now) for name in NAMES}
        assert not [name for name, answer in answers.items() if isinstance(answer, Absent)]
        if world.view.suspicion:
            event("suspicious")


@given(history=st.lists(st.tuples(steps, gaps), max_size=30), left=some)
def test_the_truth_is_believed_in_the_end(
    history: list[tuple[tuple[object, ...], float]], left: set[str]
) -> None:
    """After any history honest answers alone make the nodes known that are there, and the others absent."""
    world = World()
    for step, gap in history:
        world.now += gap
        take(world, step)
    world.lose(set(NAMES) - left)
    for _ in range(40):
        world.now += 5.0
        world.honest()
    for name in NAMES:
        expected = Known if name in world.names else Absent
        assert isinstance(world.view.node(name, world.now), expected)
    assert not world.node_trust.snapshot.doubts
