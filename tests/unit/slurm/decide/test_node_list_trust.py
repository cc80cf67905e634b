"""What is believed of the lists that Slurm sends, case by case."""

from __future__ import annotations

import pytest

from slurm_operator.slurm.decide.node_list_trust import NodeListTrust, TrustRules, by_name
from slurm_operator.slurm.errors import BadReply
from slurm_operator.slurm.model.steps import at_once, step
from tests.support.slurm.views import node, take_list

TRUST = TrustRules(lists=3, seconds=10.0, wide_lists=5, wide_seconds=60.0, grace=30.0)
A_DAY = 86_400.0


class Told(NodeListTrust):
    """A belief about a slurmctld that has been up for a day, which is asked for its uptime with each list."""

    def __init__(self) -> None:
        super().__init__(TRUST)
        self.begun = -A_DAY

    def hear(self, names: str, sent: float, *, uptime: bool = True) -> None:
        take_list(self, [node(name) for name in names.split()], sent)
        if uptime:
            self.uptime(sent - self.begun, sent)

    @property
    def answers(self) -> str:
        snapshot = self.snapshot
        if snapshot.suspicion is not None:
            return "suspicious"
        parts = [*sorted(snapshot.nodes), *(f"?{name}" for name in sorted(snapshot.doubts))]
        return " ".join([*parts, *(f"-{name}" for name in sorted(snapshot.absent))])


TEN = " ".join(f"n{index}" for index in range(10))
NINE = " ".join(f"n{index}" for index in range(9))
FIVE = " ".join(f"n{index}" for index in range(5))


def settled() -> Told:
    """Return a belief in ten nodes that is complete at second 20."""
    node_trust = Told()
    for sent in (0.0, 5.0, 10.0, 15.0, 20.0):
        node_trust.hear(TEN, sent)
    assert node_trust.snapshot.complete
    return node_trust


def test_what_is_listed_is_believed_at_once() -> None:
    """The first list makes its nodes known, and a changed record is the record from then on."""
    node_trust = Told()
    node_trust.hear("a b", 0.0)
    assert node_trust.answers == "a b"
    take_list(node_trust, [node("a", "MIXED"), node("b")], 5.0)
    assert node_trust.snapshot.nodes["a"].state == ("MIXED",)
    assert node_trust.snapshot.listed_at == 5.0


def test_an_unchanged_record_stays_the_same_object() -> None:
    """A record that did not change is kept, so that comparing two views costs nothing."""
    node_trust = Told()
    node_trust.hear("a b", 0.0)
    before = node_trust.snapshot.nodes["a"]
    take_list(node_trust, [node("a"), node("b", "MIXED")], 5.0)
    assert node_trust.snapshot.nodes["a"] is before


def test_a_name_never_seen_needs_lists_time_and_uptime() -> None:
    """What no list has shown is absent after enough whole lists over enough time, with the uptime known."""
    node_trust = Told()
    history = []
    for sent in (0.0, 4.0, 8.0, 12.0, 16.0):
        node_trust.hear("a", sent)
        history.append(node_trust.snapshot.complete)
    assert history == [False, False, False, False, True]
    assert node_trust.snapshot.others is not None
    assert (node_trust.snapshot.others.lists, node_trust.snapshot.others.since) == (4, 4.0)


def test_without_an_uptime_nothing_is_absent() -> None:
    """If slurmctld never says how long it has been up, no number of lists makes a name absent."""
    node_trust = Told()
    for sent in range(0, 600, 5):
        node_trust.hear("a" if sent > 100 else "a b", float(sent), uptime=False)
    assert not node_trust.snapshot.complete
    assert node_trust.answers == "a ?b"
    assert node_trust.wants_uptime


def test_one_missing_name_is_in_doubt_first() -> None:
    """A node that a list leaves out is in doubt, then absent; the others stay known throughout."""
    node_trust = settled()
    history = []
    for sent in (25.0, 30.0, 34.0, 35.0):
        node_trust.hear(NINE, sent)
        history.append(node_trust.answers)
    assert history == [f"{NINE} ?n9"] * 3 + [f"{NINE} -n9"]
    assert node_trust.snapshot.absent["n9"].lists == 4
    assert node_trust.snapshot.absent["n9"].since == 25.0


def test_a_name_that_comes_back_was_never_gone() -> None:
    """A node that reappears is known at once, and its next absence is counted from nothing."""
    node_trust = settled()
    node_trust.hear(NINE, 25.0)
    node_trust.hear(NINE, 30.0)
    node_trust.hear(TEN, 34.0)
    assert node_trust.answers == TEN
    node_trust.hear(NINE, 60.0)
    assert node_trust.answers == f"{NINE} ?n9"


def test_an_unchanged_answer_confirms_nothing() -> None:
    """Answers of "unchanged" renew what is known, but they are not further lists: a doubt stays a doubt."""
    node_trust = settled()
    node_trust.hear(NINE, 25.0)
    for sent in range(30, 90, 5):
        node_trust.unchanged(float(sent))
    assert node_trust.answers == f"{NINE} ?n9"
    assert (node_trust.snapshot.listed_at, node_trust.snapshot.confirmed) == (25.0, 85.0)


@pytest.mark.parametrize("names", ["", FIVE, "n0 n1 n2 n3 n4 n5 n6"])
def test_a_list_that_shrinks_much_is_suspicious(names: str) -> None:
    """When much is missing, nothing is known about any node until many lists over a long time agree."""
    node_trust = settled()
    history = []
    for sent in (25.0, 30.0, 50.0, 84.0, 85.0):
        node_trust.hear(names, sent)
        history.append(node_trust.answers == "suspicious")
    assert history == [True, True, True, True, False]
    assert node_trust.snapshot.nodes.keys() == set(names.split())
    assert node_trust.snapshot.absent.keys() == set(TEN.split()) - set(names.split())


def test_a_suspicious_list_is_forgotten_when_the_nodes_are_back() -> None:
    """The last believed list stays while another is doubted, and one good list ends the doubt."""
    node_trust = settled()
    node_trust.hear("", 25.0)
    assert node_trust.snapshot.nodes.keys() == set(TEN.split())
    node_trust.hear(TEN, 30.0)
    assert node_trust.answers == TEN
    assert not node_trust.snapshot.complete


def test_lists_that_take_turns_in_what_they_leave_out() -> None:
    """Halves that alternate never add up to an absence, however long it goes on."""
    node_trust = settled()
    for index in range(100):
        node_trust.hear(FIVE if index % 2 else "n5 n6 n7 n8 n9", 25.0 + 5 * index)
        assert node_trust.answers == "suspicious"
        assert not node_trust.snapshot.absent


def test_a_list_that_shrinks_in_small_steps_is_suspicious() -> None:
    """Losses that are small one by one are added up: the third of ten within a minute is too much."""
    node_trust = settled()
    sent = 20.0
    for gone in (1, 2):
        for _ in range(4):
            sent += 5.0
            node_trust.hear(" ".join(TEN.split()[: 10 - gone]), sent)
        assert len(node_trust.snapshot.absent) == gone
    node_trust.hear(" ".join(TEN.split()[:7]), sent + 5.0)
    assert node_trust.answers == "suspicious"


def test_an_empty_cluster_takes_long_to_believe() -> None:
    """From the very first list on, an empty one proves the absence of a name only after the long time."""
    node_trust = Told()
    history = {}
    for sent in range(0, 90, 5):
        node_trust.hear("", float(sent))
        history[sent] = node_trust.snapshot.complete
    assert [sent for sent, complete in history.items() if complete] == [65, 70, 75, 80, 85]
    assert node_trust.snapshot.suspicion is None


def test_the_last_node_of_a_cluster() -> None:
    """A single node that vanishes leaves an empty list, which is suspicious."""
    node_trust = Told()
    node_trust.hear("a", 0.0)
    node_trust.hear("", 5.0)
    assert node_trust.answers == "suspicious"


def test_what_was_deleted_on_purpose_needs_one_list() -> None:
    """Names that this operator deleted are absent with the next list, many or all of them; others are not."""
    node_trust = settled()
    node_trust.expect_gone(["n8", "n9", "n7", "n6", "n5"], 22.0)
    node_trust.hear(" ".join(FIVE.split()[:4]), 25.0)
    assert node_trust.answers == "n0 n1 n2 n3 ?n4 -n5 -n6 -n7 -n8 -n9"


def test_an_expectation_does_not_outlive_its_node() -> None:
    """A name that is seen again after its deletion, or a long time later, is an ordinary name."""
    node_trust = settled()
    node_trust.expect_gone(["n9"], 22.0)
    node_trust.hear(TEN, 25.0)
    node_trust.hear(NINE, 30.0)
    assert node_trust.answers == f"{NINE} ?n9"
    node_trust = settled()
    node_trust.expect_gone(["n9"], 22.0)
    node_trust.hear(NINE, 22.0 + TRUST.expected_seconds)
    assert node_trust.answers == f"{NINE} ?n9"


def test_a_list_that_was_on_its_way_does_not_meet_an_expectation() -> None:
    """A list that was asked for before the deletion says nothing about it."""
    node_trust = settled()
    node_trust.expect_gone(["n9"], 26.0)
    node_trust.hear(NINE, 25.0)
    assert node_trust.answers == f"{NINE} ?n9"


def test_a_list_that_was_on_its_way_is_not_suspicious_for_what_is_being_deleted() -> None:
    """It may have been read after the deletion: of these names nothing is known, of others as usual."""
    node_trust = settled()
    node_trust.expect_gone(["n5", "n6", "n7", "n8", "n9"], 26.0)
    node_trust.hear(FIVE, 25.0)
    assert node_trust.answers == f"{FIVE} ?n5 ?n6 ?n7 ?n8 ?n9"
    node_trust.hear(FIVE, 27.0)
    assert node_trust.answers == f"{FIVE} -n5 -n6 -n7 -n8 -n9"
    node_trust = settled()
    node_trust.expect_gone(["n5", "n6"], 26.0)
    node_trust.hear(" ".join(FIVE.split()[:4]), 25.0)
    assert node_trust.answers == "suspicious"


def test_a_restart_takes_confirmations_back() -> None:
    """After a restart nothing is absent until slurmctld is old enough and lists are counted again."""
    node_trust = settled()
    for sent in (25.0, 30.0, 35.0):
        node_trust.hear(NINE, sent)
    assert node_trust.answers == f"{NINE} -n9"
    node_trust.begun = 37.0
    history = {}
    for sent in range(40, 90, 5):
        node_trust.hear(NINE, float(sent))
        history[sent] = node_trust.snapshot.complete
    assert [sent for sent, complete in history.items() if complete] == [80, 85]


def test_a_doubt_is_not_settled_by_a_slurmctld_that_just_started() -> None:
    """Lists of slurmctld's first minute do not count, also for a name that was missing before."""
    node_trust = settled()
    node_trust.begun = 24.0
    history = {}
    for sent in range(25, 80, 5):
        node_trust.hear(NINE, float(sent))
        history[sent] = node_trust.answers
    assert node_trust.just_started(50.0)
    assert not node_trust.just_started(55.0)
    assert [sent for sent, answer in history.items() if "-n9" in answer] == [65, 70, 75]


def test_a_standby_that_takes_over_counts_as_just_started() -> None:
    """A slurmctld that has been up for longer than the one before is another one, and proves nothing yet."""
    node_trust = settled()
    node_trust.begun = -2 * A_DAY
    history = {}
    for sent in range(25, 80, 5):
        node_trust.hear(NINE, float(sent))
        history[sent] = node_trust.answers
    assert (node_trust.just_started(54.0), node_trust.just_started(55.0)) == (True, False)
    assert [sent for sent, answer in history.items() if "-n9" in answer] == [65, 70, 75]


def test_an_uptime_that_took_long_to_answer() -> None:
    """slurmctld may have counted when it answered: it is no older than that, and no other one for it."""
    node_trust = Told()
    take_list(node_trust, [node("a")], 100.0)
    assert node_trust.uptime(5.0, 100.0, 125.0)
    assert node_trust.started == 120.0
    assert not node_trust.uptime(15.0, 130.0, 130.5)
    assert node_trust.started == 115.5
    assert not node_trust.uptime(40.0, 135.0, 160.0)
    assert node_trust.started == 115.5
    assert node_trust.just_started(145.0)


def test_a_slurmctld_without_an_uptime_has_just_started() -> None:
    """In its first second slurmctld says nothing about its start; that counts as a start."""
    node_trust = settled()
    node_trust.hear(NINE, 25.0, uptime=False)
    node_trust.uptime(None, 25.0)
    assert node_trust.just_started(54.0)


def test_a_doubt_needs_an_uptime_that_was_asked_for_since() -> None:
    """An uptime from before a name went missing settles nothing: slurmctld may have restarted in between."""
    node_trust = settled()
    for sent in range(25, 125, 5):
        node_trust.hear(NINE, float(sent), uptime=False)
    assert node_trust.answers == f"{NINE} ?n9"
    node_trust.hear(NINE, 125.0)
    node_trust.hear(NINE, 130.0)
    assert node_trust.answers == f"{NINE} -n9"


def test_after_an_interruption_slurmctld_may_be_another() -> None:
    """After an outage slurmctld counts as young until it says how long it has been up; no list is lost."""
    node_trust = settled()
    wanted = [node_trust.wants_uptime]
    node_trust.interrupted()
    wanted.append(node_trust.wants_uptime)
    assert wanted == [False, True]
    node_trust.hear(TEN, 25.0, uptime=False)
    assert node_trust.just_started(25.0)
    node_trust.uptime(25.0 + A_DAY, 25.0)
    node_trust.hear(TEN, 30.0)
    assert not node_trust.just_started(30.0)
    assert node_trust.snapshot.complete


@pytest.mark.parametrize("names", [["a", "b", "a"], ["a", ""]])
def test_a_list_with_a_name_twice_or_without_one_is_no_list(names: list[str]) -> None:
    """A malformed list is refused as a whole and changes nothing."""
    node_trust = Told()
    node_trust.hear("a b", 0.0)
    before = node_trust.snapshot
    with pytest.raises(BadReply):
        take_list(node_trust, [node(name) for name in names], 5.0)
    assert node_trust.snapshot is before


def test_unchanged_needs_a_list_to_repeat() -> None:
    """Without a believed list, "unchanged" is an answer to a question that was not asked."""
    node_trust = Told()
    with pytest.raises(BadReply):
        node_trust.unchanged(0.0)
    node_trust.hear("a b", 0.0)
    node_trust.hear("", 5.0)
    with pytest.raises(BadReply):
        node_trust.unchanged(10.0)


def test_absence_is_forgotten_in_the_end() -> None:
    """Names that are long gone cost no memory for ever, and stay absent."""
    node_trust = settled()
    for sent in range(25, 4000, 25):
        node_trust.hear(NINE, float(sent))
    assert not node_trust.snapshot.absent
    assert not node_trust.snapshot.doubts
    assert node_trust.snapshot.complete


def test_a_suspicious_list_is_believed_piece_by_piece() -> None:
    """Names that vanish one list after the other are each confirmed once, and the doubt ends."""
    node_trust = settled()
    node_trust.hear(FIVE, 25.0)
    for sent in range(30, 95, 5):
        node_trust.hear("n0", float(sent))
    assert node_trust.answers == "n0 " + " ".join(f"-n{index}" for index in range(1, 10))


def test_a_long_list_is_compared_in_steps() -> None:
    """What has not changed is the same object, and no step is about more than a thousand nodes."""
    before = {f"n{number}": node(f"n{number}") for number in range(2500)}
    nodes = [node(name, "MIXED") if name == "n2400" else node(name) for name in before]
    steps = by_name(nodes, before)
    assert [step(steps)[0] for _ in range(3)] == [False, False, True]
    found = at_once(by_name(nodes, before))
    assert [name for name, one in found.items() if one is not before[name]] == ["n2400"]
